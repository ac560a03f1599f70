"""Tests of `toyblocks`."""
