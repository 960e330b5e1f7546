"""Measurements of hbroker beside its peers, in one run on one machine. Method and results:
docs/benchmarks.md."""
