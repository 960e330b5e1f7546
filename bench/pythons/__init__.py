"""What a message costs in Python: hbroker's client beside those of other brokers. See docs/benchmarks.md."""
