"""Sessions, and the subscriptions that they have, without the packets that make them (§6.4).

At the owner:

    session_table        the sessions of a node's clients: connected, offline, ended
    subscription_store   the stored subscriptions, by session and by subtree
    filter_index         the subscriptions that may touch a subtree
    wildcard_shapes      bounds where filters have `+` (§6.3)
    takeover             informs a former run of a client that another run has its session

At the client:

    options              the session that a client asks for, and its id

`session_table` imports `subscription_store`, which imports `filter_index` and `wildcard_shapes`. This package
imports no other package of `protocol` (`session_table` names a type of `handover`). `subscriptions`,
`handover`, `wills` and `hierarchy` import it.
"""
