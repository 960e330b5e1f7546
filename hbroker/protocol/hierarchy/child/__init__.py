"""A node as a child: claims, JOIN, leases and renewals (§5.1, §5.6).

    subtree_claims   all claims of the node, from its settings and from orders (§5.7)
    subtree_claim    one claim and its states: asks, takes the subtree over, renews, hands back
    join_requests    the JOINs of a claim, and which answers it believes
    lease            what a claim holds, and its grant in the jurisdiction

Imports go downward: `claims` imports `claim`, which imports the others; `join_requests` imports
`lease`. `claim` also imports `handover`, `hierarchy.parent` and `subscriptions.owner`.
"""
