"""What an operator asks of a running network: for the commands, and for the HTTP API.

    node_statuses       what the nodes say of themselves, and the tree that they make
    plans               moves subtrees until a network is as a topology says
    orders              finds nodes, and gives them orders: leave, move a subtree
    mqtt_sessions       makes, empties and ends sessions of MQTT clients
    gateway_requests    asks all gateways: their clients, disconnect one

Each needs a client of the network (`hbroker.sync`), with rights for `$SYS` or `$gateway`.
`mqtt_sessions` imports `gateway_requests`, and `plans` imports `orders`; the others import none of these.
"""
