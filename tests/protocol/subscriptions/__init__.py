"""Subscriptions of a client, at all their owners."""
