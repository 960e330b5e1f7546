"""Whole networks in the simulator: real engines and control logic, in virtual time, from one seed.

    checkers/          the checkers of the simulator, which must find what is wrong, and nothing else
    moving/            subtrees that move, and leases
    test_links, test_datagram_sizes, test_address_validation, test_relay   links and paths
    test_resolution, test_complete_subscription, test_retained, test_large_messages, test_sessions   messages
    test_full_disk     a disk that is full, or does not answer

`networks` has the trees of nodes that the others use.
"""
