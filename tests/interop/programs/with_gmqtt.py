"""A client with gmqtt."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any

import gmqtt
from gmqtt.storage import PersistentStorage

from tests.interop.lines import Message, Place, decode, report_done, report_message
from tests.interop.programs.orders import orders


async def main() -> None:
    """Carries out the orders on standard input."""
    place = Place.read()
    logging.disable(logging.WARNING)
    unanswered = PersistentStorage()
    client = gmqtt.Client(place.client_id, persistent_storage=unanswered)
    subscribed: asyncio.Queue[None] = asyncio.Queue()
    client.on_message = _report
    client.on_subscribe = lambda *_: subscribed.put_nowait(None)
    await client.connect(place.host, place.port, ssl=_tls(place), version=place.version)
    report_done()
    async for order in orders():
        if order["verb"] == "subscribe":
            client.subscribe(order["filter"], order["qos"])
            await subscribed.get()
        else:
            client.publish(
                order["topic"], decode(order["payload"]), qos=order["qos"], retain=order["retained"]
            )
            await unanswered.wait_empty()
        report_done()
    await client.disconnect()


def _tls(place: Place) -> ssl.SSLContext | bool:
    if not place.authority:
        return False
    context = ssl.create_default_context(cafile=place.authority)
    if place.certificate:
        context.load_cert_chain(place.certificate, place.key)
    return context


def _report(_client: gmqtt.Client, topic: str, payload: bytes, qos: int, properties: dict[str, Any]) -> int:
    report_message(Message(topic, payload, qos, bool(properties["retain"])))
    return 0


asyncio.run(main())
