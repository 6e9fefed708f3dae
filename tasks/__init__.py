"""What the worker does: each task takes an id, loads, and makes one call. Every one may run twice."""
