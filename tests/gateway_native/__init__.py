"""The native half of a gateway, over real sockets, with a node and minimal decisions in the tests."""
