"""Addresses as users write them."""

from __future__ import annotations

import pytest

from hbroker.runtime.address import listen_for, parse_place, resolve


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("house", ("house", 7700)),
        ("house:1", ("house", 1)),
        ("10.0.0.1:7701", ("10.0.0.1", 7701)),
        ("[::1]:7701", ("::1", 7701)),
        ("[::1]", ("::1", 7700)),
        ("::1", ("::1", 7700)),
        (("h", 9), ("h", 9)),
    ],
)
def test_addresses_are_parsed_with_the_default_port(
    text: str | tuple[str, int], place: tuple[str, int]
) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize("text", ["", ":7700", "h:x", "h:-1", "h:65536", "h:٣", ("", 1), ("h", -1), "[::1]x"])
def test_invalid_addresses_are_refused(text: str | tuple[str, int]) -> None:
    with pytest.raises(ValueError, match="not an address"):
        parse_place(text)


def test_without_an_address_the_environment_and_then_localhost_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HBROKER_ROOT", raising=False)
    assert parse_place(None) == ("127.0.0.1", 7700)
    monkeypatch.setenv("HBROKER_ROOT", "house:99")
    assert parse_place(None) == ("house", 99)


def test_the_socket_has_the_address_family_of_the_root() -> None:
    assert resolve("127.0.0.1", 5) == ("127.0.0.1", 5)
    assert listen_for(("127.0.0.1", 5)) == ("0.0.0.0", 0)
    assert listen_for(("::1", 5)) == ("::", 0)
