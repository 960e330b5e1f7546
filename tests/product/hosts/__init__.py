"""Nodes that run by themselves, beside a network of `hbroker up`."""
