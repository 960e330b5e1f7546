"""The connections of MQTT clients to this gateway.

    pending_connects   CONNECTs that wait for an earlier CONNECT of their client id
    disconnect_queue   ends of connections that wait
    connection         one connection: its states and its session; the table of all connections
    connect_packet     what the CONNECT packet alone decides: version, client id, limits

Each module imports only modules below it in this list. Of the gateway they import `access`, `records`,
`outbox` and `native_api`.
"""
