"""What people would use instead: each peer in an environment of its own, asked by JSON lines."""
