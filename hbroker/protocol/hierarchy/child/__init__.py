"""A node as a child: JOIN, the lease, and renewals (§5.1, §5.6)."""
