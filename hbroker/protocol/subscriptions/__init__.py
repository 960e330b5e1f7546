"""Subscriptions, at the client and at the owner (§6)."""
