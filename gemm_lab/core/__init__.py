"""Frozen data that the rooms hand to each other; no I/O."""
