"""Sessions that gateways share: claims and records, takeover and expiry, Session Present, wills, the presence
of gateways, and forged records."""
