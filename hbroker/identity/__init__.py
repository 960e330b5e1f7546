"""Certificates: the authority of a network, and the nodes that it names (ADR 35; RFC 5280).

    rotation        replaces the authority by another one
    revoked_file    the list of revoked tokens as a file
    authority       the network's CA: signs and verifies certificates of nodes
    revocation_list the revoked tokens of one authority
    node_identity   what a node proves itself with: its certificate chain and its private key
    pem_files       certificates and private keys as files (RFC 7468)
    certificate     reads the certificate of a node: its name, the subtrees that it may own
    subtree_uri     a subtree as a URI in a certificate

Each module imports only modules that are listed below it, and of hbroker only `errors`, `config`, `subtree`
and `storage.disk`. Nothing here reads a clock: `now` is an argument, in seconds since the Unix epoch. All
keys are Ed25519 (RFC 8410).

The identities of nodes need a folder of their own. Beside other files, the key of a node called `join` or
`authority` would replace `join.key` or `authority.key`.
"""
