"""Simulated rooms (docs/simulation.md): the model, with statistical tests (`statistics`); scenarios, plans,
the player; MQTT clients and their codec; counters and receipts; the report; runs on real networks."""
