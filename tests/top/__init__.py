"""`hbroker top`."""
