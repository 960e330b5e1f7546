"""The Python client: connections, publications, subscriptions (docs/api.md).

    async_client      the asynchronous API: `connect` and `Client`
    client_pool       many clients behind one socket; `pool_driver` runs their control loops
    subscription      the messages of some filters, for the asynchronous client
    dispatcher        one client's endpoint, control, callbacks and inboxes, without asyncio
    inbox             the bounded queue of messages of one subscription
    identity          a client's name, session and will, from the arguments of `connect`
    delivery          the arguments of `subscribe`
    publication       payloads and outcomes of `publish` and `publish_many`
    failure           turns outcomes into exceptions
    admin_request     sends an operator's order to a node

`client_pool` imports `async_client`, which imports `subscription`, which imports `dispatcher`, which imports
`inbox`, `identity`, `publication` and `failure`. `hbroker.sync` builds the blocking API from `dispatcher` and
what is below it. `admin_request` imports `dispatcher` and `identity`.
"""
