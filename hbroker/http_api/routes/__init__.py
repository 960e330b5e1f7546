"""The routes of the API, by what they are about. Each module has one controller.

    network     the network as a whole, its nodes and subtrees, events, alerts, health
    clients     sessions at nodes, MQTT clients, gateways
    messages    messages that are published, received and retained
    orders      moves of subtrees, nodes that leave
    plans       moves of several subtrees, until nodes own what a topology says
    tokens      tokens: make, narrow, look at
    workspaces  workspaces: their first tokens, and what they use
    metrics     what Prometheus scrapes

They read `LiveNetwork`, use clients of `CallerClients`, and call `hbroker.operations`. None imports another.
"""
