"""Every decision of nodes and clients, sans-IO: events and the time in, verbs on the native core out.

    node              a node's control: routes events to the packages below
    client            a client's control, likewise
    hierarchy         who owns which subtree: jurisdiction, delegations, leases (§5.1, §5.5, §5.6, §5.9)
    handover          how a subtree changes its owner, and recovery (§5.4, §5.8)
    resolution        look-ups and their caches (§4.3, §5.2, §5.3)
    subscriptions     SUBSCRIBE at the client and at the owner (§6.1 to §6.3, §6.5)
    sessions          sessions, takeovers and wills (§6.4, §6.6)
    admin             operators' orders to a node (§5.7)
    status, storage   a node's `$SYS` topics; what waits for the disk (§5.10)
    events, results   what a node, and a client, report to their process
    core, packets     the native core's verbs as types; control packets

Modules that all of them use: `requester`, `reasons`, `timers`, `timer_queue`, `expiring_cache` and
`state_machine`. `node` and `client` import the packages; the packages import each other and the modules. Of
hbroker only `config`, `subtree`, `properties`, `_proto` and the native core are below. Sections (§) are those
of docs/protocol.md.
"""
