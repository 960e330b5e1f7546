"""Real nodes and clients on hosts of their own: network namespaces (`hbroker.sim.lab`), which need root.

    test_bad_paths, test_large_payload            paths with every kind of fault
    test_kills, test_root_down, test_partition    nodes and clients that are killed, or cut off
    test_ended_leases                             owners that are suspended for longer than their lease
    test_gateway_elsewhere                        a gateway on another host

`network` starts the programs `publish`, `subscribe` and `large`. These write a `journal`, which `result`
checks. `wire` reads what hosts sent.
"""
