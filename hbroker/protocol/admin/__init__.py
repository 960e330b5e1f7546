"""Operators' requests: leave, move, claim, hand back (§5.7)."""
