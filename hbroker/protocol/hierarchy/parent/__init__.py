"""A node as a parent: admission, delegations, and their leases (§5.1, §5.6).

    parent        answers every JOIN: forwards it, refuses it, invites, or grants
    admission     whether this node is the parent of a joiner, and why it refuses, without effects
    delegations   all delegated subtrees: handovers, renewals, taking back
    delegation    the state machine of one delegation

Imports go downward: `parent` imports `admission` and `delegations`; `delegations` imports `delegation`,
`handover` and `subscriptions.owner`. All import `ownership.jurisdiction`. Nothing here imports
`hierarchy.child`.
"""
