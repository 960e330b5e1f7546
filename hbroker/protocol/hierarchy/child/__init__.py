"""A node as a child: claims, JOIN, leases and renewals (§5.1, §5.6).

    requested_subtrees   all claims of the node, from its settings and from orders (§5.7)
    uplink               one claim: asks, takes the subtree over, renews, hands back
    uplink_states        the state machine of a claim
    parent_discovery     a claim's JOINs to the root, and which answers it believes
    join_requests        the JOINs of a claim that wait for an answer
    lease_holder         what a claim holds, and its grant in the jurisdiction
    lease                the lease of a claim, as the child counts it
    context              what all claims of the node share

Imports go downward: `requested_subtrees` imports `uplink`, which imports the others; `parent_discovery`
imports `join_requests` and `lease_holder`, which imports `lease`. `uplink` also imports `handover`, and
`context` imports `hierarchy.parent` and `subscriptions.owner`.
"""
