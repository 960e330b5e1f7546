"""The client API over real sockets."""
