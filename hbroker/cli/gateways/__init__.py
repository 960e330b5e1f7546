"""Commands for gateways and their MQTT clients.

    gateway    `hbroker gateway`: runs one gateway
    clients    `hbroker clients`: lists the MQTT clients of all gateways
    kick       `hbroker kick`: disconnects an MQTT client
    passwd     `hbroker passwd`: sets passwords in a file
    requests   asks all gateways of a network

`clients` and `kick` import `requests`; `gateway` and `passwd` import no other module of this package.
"""
