"""The native half of a gateway, over real sockets, with a node and the least of decisions in the tests."""
