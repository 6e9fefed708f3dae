"""Signed notes, roots and proofs made here, checked by Go's own packages for them; see `__main__`."""
