"""What requests and responses contain, as JSON. Times are seconds, and `_at` are times of ISO 8601 in UTC.

network     the network as a whole, its nodes and subtrees, and what happens in it
clients     sessions at nodes, MQTT clients of gateways, and gateways
messages    messages that are published, received and retained
orders      moves of subtrees, and nodes that leave
plans       several moves, and the load that is expected of each node then
tokens      tokens, and what they allow
workspaces  workspaces, and what they use
"""
