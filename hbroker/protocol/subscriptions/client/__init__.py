"""A client's subscriptions: discovery, SUBSCRIBE at each owner, and their ends (§6.1 to §6.3)."""
