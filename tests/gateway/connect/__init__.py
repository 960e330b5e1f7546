"""CONNECT at a gateway: acceptance, several at once, takeover, all clients leaving at once; passwords, the
limits on wrong ones, access rules."""
