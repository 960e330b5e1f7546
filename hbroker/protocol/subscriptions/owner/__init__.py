"""Subscriptions at an owner: answers, storage, and handover (§6, §5.4).

    subscriptions     handles SUBSCRIBE and UNSUBSCRIBE; restores, hands over and ends subscriptions
    store             the stored subscriptions, by session and by subtree
    filter_index      the subscriptions that may touch a subtree
    wildcard_shapes   bounds where filters have `+` (§6.3)
    suback_packets    SUBACKs in parts that each fit a datagram (§6.1)

Imports go downward: `subscriptions` imports `store` and `suback_packets`; `store` imports `filter_index` and
`wildcard_shapes`. `subscriptions` also imports `sessions.sessions`, which imports `store`.
"""
