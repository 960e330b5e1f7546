"""A node as a parent: admission, delegations, and their leases (§5.1, §5.6).

    join_responder   answers every JOIN: forwards it, refuses it, invites, or grants
    delegations      all delegated subtrees and their states: handovers, renewals, taking back

Imports go downward: `join_responder` imports `delegations`, which imports `handover` and
`subscriptions.owner`. Both import `ownership.jurisdiction`. Nothing here imports `hierarchy.child`.
"""
