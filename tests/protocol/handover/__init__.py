"""State that moves with a subtree, and recovery."""
