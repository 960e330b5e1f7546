"""Malformed packets at a gateway: mutated packets of real clients, and random bytes.

`captures` records the packets of real clients (through `tap`), `packets` mutates them, and `attack` sends
them over many connections.
"""
