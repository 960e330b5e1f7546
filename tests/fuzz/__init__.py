"""Strangers at a gateway's door: what real clients sent, broken in every way, and bytes of no sense."""
