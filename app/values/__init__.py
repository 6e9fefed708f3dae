"""Plain values and their rules: text, dates, mass, actors, statuses. Nothing here knows a row or a process."""
