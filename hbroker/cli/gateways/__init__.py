"""Commands for gateways: gateway, clients, kick, passwd."""
