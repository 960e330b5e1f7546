"""MQTT clients that others have written, against each other and against our own, over two gateways."""
