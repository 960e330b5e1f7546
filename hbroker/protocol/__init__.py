"""Every decision of nodes and clients, sans-IO: events and the time in, verbs on the native core out.

    node, client      the control of a node, and of a client: they route events to the packages below
    admin, status     operators' orders to a node (§5.7); a node's `$SYS` topics
    audit             the events of a process below `$SYS/audit` (§5.12)
    hierarchy         a node as a child and as a parent: JOIN, delegations, leases (§5.1, §5.5, §5.6, §5.9)
    wills             wills at the client and at the owner (§6.6)
    handover          how a subtree changes its owner, and recovery (§5.4, §5.8)
    subscriptions     SUBSCRIBE at the client and at the owner (§6.1 to §6.3, §6.5)
    client_context    what the parts of a client's control share
    resolution        look-ups and their caches (§4.3, §5.2, §5.3)
    context           what the parts of a node share
    sessions          sessions with their subscriptions, and takeovers (§6.4)
    ownership         what a node owns: grants, cuts, ended leases (§5)
    storage           what waits for the disk (§5.10)
    events, results   what a node, and a client, report to their process
    core, packets     the native core's verbs as types; control packets

A line imports only lines below it, except for types. Modules that all use: `requester`, `timers`,
`expiring_cache`, `state_machine`. Of hbroker only `config`, `subtree`, `properties`, `_proto`
and the native core are below. Sections (§) are those of docs/protocol.md.
"""
