"""MQTT subscriptions as listeners of pool clients.

    mqtt_subscriptions   SUBSCRIBE and UNSUBSCRIBE of MQTT clients, and restored sessions
    network_clients      the pool clients of a gateway: the shared one, and those of sessions
    filters              whether one topic filter covers or overlaps another

`mqtt_subscriptions` imports `network_clients`. `network_clients` imports `hbroker.protocol.client`, and of
the gateway only `native_api`. `filters` imports nothing.
"""
