"""CONNECT, from the packet to CONNACK, and the end of a connection (MQTT 5 §3.1).

    connect_handler      the steps from CONNECT to CONNACK
    takeover             disconnects clients that another gateway claims
    disconnect_handler   the end of a connection: will, session record, pool client

`connect_handler` and `takeover` import `disconnect_handler`. All three import `connections`, `records` and
`sessions` of the gateway, and no package imports them: only `control` and `admin_requests` do.
"""
