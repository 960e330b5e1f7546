"""Metrics for Prometheus: one list, from which all else is made.

families      the metrics: name, type, help, and where in a node's status each is
hot_topics    the topics with the most messages, and their rates
exposition    the statuses of nodes, and the counters of a gateway, as text for Prometheus

`exposition` imports `families`.
"""
