"""The one true process: consent, then a guarded loop in which the agent's own model uses the Knife, then the close."""
