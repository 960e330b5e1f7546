"""What becomes of MQTT clients while a gateway is killed, a subtree moves, or they are offline.

`load` publishes meanwhile.
"""
