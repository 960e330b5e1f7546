"""What clients do.

    traffic    the subscriptions and messages of all clients
    sessions   persistent sessions, and the times at which clients are offline
    groups     shared groups
    wills      wills
    queues     the queues of subscribers at owners
    paces      subscribers that read slowly
    expiry     messages that expire

`paces` imports `successions` of `nodes`; no other module imports one of `drawing`.
"""
