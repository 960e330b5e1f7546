"""Subscriptions at an owner: answers, and handover (§6, §5.4). `sessions.subscription_store` stores them.

    subscriptions    handles SUBSCRIBE and UNSUBSCRIBE; restores, hands over and ends subscriptions
    announcements    unsolicited SUBACKs to the subscribers of a subtree that moved, a few at a time
    suback_packets   SUBACKs in parts that each fit a datagram (§6.1)

`subscriptions` imports `announcements` and `suback_packets`, and `sessions.session_table`. All three import
`sessions` or `ownership`.
"""
