"""Subscriptions at an owner: answers, and handover (§6, §5.4). `sessions.subscription_store` stores them.

    subscriptions    handles SUBSCRIBE and UNSUBSCRIBE; restores, hands over, announces and ends subscriptions
    suback_packets   SUBACKs in parts that each fit a datagram (§6.1)

`subscriptions` imports `suback_packets` and `sessions.session_table`. Both import `sessions` or `ownership`.
"""
