"""A subtree on its way to a new owner, and the recovery of a restarted owner (§5.4, §5.8)."""
