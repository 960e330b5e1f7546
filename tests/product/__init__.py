"""The product as a user runs it: `hbroker up`, nodes, programs that publish and subscribe.

    dying/       nodes and networks that are killed or lose power, and their stores
    hostile/     floods, forgeries and replays
    moving/      subtrees that move, by order or because a node leaves
    security/    who gets in: the join key, the authority
    sessions/    sessions and their messages: many, slow, large
    test_own_status, test_named_addresses   what belongs to a network or a node alone
    test_store_damage                       a store whose files changed while its node did not run

`network` starts a network, `node` one node, and `home` a house with its traffic. `load` starts `pacer` and
`readers`, both over `client`. `peer` speaks the protocol with protobuf alone. `starvation` measures what a
busy machine adds to a delay.
"""
