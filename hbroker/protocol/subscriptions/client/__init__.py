"""A client's subscriptions: discovery, SUBSCRIBE at each owner, and their ends (§6.1 to §6.3).

    subscriptions          all subscriptions of one client, and their listeners
    owners                 discovers, confirms and recovers the owners of all subscriptions
    subscribe_requests     the SUBSCRIBEs within sessions that wait for an answer
    unsubscribe_requests   the UNSUBSCRIBEs that wait for an answer
    subscription           one subscription: its state, and when it is complete
    owner                  one node's part in one subscription
    suback_parts           the parts of a node's answer, and what the answer covers
    listeners              the listeners of one subscription, counted by their options
    options                what the application asks of a subscription

Imports go downward: `subscriptions` imports `owners` and `unsubscribe_requests`; `owners` imports
`subscribe_requests` and `subscription`, which imports `owner` and `listeners`; `owner` imports
`suback_parts`. `owners` also uses `resolution.requests` and `resolution.owner_cache`.
"""
