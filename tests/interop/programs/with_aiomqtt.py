"""A client with aiomqtt."""

from __future__ import annotations

import asyncio

from aiomqtt import Client, ProtocolVersion, TLSParameters

from tests.interop.lines import Message, Place, decode, report_done, report_message
from tests.interop.programs.orders import orders


async def main() -> None:
    """Carries out the orders on standard input."""
    place = Place.read()
    async with Client(
        place.host,
        place.port,
        identifier=place.client_id,
        protocol=ProtocolVersion(place.version),
        transport="websockets" if place.websocket else "tcp",
        websocket_path="/mqtt" if place.websocket else None,
        tls_params=_tls(place) if place.authority else None,
    ) as client:
        reporting = asyncio.create_task(_report(client))
        report_done()
        async for order in orders():
            if order["verb"] == "subscribe":
                await client.subscribe(order["filter"], order["qos"])
            else:
                await client.publish(
                    order["topic"], decode(order["payload"]), order["qos"], order["retained"]
                )
            report_done()
        reporting.cancel()


def _tls(place: Place) -> TLSParameters:
    return TLSParameters(
        ca_certs=place.authority, certfile=place.certificate or None, keyfile=place.key or None
    )


async def _report(client: Client) -> None:
    async for message in client.messages:
        assert isinstance(message.payload, bytes)
        report_message(Message(message.topic.value, message.payload, message.qos, message.retain))


asyncio.run(main())
