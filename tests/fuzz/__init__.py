"""Malformed packets at a gateway: mutated packets of real clients, and random bytes."""
