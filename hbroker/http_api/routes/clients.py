"""Sessions at nodes, MQTT clients, gateways."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from operator import itemgetter
from typing import Any, Final, Literal

from litestar import Controller, get, post
from litestar.datastructures import State

from hbroker.gateway.admin_requests import CLIENTS, KICK
from hbroker.gateway.native_api import SubscribeOptions
from hbroker.gateway.records.session_records import SessionSubscription
from hbroker.http_api.context import context_of
from hbroker.http_api.middleware.authentication import ApiRequest, Caller, may_change, may_read
from hbroker.http_api.models.clients import (
    ClientName,
    Disconnected,
    Gateway,
    MqttClient,
    MqttClients,
    MqttSession,
    NewMqttSession,
    NewSession,
    Session,
    SessionEnded,
    SessionMade,
    SubscriptionOptions,
)
from hbroker.http_api.paging import Cursor, Limit, Page, page_of
from hbroker.http_api.problems import Refusal, refusals
from hbroker.operations.gateway_requests import ask_gateways, present_gateways
from hbroker.operations.live_network import LiveNetwork
from hbroker.operations.mqtt_sessions import SessionState
from hbroker.protocol.subscriptions import shared
from hbroker.runtime.client.async_client import Client
from hbroker.workspace import Workspace

__all__ = ["ClientRoutes", "SessionRoutes"]

InState = Literal["connected", "stalled", "offline"]
_REFUSALS: Final = refusals(HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_OF_NETWORK: Final = _REFUSALS | refusals(
    HTTPStatus.CONFLICT,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_OF_SESSION: Final = _OF_NETWORK | refusals(HTTPStatus.NOT_FOUND)


class SessionRoutes(Controller):
    """`/sessions`."""

    path = "/sessions"
    tags = ("clients",)

    @get("/", guards=[may_read], responses=_REFUSALS)
    async def list_sessions(
        self,
        state: State,
        limit: Limit = 100,
        cursor: Cursor = None,
        node: str | None = None,
        client: str | None = None,
        in_state: InState | None = None,
    ) -> Page[Session]:
        """The sessions at all nodes, by client and node. Of each node these are the 1,000 with the most
        messages queued. Gateways' sessions for MQTT clients have names of their own: `/clients` has those."""
        found = (
            (f"{session.client}\0{of_node}\0{number:06}", session)
            for number, (of_node, listed) in enumerate(context_of(state).live.sessions())
            if node in (None, of_node) and (session := _session(of_node, listed)) is not None
        )
        chosen = (
            each for each in found if client in (None, each[1].client) and in_state in (None, each[1].state)
        )
        page = page_of(chosen, itemgetter(0), limit, cursor)
        return Page(items=[session for _, session in page.items], next=page.next)

    @post("/", responses=_OF_NETWORK)
    async def create_session(self, request: ApiRequest, state: State, data: NewSession) -> SessionMade:
        """Makes a session of a native client, with its subscriptions. From now on its messages of QoS 1 and
        2 wait for the client. The client connects with the same `client_id` and `session_key`, and
        subscribes to the same filters. If it has the session already, the subscriptions are added. If it is
        connected now, the request is refused (409), because it would disconnect the client.

        The caller's token has to allow the subscriptions and the client id."""
        context = context_of(state)
        _require_absent(context.live, data.client_id, request.user)
        connecting = context.access.connect_as(
            request.user.token,
            client_id=data.client_id,
            session_expiry=data.session_expiry,
            session_key=data.session_key,
            acknowledge="handled",  # What waits in the session goes on waiting.
        )
        async with connecting as client:
            owners, existed = await _subscribe(client, data.subscriptions)
        return SessionMade(
            client_id=data.client_id,
            session_expiry=data.session_expiry,
            subscriptions=[each.filter for each in data.subscriptions],
            owners=sorted(owners),
            existed=existed,
        )


class ClientRoutes(Controller):
    """`/clients`, `/gateways`."""

    tags = ("clients",)

    @get("/gateways", guards=[may_read], responses=_OF_NETWORK)
    async def list_gateways(self, state: State, limit: Limit = 100, cursor: Cursor = None) -> Page[Gateway]:
        """The gateways that are present, by name."""
        context = context_of(state)
        key, timeout = context.access.join_key, context.access.timeout
        present, _ = await context.ask(lambda client: present_gateways(client, key, timeout))
        gateways = (
            Gateway(name=each.name, listeners=list(each.listeners), since_us=each.since_us)
            for each in present.values()
        )
        return page_of(gateways, lambda each: each.name, limit, cursor)

    @get("/clients", guards=[may_read], responses=_OF_NETWORK)
    async def list_clients(
        self,
        state: State,
        limit: Limit = 100,
        cursor: Cursor = None,
        gateway: str | None = None,
        in_state: Literal["connected", "offline"] | None = None,
    ) -> MqttClients:
        """The MQTT clients of all gateways, and the sessions of those that are offline, by workspace and
        client id. It asks the gateways."""
        context = context_of(state)
        key, timeout = context.access.join_key, context.access.timeout
        replies = await context.ask(lambda client: ask_gateways(client, key, CLIENTS, timeout=timeout))
        found = (
            MqttClient.model_validate({**entry, "gateway": of_gateway})
            for of_gateway, entries in replies.entries.items()
            for entry in entries
        )
        chosen = (
            each for each in found if gateway in (None, each.gateway) and in_state in (None, each.state)
        )
        page = page_of(
            chosen, lambda each: f"{each.workspace or ''}\0{each.client}\0{each.gateway}", limit, cursor
        )
        return MqttClients(items=page.items, next=page.next, silent=replies.silent)

    @post("/clients", guards=[may_change], responses=_OF_NETWORK)
    async def create_mqtt_session(self, state: State, data: NewMqttSession) -> MqttSession:
        """Makes the session of an MQTT client that is not connected (409 if it is), with its subscriptions.
        From now on its messages of QoS 1 and 2 wait for it. The client gets them when it connects to any
        gateway with Clean Start 0 (before MQTT 5: Clean Session 0). If it has a session, the subscriptions
        are added. Its access rules still decide which of the messages it gets."""
        name, kept = _name_of(data), _kept(data.subscriptions, Workspace(data.workspace or ""))
        found = await context_of(state).change_session(
            lambda sessions: sessions.add_subscriptions(name, data.session_expiry, kept)
        )
        return _mqtt_session(data, found)

    @post("/clients/purge", guards=[may_change], status_code=HTTPStatus.OK, responses=_OF_SESSION)
    async def purge_mqtt_session(self, state: State, data: ClientName) -> MqttSession:
        """Discards all messages that wait for an MQTT client that is not connected (409 if it is). Its
        session and its subscriptions stay."""
        name = _name_of(data)
        found = await context_of(state).change_session(lambda sessions: sessions.purge(name))
        return _mqtt_session(data, found)

    @post("/clients/end-session", guards=[may_change], status_code=HTTPStatus.OK, responses=_OF_SESSION)
    async def end_mqtt_session(self, state: State, data: ClientName) -> SessionEnded:
        """Ends the session of an MQTT client that is not connected (409 if it is), with its subscriptions and
        all that waits for it. Its will is not published."""
        name = _name_of(data)
        await context_of(state).change_session(lambda sessions: sessions.end(name))
        return SessionEnded(client=data.client, workspace=data.workspace or None)

    @post("/clients/disconnect", guards=[may_change], status_code=HTTPStatus.OK, responses=_OF_NETWORK)
    async def disconnect_client(self, state: State, data: ClientName) -> Disconnected:
        """Disconnects an MQTT client, wherever it is connected (MQTT 5: reason 0x98). Its session stays."""
        context = context_of(state)
        name = _name_of(data)
        key, timeout = context.access.join_key, context.access.timeout
        replies = await context.ask(lambda client: ask_gateways(client, key, KICK, name, timeout=timeout))
        had = sorted(
            name for name, entries in replies.entries.items() if any(e.get("kicked") for e in entries)
        )
        return Disconnected(client=data.client, workspace=data.workspace or None, gateways=had)


def _name_of(client: ClientName) -> str:
    """The name of an MQTT client in the network. Raises Refusal."""
    try:
        return Workspace(client.workspace or "").client_name(client.client)
    except ValueError as error:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None


def _kept(subscriptions: Sequence[SubscriptionOptions], workspace: Workspace) -> list[SessionSubscription]:
    """Subscriptions as gateways keep them. Raises Refusal if an MQTT client may not have one of them."""
    kept = []
    for each in subscriptions:
        _, plain = shared.split(each.filter) or ("", None)
        if plain is None or plain.startswith("$") or workspace.absolute(plain) is None:
            text = f"no MQTT client may subscribe to {each.filter[:200]!r}"
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, text)
        if each.no_local and plain != each.filter:
            text = "a shared subscription has no `no_local` (MQTT 5 §3.8.3.1)"
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, text)
        options = SubscribeOptions(each.qos, each.no_local, each.retain_as_published, each.retain_handling)
        kept.append(SessionSubscription(each.filter, options))
    return kept


def _mqtt_session(client: ClientName, found: SessionState) -> MqttSession:
    return MqttSession(
        client=client.client,
        workspace=client.workspace or None,
        session_expiry=found.record.expiry_s,
        subscriptions=[each.filter for each in found.record.subscriptions],
        owners=sorted(found.owners),
        existed=found.existed,
    )


def _require_absent(live: LiveNetwork, client_id: str, caller: Caller) -> None:
    """Raises Refusal if the client is connected, as far as is known."""
    name = Workspace(caller.rights.workspace).client_name(client_id)
    node = next(
        (n for n, each in live.sessions() if each.get("client") == name and each["state"] != "offline"), None
    )
    if node is not None:
        raise Refusal(
            HTTPStatus.CONFLICT, f"the client {client_id} is connected, and has a session at {node}"
        )


async def _subscribe(client: Client, subscriptions: Sequence[SubscriptionOptions]) -> tuple[set[str], bool]:
    """Makes subscriptions that stay in the session. Returns the names of their owners, and whether all of
    them were there before."""
    owners: set[str] = set()
    existed = True
    for each in subscriptions:
        made = await client.subscribe(
            each.filter,
            qos=each.qos,
            no_local=each.no_local,
            retain_as_published=each.retain_as_published,
            retain_handling=each.retain_handling,
        )
        owners.update(made.owners)
        existed &= made.resumed
    return owners, existed


def _session(node: str, listed: dict[str, Any]) -> Session | None:
    """A session, as its node lists it; None: it is listed in another way."""
    try:
        return Session.model_validate({**listed, "node": node})
    except ValueError:
        return None
