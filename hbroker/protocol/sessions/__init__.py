"""Sessions and wills, at the client and at the owner (§6.4, §6.6).

At the owner:

    sessions      the sessions of a node's clients: connected, offline, ended
    wills         the wills that a node keeps, and when it publishes them
    takeover      informs a former run of a client that another run has its session

At the client:

    options       the session that a client asks for, and its id
    client_will   registers the client's will with the owner of its topic, again after each loss
    refused       owners that refuse this client a session, and when to try again (§3.6)

`wills` imports `sessions`, `hierarchy` and `handover.recovery`; `sessions` imports
`subscriptions.owner.store`. `client_will` imports `options` and `resolution`, which imports `refused`. The
two sides do not import each other.
"""
