"""Look-ups: which node owns a topic (§5.2, §5.3).

At the client:

    resolver            all look-ups of one client: topics in, zones into the native core out
    lookup              the states of one look-up
    owner_cache         which node seems to serve which subtree, shared by clients behind one address
    answer_cache        answers of owners, shared likewise for some seconds
    requests            requests outside of a session: tokens, repeats, answers (§4.1)
    session_refusals    owners that refuse this client a session, and when to try again (§3.6)

At a node:

    responder           answers PUBCONNECT, or forwards it
    forwarding_limits   how many requests of one host a node forwards (§4.3)

Imports go downward: `resolver` imports all other modules of the client. `lookup` and `owner_cache` import
`requests`. Of the other packages only `responder` imports one: `ownership`.
"""
