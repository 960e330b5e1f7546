"""The listeners of a gateway, as a process with a root node (`front`): several listeners, TLS, WebSocket, the
PROXY protocol, new certificates while it runs, and guessed passwords (`guesser`).

`certificates` and `frames` are what a client needs for TLS and WebSocket.
"""
