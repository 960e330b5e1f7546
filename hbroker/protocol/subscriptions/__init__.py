"""Subscriptions, at the client and at the owner (§6).

    client   discovery, SUBSCRIBE at each owner, UNSUBSCRIBE
    owner    what a node answers, stores, and hands over
    shared   `$share/group/filter` as users write it, and as it travels

`client` and `owner` do not import each other; both import `shared`. `client` uses `resolution` for its
requests and caches. `owner` imports `hierarchy.jurisdiction`, `sessions.sessions` and
`handover.announcements`. It is imported by `sessions`, `handover`, `hierarchy.parent` and `hierarchy.child`,
most of which need only `owner.store`.
"""
