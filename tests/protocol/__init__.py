"""The decisions of nodes and clients, in virtual time, without sockets.

    handover/        state that moves with a subtree, and recovery
    hierarchy/       joining, leases, and the links of parents and children
    ownership/       what a node owns
    resolution/      look-ups, and what clients cache of them
    sessions/        sessions at a node, with their subscriptions
    subscriptions/   subscriptions of a client, at all their owners
    test_node, test_client, ...   what concerns a whole node or client

`world` has networks with few verbs, over `fake_network` (recording cores, `fakes`) or `native` (real
engines). `client_world` has one client among scripted nodes, and `sole_node` one node alone.
"""
