"""Subscriptions, at the client and at the owner (§6).

    client   discovery, SUBSCRIBE at each owner, UNSUBSCRIBE
    owner    SUBSCRIBE and UNSUBSCRIBE at a node: what it answers, makes and hands over
    shared   `$share/group/filter` as users write it, and as it travels

`client` and `owner` do not import each other; both import `shared`. `client` uses `resolution` for its
requests and caches. `owner` imports `ownership` and `sessions`. `handover` and `hierarchy` import `owner`.
"""
