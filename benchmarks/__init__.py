"""Benchmarks: what the library must reach, measured against a plain NumPy script within one run (`python -m benchmarks`)."""
