"""Simulated rooms: statistical tests of the model, scenarios and plans, the counters, and runs on real
networks."""
