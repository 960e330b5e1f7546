"""What must hold of messages, checked after each step of a run.

    deliveries                         every message, subscription and session: calls the others
    pending_deliveries                 acknowledged messages that a subscriber receives later
    message_totals                     the counters add up, and each message was accepted once
    losses, expiries                   what may be missing, because a queue is full or a message expires
    sharing, retention, wills          shared subscriptions; retained messages; will messages
    paces                              slow subscribers
    absences, ended_leases, successions     offline sessions; owners without a lease; owners that died
    applications                       what each client process asked for and received

Imports go downwards, to `applications`. Outside of the package: `hosts`, `invariants`, `world`.
"""
