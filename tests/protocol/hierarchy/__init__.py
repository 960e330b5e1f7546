"""Joining, leases, and the links of parents and children."""
