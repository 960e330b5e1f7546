"""A node as a child: claims, JOIN, leases and renewals (§5.1, §5.6).

    requested_subtrees   all claims of the node, from its settings and from orders (§5.7)
    uplink               one claim and its states: asks, takes the subtree over, renews, hands back
    join_requests        the JOINs of a claim, and which answers it believes
    lease                what a claim holds, and its grant in the jurisdiction

Imports go downward: `requested_subtrees` imports `uplink`, which imports the others; `join_requests` imports
`lease`. `uplink` also imports `handover`, `hierarchy.parent` and `subscriptions.owner`.
"""
