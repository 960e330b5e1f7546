"""A node as a parent: admission, delegations, and their leases (§5.1, §5.6)."""
