"""Subtrees that move, by order or because a node leaves."""
