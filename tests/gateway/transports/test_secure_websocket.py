"""WebSocket over TLS: the opening handshake, and frames in pieces of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.gateway.transports.certificates import Authority
from tests.gateway.transports.frames import BINARY, CONTINUATION, TEXT, Framed, frame
from tests.gateway.transports.front import Client, Front, flood
from tests.gateway_native.wire import CONNACK, PINGRESP, SUBACK, connect, publish, subscribe

PINGREQ = b"\xc0\x00"
MIB = 1 << 20


@pytest.fixture
def dial(front: Front, authority: Authority) -> Iterator[Callable[..., Framed]]:
    """Opens a WebSocket over TLS."""
    with ExitStack() as stack:

        def begin(**fields: str) -> Framed:
            framed = Framed(front.secure("wss", authority.context()), **fields)
            stack.callback(framed.close)
            return framed

        yield begin


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [("mqtt", "mqtt"), ("mqttv3.1", "mqttv3.1"), ("chat, mqttv3.1 , mqtt", "mqtt")],
)
@pytest.mark.parametrize("level", [3, 4, 5])
def test_the_subprotocol_is_negotiated(
    dial: Callable[..., Framed], name: str, offered: str, chosen: str, level: int
) -> None:
    framed = dial(subprotocols=offered)
    assert (framed.status, framed.headers["sec-websocket-protocol"]) == (101, chosen)
    Client(framed, level=level).open(name)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"path": "/other"}, 404),
        ({"path": "/mqtt/"}, 404),
        ({"subprotocols": ""}, 400),
        ({"subprotocols": "amqp"}, 400),
    ],
)
def test_an_unknown_path_or_subprotocol_is_refused(
    dial: Callable[..., Framed], fields: dict[str, str], status: int
) -> None:
    framed = dial(**fields)
    assert framed.status == status
    assert framed.recv(1) == b"", "and then it is closed"


def test_a_query_in_the_path_is_ignored(dial: Callable[..., Framed], name: str) -> None:
    Client(dial(path="/mqtt?token=1")).open(name)


@pytest.mark.parametrize("piece", [1, 3, 1_000])
def test_packets_are_read_from_frames_in_any_pieces(
    dial: Callable[..., Framed], name: str, piece: int
) -> None:
    """CONNECT, SUBSCRIBE and PINGREQ as one stream, cut into fragments, frames and TLS records of any
    size."""
    framed = dial()
    topic = f"public/{name}"
    stream = connect(name) + subscribe(1, (topic, 0)) + PINGREQ
    cuts = [stream[at : at + piece] for at in range(0, len(stream), piece)]
    frames = [frame(cuts[0], BINARY, is_final=len(cuts) == 1)]
    frames += [frame(cut, CONTINUATION, is_final=False) for cut in cuts[1:-1]]
    frames += [frame(cuts[-1], CONTINUATION)] if len(cuts) > 1 else []
    wire = b"".join(frames)
    for at in range(0, len(wire), piece):
        framed.below.sendall(wire[at : at + piece])
    client = Client(framed)
    assert client.expect(CONNACK)[1] == 0
    answers = sorted(client.read()[0] >> 4 for _ in range(2))
    assert answers == [SUBACK, PINGRESP]
    # Many frames in one TLS record, some of them empty.
    framed.below.sendall(b"".join(frame(PINGREQ[:1]) + frame(b"") + frame(PINGREQ[1:]) for _ in range(50)))
    assert [client.read()[0] >> 4 for _ in range(50)] == [PINGRESP] * 50


def test_a_text_frame_is_refused(dial: Callable[..., Framed], name: str) -> None:
    framed = dial()
    framed.below.sendall(frame(connect(name), TEXT))
    assert framed.recv(1) == b""


def test_a_large_frame_before_connect_is_not_buffered(
    front: Front, dial: Callable[..., Framed], name: str
) -> None:
    """Before CONNECT a gateway buffers at most 64 KiB of a client, in one frame or in many."""
    before = front.own_bytes()
    framed = dial()
    head = frame(b"", declares=200 * MIB)
    framed.below.sendall(head)
    with pytest.raises(OSError, match=r"reset|EOF|Broken pipe|closed"):
        flood(framed.below, bytes(MIB), 64 * MIB)
    assert front.own_bytes() - before < 8 * MIB
    client = Client(dial())
    client.open(name)
    client.send(publish("public/large", bytes(2 * MIB)) + PINGREQ)
    client.expect(PINGRESP)
