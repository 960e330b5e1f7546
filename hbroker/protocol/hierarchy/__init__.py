"""The tree of nodes: what each node owns, and how a subtree gets and keeps an owner (docs/protocol.md §5).

    child           this node as a child: claims, JOIN, leases and renewals
    parent          this node as a parent: admission, delegations, taking back
    jurisdiction    the grants and cuts of this node; every change goes to the native core, too
    cut_tree        the cuts as a tree of topic levels; touched_cuts caches which of them a filter touches
    ended_leases    subtrees that this node served until its lease ended (§5.6)
    channels        authenticated packets between child and parent; join_proofs: proofs of the join key (§5.5)

Imports go downward: `child` imports `parent`, `parent` imports `jurisdiction`, which imports `cut_tree` and
`touched_cuts`. `child` and `parent` also import `handover` and `subscriptions.owner`, which import
`jurisdiction`. `protocol.node` puts all of them together.
"""
