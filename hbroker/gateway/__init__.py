"""The decisions of one gateway, between MQTT clients and the owners of the network (docs/gateway.md).

Sans-IO, like `hbroker.protocol`: events of the native core come in with the time, verbs go out. The native
core moves every PUBLISH.

    control         the entry: gives each event to the class that decides on it
    admin_requests  the requests of `hbroker clients` and `hbroker kick`
    connect/        from CONNECT to CONNACK, the end of a connection, takeover
    sessions/       what this gateway publishes: claims, session records, its presence
    subscriptions/  MQTT subscriptions as listeners of pool clients; $SYS/broker
    context         the objects that the modules above share
    connections/    the connections of MQTT clients, and the queues of those that wait
    records/        claims, session records and presences of all gateways
    access/         passwords, access rules, bounds on guessed passwords
    network_clients, outbox, events    pool clients; published messages; events for the log
    native_api, reason_codes  events and verbs of the native core; reason codes

Imports go downwards in this list.
"""
