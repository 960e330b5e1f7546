"""MQTT subscriptions as listeners of network clients."""
