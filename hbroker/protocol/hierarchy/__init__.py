"""The tree of nodes: what each owns, and how a subtree gets and keeps an owner (docs/protocol.md §5)."""
