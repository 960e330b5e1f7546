"""Third-party MQTT clients with each other and with hpub and hsub, over two gateways."""
