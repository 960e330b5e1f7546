"""Sessions of MQTT clients: who speaks for a client id, over all gateways, and their records."""
