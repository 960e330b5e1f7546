"""Bridges to other MQTT brokers.

test_topics, test_settings   the mapping of topics, and the section `bridges`
test_remote                  brokers that refuse, are silent, or send too much, as a server of the test
test_with_mosquitto          bridges of a network to mosquitto
test_kills                   mosquitto, the bridge and an owner end while messages are carried
"""
