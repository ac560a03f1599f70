"""Rotary position embedding: frequencies, rotations, and the orbit of a query under them."""
