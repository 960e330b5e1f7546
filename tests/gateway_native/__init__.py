"""The native half of a gateway, over real sockets, with a node and minimal decisions (`gateway_with_node`):
messages, sessions, layers, bounds for one address, guessed passwords. `wire` is a client that sends exactly
what a test says."""
