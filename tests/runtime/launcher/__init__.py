"""`hbroker up` and its processes."""
