"""Sessions of MQTT clients over all gateways: which gateway has a client id, and the records of sessions.

    claim_requests         publishes claims of client ids
    takeover               lets go of clients that another gateway claims
    stale_sessions         what owners hold for a client that must subscribe again
    session_store          writes session records
    startup                the gateway's own subscriptions, until it may take clients
    announcements          publishes the presence of this gateway
    records                the session records of all gateways
    gateways               the gateways that are present, or gone
    claims                 claims, and the stamps that order them
    record_authentication  payloads of gateways: JSON, authenticated with the join key
    wait_group             calls back when several operations have ended

`stale_sessions` imports `session_store`; `announcements` imports `startup`. The first six import the last
five, and of these `records` imports `gateways`, `gateways` imports `claims`, and `claims` imports
`record_authentication`.
"""
