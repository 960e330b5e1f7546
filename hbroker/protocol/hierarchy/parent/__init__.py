"""A node as a parent: admission, delegations, and their leases (§5.1, §5.6).

    join_responder   answers every JOIN: forwards it, refuses it, invites, or grants
    delegations      all delegated subtrees: handovers, renewals, taking back
    delegation       one of them, and its states

Imports go downward: `join_responder` imports `delegations`, which imports `delegation`, `handover` and
`subscriptions.owner`. Both import `ownership.jurisdiction`. Nothing here imports `hierarchy.child`.
"""
