"""What happens to each request before its route, in this order.

    rate_limit       how many requests one address may send
    request_origin   requests of other web sites are refused where no tokens are required
    authentication   who calls, and what they may do
    idempotency      a request that is sent again has no second effect

None imports another.
"""
