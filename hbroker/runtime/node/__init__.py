"""A node's process: the native endpoint, the control over it, and the files that it keeps (§5.10).

    process          runs the node until a signal, an order or a failure ends it
    successor        a process that takes over the sockets of the one before it
    writer_threads   writes and syncs the state files in threads, so that no decision waits for a disk
    state_files      the state files: delegations, claims, subscriptions, and when the node was alive
    event_entries    the events of a node as entries of its log and of the audit

Imports go downward: `process` imports `writer_threads`, which imports `state_files`, which imports
`hbroker.storage`. `process` also imports `successor`, `event_entries`, `runtime.driver`, `runtime.hosts` and
`runtime.telemetry`.
"""
