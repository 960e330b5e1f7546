"""A bridge: a process that carries messages between this network and another MQTT broker (docs/bridges.md).

    process     the process of one bridge: connects both sides, again and again, until it is told to end
    transfer    carries messages in both directions over two connections, until one of them fails
    remote      the connection to the other broker, by paho-mqtt
    topics      which topic of one side is which of the other
    backoff     how long the bridge waits before it connects again
    files       checks the files of bridges before a start

A message is acknowledged to the side that it comes from when the other side has acknowledged it. So no
message of QoS 1 is lost when the bridge, the other broker or an owner is killed. It may arrive twice.
"""
