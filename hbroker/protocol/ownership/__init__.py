"""What a node owns: its jurisdiction, the cuts in it, and leases that ended."""
