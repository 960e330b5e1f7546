"""Simulated rooms: the model by statistics, scenarios and plans, the accounts, and runs on real networks."""
