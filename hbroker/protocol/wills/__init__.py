"""Will messages, at the client that leaves one and at the node that publishes it."""
