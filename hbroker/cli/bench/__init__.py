"""`hbroker bench`."""
