"""The connections of MQTT clients that this gateway has: a table of values, without behaviour."""
