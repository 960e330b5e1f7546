"""How a subtree changes its owner with all its state (§5.4), and recovery (§5.8).

    phases          the phases of a handover at the source and at the target; the transfer's pace
    subtree_state   the state of a subtree as records: collected from the participants, and
                    installed there
    recovery        refuses QoS 1 and 2 until the subscribers of a new owner are back

Imports go downward: `phases` imports `subtree_state`, which imports `recovery`. The package
imports `ownership`, `sessions.subscription_store` and `subscriptions.owner`. `hierarchy.parent` and
`hierarchy.child` run the handovers.
"""
