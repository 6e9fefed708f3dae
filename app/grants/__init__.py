"""Mechanic's exceptions: asking the agent, and showing content to one human while its YES lasts."""
