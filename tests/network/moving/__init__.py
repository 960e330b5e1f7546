"""Subtrees that move, and leases, in the simulator.

    test_moving, test_copying, test_overlapping_handovers, test_unconfirmed_handovers   handovers (§5.4)
    test_kills_while_moving, test_recovery, test_old_cuts    nodes that are killed, and what they know then
    test_leases, test_ended_leases, test_fencing             the end of a lease (§5.6)
    test_late_joiner, test_clean_starts    a node joins late; a client begins anew while subtrees move

`test_kills_while_moving` uses the traffic of `test_moving`.
"""
