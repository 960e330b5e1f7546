"""MQTT 5, statement by statement, at a gateway in a network: see `statements` and `holds`."""
