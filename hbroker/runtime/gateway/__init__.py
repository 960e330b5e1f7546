"""A gateway's process."""
