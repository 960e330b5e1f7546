"""A client's subscriptions: discovery, SUBSCRIBE at each owner, and their ends (§6.1 to §6.3).

    subscriptions   all subscriptions of one client, their listeners, and their ends
    owners          discovers, confirms and recovers the owners of all subscriptions
    subscription    one subscription: its state, and when it is complete
    owner           one node's part in one subscription, and what the node's answer covers
    options         what the application asks of a subscription, and its listeners

Imports go downward: `subscriptions` imports `owners`, which imports `subscription`, which imports `owner` and
`options`. `owners` also uses `resolution.requests` and `resolution.knowledge`.
"""
