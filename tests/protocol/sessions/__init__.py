"""Sessions at a node, with their subscriptions."""
