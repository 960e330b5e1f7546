"""Messages that are published, received and retained. Owners decide whether the caller may."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, suppress
from http import HTTPStatus
from typing import Annotated, Final, Literal

from litestar import Controller, get, post
from litestar.datastructures import State
from litestar.params import Parameter
from litestar.response import ServerSentEvent, ServerSentEventMessage

from hbroker._native import Message
from hbroker.errors import HBrokerError
from hbroker.http_api.context import PING_S, ApiContext, context_of
from hbroker.http_api.middleware.authentication import ApiRequest
from hbroker.http_api.models.messages import Publication, Published, ReceivedMessage, Topic
from hbroker.http_api.paging import Cursor, Limit, Page, page_of
from hbroker.http_api.problems import Refusal, refusals
from hbroker.protocol.packets import Reason
from hbroker.runtime.client.subscription import Subscription

__all__ = ["MessageRoutes"]

Filter = Annotated[
    str, Parameter(min_length=1, max_length=4_096, description="a topic filter: home/+/oven/#")
]
_OF_NETWORK: Final = refusals(
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_MOST_RETAINED: Final = 10_000
_QUIET_S: Final = 0.3
"""Nothing marks the last retained message. When none has arrived for this time, all are known. Messages that
are not retained may come all the time."""
_QUEUE: Final = 1_000


class MessageRoutes(Controller):
    """`/messages`, `/retained`."""

    tags = ("messages",)

    @post("/messages", responses=_OF_NETWORK)
    async def publish_message(self, request: ApiRequest, state: State, data: Publication) -> Published:
        """Publishes a message. At QoS 1 and 2 it answers when the message is distributed: connected
        subscribers have it, and for the others it is on disk."""
        async with context_of(state).callers.of(request.user) as client:
            receipt = await client.publish(
                data.topic,
                data.content,
                qos=data.qos,
                retain=data.retain,
                expiry_s=data.expiry_s,
                content_type=data.content_type,
                response_topic=data.response_topic,
                user_properties=data.user_properties,
            )
        reason = receipt.reason
        heard = None if reason is None else reason != Reason.REASON_NO_MATCHING_SUBSCRIBERS
        return Published(topic=data.topic, qos=data.qos, subscribers=heard)

    @get("/messages", responses=_OF_NETWORK, media_type="text/event-stream")
    async def follow_messages(
        self,
        request: ApiRequest,
        state: State,
        filter: Filter,
        qos: Literal[0, 1, 2] = 1,
        retained: bool = True,
    ) -> ServerSentEvent:
        """The messages of a filter as they come, as server-sent events `message`. The subscription ends with
        the connection: what comes between two connections is not sent. `retained`: with the retained
        messages first."""
        stack = AsyncExitStack()
        try:
            client = await stack.enter_async_context(context_of(state).callers.of(request.user))
            options = client.subscribe(filter, qos=qos, queue=_QUEUE, retain_handling=0 if retained else 2)
            messages = await stack.enter_async_context(options)
        except BaseException:
            await stack.aclose()
            raise
        return ServerSentEvent(_as_sent(context_of(state), stack, messages))

    @get("/retained", responses=_OF_NETWORK)
    async def list_retained(
        self,
        request: ApiRequest,
        state: State,
        filter: Filter = "#",
        limit: Limit = 100,
        cursor: Cursor = None,
    ) -> Page[ReceivedMessage]:
        """The retained messages of a filter, by topic. If there are over 10,000, the filter has to be a
        narrower one."""
        async with (
            context_of(state).callers.of(request.user) as client,
            client.subscribe(filter, qos=1, queue=_QUEUE) as messages,
        ):
            found = await _retained(messages)
        page = page_of(found, lambda each: each.topic, limit, cursor)
        return Page(items=[_received(each) for each in page.items], next=page.next)

    @post("/retained/clear", status_code=HTTPStatus.OK, responses=_OF_NETWORK)
    async def clear_retained(self, request: ApiRequest, state: State, data: Topic) -> Published:
        """Deletes the retained message of a topic (MQTT 5 §3.3.1.3)."""
        async with context_of(state).callers.of(request.user) as client:
            await client.publish(data.topic, b"", qos=1, retain=True)
        return Published(topic=data.topic, qos=1, subscribers=None)


async def _retained(messages: Subscription) -> Iterable[Message]:
    """The retained messages of a subscription that was made just now. Raises Refusal if there are too
    many."""
    found: dict[str, Message] = {}
    loop = asyncio.get_running_loop()
    end = loop.time() + _QUIET_S
    while (left := end - loop.time()) > 0 and (message := await messages.next(left)) is not None:
        if message.retained:
            found[message.topic] = message
            end = loop.time() + _QUIET_S
        if len(found) > _MOST_RETAINED:
            text = f"over {_MOST_RETAINED:,} retained messages match: give a narrower filter"
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, text)
    return found.values()


async def _as_sent(
    context: ApiContext, stack: AsyncExitStack, messages: Subscription
) -> AsyncIterator[ServerSentEventMessage]:
    async with stack:
        while not context.is_ending:
            try:
                message = await messages.next(PING_S)
            except HBrokerError as error:
                yield ServerSentEventMessage(event="error", data=str(error))
                return
            if message is None:
                yield ServerSentEventMessage(comment="waiting")
            else:
                yield ServerSentEventMessage(event="message", data=_received(message).model_dump_json())


def _received(message: Message) -> ReceivedMessage:
    text: str | None = None
    with suppress(UnicodeDecodeError):
        text = bytes(message.payload).decode()
    return ReceivedMessage(
        topic=message.topic,
        payload=text,
        payload_base64=base64.b64encode(message.payload).decode() if text is None else None,
        qos=message.qos,
        retain=message.retain,
        content_type=message.content_type,
        user_properties=list(message.user_properties),
    )
