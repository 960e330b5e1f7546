"""Wills, at the client and at the owner (§6.6).

    client_will     at the client: registers the will with the owner of its topic, again after each loss
    session_wills   at the owner: keeps the wills of sessions, and publishes those that are due

The two do not import each other. `client_will` uses `resolution` to find the owner, and `sessions.options`.
`session_wills` imports `handover.recovery`, `ownership.jurisdiction` and `sessions.session_table`. A handover
moves the wills of a subtree: `session_wills` is a `HandoverParticipant` of
`handover.subtree_state`.
"""
