"""Sessions that gateways share."""
