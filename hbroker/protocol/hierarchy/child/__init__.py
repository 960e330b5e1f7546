"""A node as a child: claims, JOIN, leases and renewals (§5.1, §5.6).

    subtree_claims   all claims of the node, from its settings and from orders (§5.7)
    subtree_claim    one claim: asks, takes the subtree over, renews, hands back
    claim_states     the states of a claim, and the transitions between them
    join_requests    the JOINs of a claim, and which answers it believes
    lease            what a claim holds, and its grant in the jurisdiction

Imports go downward: `subtree_claims` imports `subtree_claim`, which imports the others; `join_requests`
imports `lease`. `subtree_claim` also imports `handover`, `hierarchy.parent` and `subscriptions.owner`.
"""
