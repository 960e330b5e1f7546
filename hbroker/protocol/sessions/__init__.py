"""Sessions and wills, at the client and at the owner (§6.4, §6.6)."""
