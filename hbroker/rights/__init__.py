"""What a client may do, as a token that its network's authority has signed (ADR 36; biscuitsec.org).

    token       makes, narrows, verifies and reads tokens
    wire        a token as protobuf: reads its blocks, refuses all that hbroker's tokens do not have
    verified    the outcome of a verification
    block       one block of a token: rights, a client id, an expiry; writes them as Datalog
    rights      what the holder of a token may do: read and write which topics

Each module imports only modules that are listed below it, and of hbroker only `errors`, `topic_filters`,
`workspace` and the native check of filters. Nothing here reads a clock or a file: `now` is an argument, in
seconds since the Unix epoch. Keys are Ed25519: those of the authority (`hbroker.identity.authority`).
"""
