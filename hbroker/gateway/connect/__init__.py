"""CONNECT, from the packet to CONNACK, and the end of a connection (MQTT 5 §3.1)."""
