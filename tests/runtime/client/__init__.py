"""The client API: the asynchronous and the blocking client over a fake endpoint (`client_fakes`), invalid
arguments, sessions, `publish_many`; and client pools over real sockets."""
