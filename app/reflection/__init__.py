"""Reflection: what an agent keeps of a conversation that it hands in, and of its own journal; its own model decides."""
