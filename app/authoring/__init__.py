"""Self-authoring: an agent sets its own name, prompts and threshold; every change is a version, and can be reverted."""
