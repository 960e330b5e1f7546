"""The gateway's decisions: MQTT clients on one side, the network of owners on the other (docs/gateway.md).

Sans-IO like `hbroker.protocol`: events of the border come in with the time, verbs of the border go out. The
native core moves every PUBLISH; here is who may connect, what a session is, which owner holds a
subscription, and what becomes of a will.

    border          what is asked of the native core, and what it tells
    control         where events find their concept; one gateway
    admission       CONNECT: versions, client ids, limits, who may
    announcing      that this gateway is there, and what the others say of themselves
    claims          who has a client id, over all gateways
    claiming        claims on their way
    records         what a session is while no gateway speaks for it
    members         the network clients inside a gateway
    connections     one MQTT client, from CONNECT to its end
    bridge          MQTT subscriptions as listeners of members
    wills           when a will is published, and by whom
    sys_topics      $SYS/broker/... as users of mosquitto know it
    policy, acl, passwords      who may do what, by files or by hooks
    orders          what operators ask: the clients that there are, kick
"""
