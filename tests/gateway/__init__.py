"""A gateway: its decisions in virtual time, and its processes.

    connect/      CONNECT: who is accepted, with what answer; passwords and access rules
    sessions/     sessions that gateways share: claims, records, wills, presence
    transports/   listeners over real sockets: TLS, WebSocket, the PROXY protocol, guessed passwords
    test_subscribing, test_events, test_admin_requests, test_units   other decisions
    test_slow_subscribers, test_process, test_with_mosquitto         real processes

`networks` has gateways in a simulated network, over the native half that `fakes` plays. `endpoint_gateway`
plays it over real endpoints.
"""
