"""Nodes and networks that die: by SIGKILL, with the power of their disk (`power`), or in order.

    test_survival, test_successions, test_ended_leases    an owner comes back, is replaced, or was suspended
    test_store, test_stored_state, test_random_kills, test_orderly_stop   what is on disk is there afterwards
    test_long_queues, test_full_store, test_moved_stores, test_merged_stores, test_unused_stores   stores
    test_store_command    `hbroker store`

`users` publish and subscribe while everything dies.
"""
