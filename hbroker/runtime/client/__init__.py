"""The Python client: connections, publications, subscriptions."""
