"""Command lines, formats and properties, without a network."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from click import UsageError
from hypothesis import given
from hypothesis import strategies as st

from hbroker.clients import hpub, hsub
from hbroker.clients.console import Program
from hbroker.clients.flags import Flag, Values, whole
from hbroker.clients.formatting import compile_format, payload_only, topic_and_payload
from hbroker.clients.options import SHARED, client_id, target
from hbroker.clients.properties import PROPERTY, Property, publish_properties
from hbroker.clients.received import Received
from hbroker.clients.sessions import connection_of


@dataclass(frozen=True)
class Message:
    """Has the fields of `hbroker.Message`, which only the network makes."""

    topic: str = "a/b"
    payload: bytes = b"hello"
    qos: int = 0
    expiry_s: int | None = None
    content_type: str = ""
    payload_format: int | None = None
    response_topic: str = ""
    correlation_data: bytes = b""
    user_properties: list[tuple[str, str]] = field(default_factory=list)


def received(**values: object) -> Received:
    return Received(Message(**values), False, 0, 1_500_000_000_123_456_789)  # type: ignore[arg-type]


def read(*arguments: str, flags: Sequence[Flag[Any]] = (*SHARED, PROPERTY)) -> Values:
    values = Program("test", "", flags, lambda _: 0).make_context("test", [*arguments])
    assert isinstance(values, Values)
    return values


@given(st.binary(max_size=40), st.text(max_size=40).filter(lambda text: not re.search(r"[%@\\]", text)))
def test_a_format_keeps_text_and_payload_exact(payload: bytes, text: str) -> None:
    render = compile_format(text + "%p" + text)
    encoded = text.encode("utf-8", "surrogateescape")
    assert render(received(payload=payload)) == encoded + payload + encoded


@given(st.text(alphabet="%@\\-0159.tplxXjJIUNnea Y", max_size=12))
def test_a_format_renders_or_raises_a_usage_error(form: str) -> None:
    try:
        render = compile_format(form)
    except UsageError:
        return
    assert isinstance(render(received(payload=b"1")), bytes)


@given(st.integers(1, 60), st.binary(max_size=70))
def test_a_width_is_a_minimum(width: int, payload: bytes) -> None:
    right, left = compile_format(f"%{width}p"), compile_format(f"%-{width}p")
    assert right(received(payload=payload)) == payload.rjust(width)
    assert left(received(payload=payload)) == payload.ljust(width)


def test_time_sequences_show_the_time_of_the_message() -> None:
    made = compile_format("%U|@N|@s")(received()).decode()
    assert made == "1500000000.123456789|123456789|1500000000"
    expected = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(1_500_000_000))
    assert compile_format("%I")(received()).decode() == expected
    assert expected[:-5] + ".123456" + expected[-5:] in compile_format("%j")(received()).decode()


def test_a_payload_that_is_not_text_is_encoded_as_json() -> None:
    assert '"payload":"a\ufffdb\\u0000"' in compile_format("%j")(received(payload=b"a\xffb\0")).decode()


@pytest.mark.parametrize("payload", [b"{", b"NaN", b"\xff", b"[" * 100_000, b"1 2"])
def test_a_payload_that_is_not_json_raises(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"not valid JSON on topic a/b\."):
        compile_format("%J")(received(payload=payload))


def test_plain_output_is_the_payload_or_the_topic_and_the_payload() -> None:
    assert payload_only(received(payload=b"\0\xff")) == b"\0\xff"
    assert topic_and_payload(received(topic="é", payload=b"x")) == "é x".encode()
    assert topic_and_payload(received(payload=b"")) == b"a/b (null)"


@given(st.lists(st.text(max_size=5), max_size=8))
def test_parsing_returns_values_or_raises_a_usage_error(arguments: list[str]) -> None:
    try:
        values = read(*arguments)
    except UsageError:
        return
    assert isinstance(values, Values)


@given(st.text(max_size=20))
def test_any_text_is_accepted_as_an_argument(text: str) -> None:
    flag = Flag[str]("-m", "--message", argument="message", type=str)
    assert read("-m", text, flags=(flag,))[flag] == text


def test_the_last_occurrence_of_a_flag_counts_and_all_are_available() -> None:
    last = Flag[str]("-t", argument="topic", type=str)
    every = Flag[tuple[str, ...]]("-T", "--every", argument="topic", type=str, multiple=True, default=())
    switch = Flag[bool]("-r")
    values = read("-t", "a", "-T", "a", "-t", "b", "-T", "b", flags=(last, every, switch))
    assert (values[last], values[every], values[switch]) == ("b", ("a", "b"), False)


@pytest.mark.parametrize("text", ["", "-", "1_0", "٣", "+1", " 1", "1.0", "9" * 40])
def test_only_plain_decimal_numbers_are_accepted(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        whole()(text)


@pytest.mark.parametrize(
    ("environment", "arguments", "expected"),
    [
        (None, (), ("127.0.0.1", 7700)),
        (None, ("-p", "9000"), ("127.0.0.1", 9000)),
        (None, ("-h", "broker"), ("broker", 7700)),
        ("house:9001", (), ("house", 9001)),
        ("house:9001", ("-p", "9002"), ("house", 9002)),
        ("house:9001", ("-h", "other"), ("other", 7700)),
        (None, ("-h", "::1", "-p", "1"), ("::1", 1)),
        (None, ("-L", "mqtt://house:9003/a/b"), ("house", 9003)),
        (None, ("-L", "hbroker://house/a"), ("house", 7700)),
        (None, ("-L", "hbroker://[::1]:9004/a"), ("::1", 9004)),
    ],
)
def test_flags_have_precedence_over_the_environment_and_the_default(
    monkeypatch: pytest.MonkeyPatch, environment: str | None, arguments: tuple[str, ...], expected: object
) -> None:
    if environment is None:
        monkeypatch.delenv("HBROKER_ROOT", raising=False)
    else:
        monkeypatch.setenv("HBROKER_ROOT", environment)
    assert target(read(*arguments)) == expected


def test_the_client_id_is_given_or_made_from_a_prefix() -> None:
    assert client_id(read()) is None
    assert client_id(read("-i", "lamp")) == "lamp"
    assert re.fullmatch(r"lamp\d+", client_id(read("-I", "lamp")) or "")


def test_mqtt_properties_become_arguments() -> None:
    line = ("-D", "publish", "content-type", "text/plain", "-D", "PUBLISH", "user-property", "k", "v")
    assert publish_properties(read(*line)[PROPERTY]) == {
        "content_type": "text/plain",
        "user_properties": (("k", "v"),),
    }
    assert publish_properties([Property("correlation-data", "\udcff")]) == {"correlation_data": b"\xff"}


@pytest.mark.parametrize(
    "line",
    [
        ("publish", "message-expiry-interval", "-1"),
        ("publish", "message-expiry-interval", "4294967296"),
        ("publish", "payload-format-indicator", "2"),
        ("publish", "topic-alias", "3"),
        ("connect", "user-property", "a", "b"),
    ],
)
def test_properties_that_cannot_be_sent_are_refused(line: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        publish_properties(read("-D", *line)[PROPERTY])


@pytest.mark.parametrize("main", [hpub.main, hsub.main])
def test_flags_without_a_meaning_are_refused_with_a_reason(
    main: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(main)
    assert main(["-t", "a", "--capath", "x"]) == 1
    said = "Option '--capath' is not supported: datagrams are sealed with keys of their own: see --cafile."
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("main", [hpub.main, hsub.main])
def test_help_and_version_are_printed(main: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(main)
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 100 for line in shown.splitlines())
    assert "-t, --topic" in shown
    assert main(["--version"]) == 0
    assert re.fullmatch(r"h[ps]ub \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize("flags", [hpub.FLAGS, hsub.FLAGS])
def test_files_of_the_authority_and_of_the_token_are_passed_on(flags: Sequence[Flag[Any]]) -> None:
    connection = connection_of(read("--cafile", "home.crt", "--token", "oven.token", flags=flags), clean=True)
    assert (connection["authority"], connection["token"]) == ("home.crt", "oven.token")
    connection = connection_of(read(flags=flags), clean=True)
    assert (connection["authority"], connection["token"]) == (None, None)
    with pytest.raises(UsageError, match="--token argument given but no file specified"):
        read("--token", "", flags=flags)
