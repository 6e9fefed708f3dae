"""In and out: files of other systems become memories, and an agent takes its own along."""
