"""The tree of nodes: how a subtree gets an owner and keeps it (docs/protocol.md §5).

    child         this node as a child: claims, JOIN, leases and renewals
    parent        this node as a parent: admission, delegations, taking back
    channels      authenticated packets between child and parent (§5.5)
    join_proofs   proofs of the join key, and the nonces that they cover (§5.5, §5.7)

Imports go downward: `child` imports `parent`, and `child`, `parent` and `channels` import `join_proofs`.
`child` and `parent` also import `handover`, `subscriptions.owner` and `ownership`. `protocol.node` puts all
of them together; `admin` uses claims and nonces.
"""
