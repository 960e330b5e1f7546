"""Third-party MQTT clients with each other and with hpub and hsub, over two gateways (`home`).

    test_matrix         every client with every client, at all QoS
    test_applications, test_mosquitto_bridge, test_secure   what users do: habits, a bridge, TLS
    test_shared_subscriptions, test_subscription_options    what MQTT 5 says, against a model
    disruptions/        a gateway is killed, a subtree moves, a client is away

`clients` is one interface to all of them: each is a process of `programs/`, which speaks `lines`. `peer` is a
paho client in the process of the test.
"""
