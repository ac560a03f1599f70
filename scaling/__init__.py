"""Scaling limits of softmax attention over a long random context."""
