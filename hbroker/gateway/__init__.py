"""The decisions of one gateway, between MQTT clients and the owners of the network (docs/gateway.md).

Sans-IO, like `hbroker.protocol`: events of the native core come in with the time, verbs go out. The native
core moves every PUBLISH.

    control         the entry: gives each event to the class that decides on it
    connect/        from CONNECT to CONNACK, and the end of a connection
    sessions/       which gateway has a client id; records of sessions; the other gateways
    subscriptions/  MQTT subscriptions as listeners of pool clients
    access/         passwords, access rules, bounds on guessed passwords
    admin/          the log, the requests of operators, $SYS/broker
    context         the objects that these packages share
    outbox          the messages that the gateway itself publishes
    native_api      the events and verbs of the native core
    reason_codes    reason codes of MQTT 5

Imports go from `control` to the packages, from the packages to `context`, and from `context` to the modules
that only keep state, such as `records`. `native_api` and `reason_codes` import nothing of the gateway.
"""
