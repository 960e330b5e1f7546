"""Sessions of MQTT clients over all gateways: what this gateway publishes about them, and when.

    claim_requests   publishes claims of client ids
    stale_sessions   what owners hold for a client that must subscribe again
    session_store    writes session records
    presence         publishes the presence of this gateway
    startup          gets the records of the existing sessions, before the gateway takes clients

`stale_sessions` imports `session_store`, and `presence` imports `startup`. Of the gateway they import
`subscriptions`, `context`, `connections` and `records`; `connect` and `control` import them.
"""
