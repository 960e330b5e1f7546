"""CONNECT: passwords, access rules, takeover."""
