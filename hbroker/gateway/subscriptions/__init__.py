"""MQTT subscriptions as listeners of pool clients.

    mqtt_subscriptions   SUBSCRIBE and UNSUBSCRIBE of MQTT clients, and restored sessions
    sys_topics           the topics below $SYS/broker, with load averages

`mqtt_subscriptions` imports `sys_topics`. Of the gateway they import `context`, `connections`, `records`,
`access` and `network_clients`.
"""
