"""What operators see and ask of a gateway.

    requests       the requests of `hbroker clients` and `hbroker kick`
    sys_topics     the topics below $SYS/broker
    load_average   the averages of $SYS/broker/load
    events         clients that connected, were refused or disconnected, for the log

`sys_topics` imports `load_average`; otherwise the modules do not import each other. `requests` imports
`hbroker.gateway.context`, `connect` and `sessions`.
"""
