"""Subtrees that move, and leases."""
