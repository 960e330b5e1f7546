"""What an operator asks of a running network: for the commands, `hbroker top`, and the HTTP API.

    live_network        what the nodes say of themselves, live
    node_statuses       what the nodes say of themselves, and the tree that they make
    plans               moves subtrees until a network is as a topology says
    orders              finds nodes, and gives them orders: leave, move a subtree
    mqtt_sessions       makes, empties and ends sessions of MQTT clients
    http_client         the same by the HTTP API, for commands with `--url`
    gateway_requests    asks all gateways: their clients, disconnect one

All but `http_client` need a client of the network, with rights for `$SYS` or `$gateway`. `live_network`
imports `node_statuses`, `mqtt_sessions` and `http_client` import `gateway_requests`, and `plans` imports
`orders`.
"""
