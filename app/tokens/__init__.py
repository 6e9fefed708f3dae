"""Later tokens of an agent: a human asks for one, and the agent decides."""
