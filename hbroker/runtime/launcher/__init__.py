"""`hbroker up`: the processes of a topology, started, watched and ended."""
