"""Whoever writes the database, the broker or what the web process saw, but not the worker's disk, and what they get."""
