"""Look-ups: which node owns a topic (§5.2, §5.3).

At the client:

    resolver   all look-ups of one client: topics in, zones into the native core out
    caches     what clients behind one address share about nodes: owners and answers
    requests   requests outside of a session: tokens, repeats, answers (§4.1)

At a node:

    responder   answers PUBCONNECT, or forwards it

Imports go downward: `resolver` imports `caches` and `requests`, and `caches` imports `requests`. Of the
other packages only `responder` imports one: `ownership`.
"""
