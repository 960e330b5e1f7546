"""Look-ups: which node owns a topic (§5.2, §5.3).

At the client:

    resolver            all look-ups of one client: topics in, zones into the native core out
    lookup              the states of one look-up, and its result
    requests            requests outside of a session: tokens, repeats, answers (§4.1)
    answer_cache        answers of owners, shared for some seconds by clients behind one address
    owner_cache         which node seems to serve which subtree, shared likewise

At a node:

    responder           answers PUBCONNECT, or forwards it
    forwarding_limits   how many requests of one host a node forwards (§4.3)

Imports go downward: `resolver` imports `lookup`, `requests`, `owner_cache` and `answer_cache`. `responder`
imports `hierarchy.jurisdiction`. Nothing here imports `subscriptions`.
"""
