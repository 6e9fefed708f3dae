"""Asking a model: memories into a prompt, one way to send it, and reading what comes back."""
