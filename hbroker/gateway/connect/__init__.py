"""CONNECT, from the packet to CONNACK, and the end of a connection (MQTT 5 §3.1).

    connect      the steps from CONNECT to CONNACK
    takeover     lets go of clients that another gateway claims
    disconnect   the end of a connection: will, session record, pool client

`connect` and `takeover` import `disconnect`. All three import `connections`, `records` and `sessions` of the
gateway, and no package imports them: only `control` and `admin_requests` do.
"""
