"""The normative statements of MQTT 5, tested at a gateway in a network. See `statements` and `holds`."""
