"""The Time Machine: what the audit log gives back, and the proof that nothing in it was altered."""
