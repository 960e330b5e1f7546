"""The product as a user runs it: `hbroker up`, nodes, programs that publish and subscribe.

    dying/       nodes and networks that are killed or lose power, and their stores
    hostile/     floods, forgeries and replays
    moving/      subtrees that move, by order or because a node leaves
    sessions/    sessions and their messages: many, slow, large
    test_own_key, test_own_status, test_named_addresses   what belongs to a network or a node alone

`network` starts a network, `node` one node, and `home` a house with its traffic. `load` starts `pacer` and
`readers`, both over `client`. `peer` speaks the protocol with protobuf alone. `starvation` measures what a
busy machine adds to a delay.
"""
