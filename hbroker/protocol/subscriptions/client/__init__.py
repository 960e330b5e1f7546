"""A client's subscriptions: discovery, SUBSCRIBE at each owner, and their ends (§6.1 to §6.3).

    subscriptions   all subscriptions of one client, their listeners, and their ends
    owners          discovers, confirms and recovers the owners of all subscriptions
    subscription    one subscription: its state, each node's part in it, and when it is complete
    options         what the application asks of a subscription, and its listeners

Imports go downward: `subscriptions` imports `owners`, which imports `subscription`, which imports `options`.
`owners` also uses `resolution.requests` and `resolution.caches`.
"""
