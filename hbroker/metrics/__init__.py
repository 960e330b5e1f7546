"""Metrics for Prometheus: one list, from which all else is made.

families      the metrics: name, type, help, and where in a node's status each is
exposition    the statuses of nodes as text for Prometheus
"""
