"""CONNECT, from the packet to CONNACK, and the end of a connection (MQTT 5 §3.1).

    connect            the steps from CONNECT to CONNACK
    pending_connects   CONNECTs that wait for an earlier CONNECT of their client id
    disconnect         the end of a connection: will, session record, pool client
    disconnect_queue   ends of connections that wait
    connection_table   all connections, by number and by client id
    connection         one connection: its states and its session
    connect_packet     what the CONNECT packet alone decides: version, client id, limits
    wills              when a will is published

Each module imports only modules below it in this list.
"""
