"""Sections `connection` of mosquitto.conf, converted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hbroker.config import BridgeSettings, BridgeTls, BridgeTopic, Direction
from hbroker.errors import ConfigError
from hbroker.mosquitto.conversion import Conversion
from hbroker.mosquitto.outcome import Fate
from hbroker.topology import parse
from tests.mosquitto.test_conversion import conversion_of

ROOT = ("127.0.0.1", 7700)
FULL = """
listener 1883 127.0.0.1
allow_anonymous true

connection cloud bridge
addresses broker.example.org:8883 192.0.2.1
topic # both 2 site/7/ s7/
topic up/+ out
topic "" in 1 here there
remote_clientid site-7
remote_username site
remote_password a secret
cleansession true
keepalive_interval 1
restart_timeout 10 40
notifications_local_only true
bridge_protocol_version mqttv50
bridge_cafile /tls/ca.pem
bridge_certfile /tls/site.pem
bridge_keyfile /tls/site.key
bridge_insecure true
start_type automatic
try_private true

connection plain
address 192.0.2.1
topic # out 0
restart_timeout 7
"""


def bridges(conversion: Conversion) -> tuple[BridgeSettings, ...]:
    """The bridges of the topology file, which must be valid."""
    return parse(conversion.files[conversion.topology], file="/etc/site.yaml").bridges


def missing(conversion: Conversion) -> dict[str, str]:
    """The options that were not converted, and why."""
    return {o.option: o.text for o in conversion.report.outcomes if o.fate is Fate.MISSING}


def test_a_bridge_is_converted_completely(tmp_path: Path) -> None:
    made = conversion_of(tmp_path, FULL)
    cloud, plain = bridges(made)
    assert cloud == BridgeSettings(
        name="cloud-bridge",
        root=ROOT,
        addresses=(("broker.example.org", 8883), ("192.0.2.1", 1883)),
        topics=(
            BridgeTopic("#", Direction.BOTH, 1, "site/7/", "s7/"),
            BridgeTopic("up/+", Direction.OUT, 0),
            BridgeTopic("", Direction.IN, 1, "here", "there"),
        ),
        client_id="site-7",
        username="site",
        password_file="/etc/cloud-bridge.password",
        tls=BridgeTls("/tls/ca.pem", "/tls/site.pem", "/tls/site.key", checks_host=False),
        keep_alive=5,
        clean_start=True,
        version="5",
        notifies="local",
        pause=10,
        longest_pause=40,
    )
    assert (plain.pause, plain.longest_pause) == (7, 7)
    assert made.files["cloud-bridge.password"] == "a secret\n"
    assert "a secret" not in str(made.report)
    assert list(missing(made)) == ["topic"]
    assert "twice" in missing(made)["topic"]
    assert not [o for o in made.report.outcomes if o.fate is Fate.UNKNOWN]


def test_without_the_keys_of_its_encryption_a_bridge_is_left_out(tmp_path: Path) -> None:
    text = "connection c\naddress a\ntopic # out\nbridge_identity x\nbridge_psk 00\n"
    made = conversion_of(tmp_path, text)
    assert bridges(made) == ()
    assert set(missing(made)) == {"connection", "address", "topic", "bridge_identity", "bridge_psk"}


def test_topics_of_the_network_itself_are_left_out(tmp_path: Path) -> None:
    made = conversion_of(tmp_path, "connection c\naddress a\ntopic $SYS/# in\ntopic x in 0 a/ $SYS/broker/\n")
    (bridge,) = bridges(made)
    assert [topic.remote for topic in bridge.topics] == ["$SYS/broker/x"]
    assert "belong to the network" in missing(made)["topic"]


def test_two_bridges_of_one_name_get_two(tmp_path: Path) -> None:
    made = conversion_of(
        tmp_path, "connection root\naddress a\ntopic x\nconnection root\naddress a\ntopic y\n"
    )
    assert [bridge.name for bridge in bridges(made)] == ["root-2", "root-3"]


@pytest.mark.parametrize(
    ("lines", "option"),
    [
        ("start_type lazy", "start_type"),
        ("round_robin true", "round_robin"),
        ("local_username x", "local_username"),
        ("local_cleansession true", "local_cleansession"),
        ("remote_clientid a/b", "remote_clientid"),
        ("bridge_capath /etc/ssl", "bridge_capath"),
        ("password x", "password"),
        ("notification_topic x", "notification_topic"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, lines: str, option: str) -> None:
    made = conversion_of(tmp_path, f"connection c\naddress a\ntopic x\n{lines}\n")
    assert list(missing(made)) == [option]
    assert len(bridges(made)) == 1


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("topic x", "site.conf:1: the bridge has no address"),
        ("address a:b\ntopic x", "site.conf:2: not an address"),
        ("address a\ntopic x up", "site.conf:3: this is not a topic"),
        ("address a\ntopic x\nbridge_protocol_version 5", "site.conf:4: '5' is not a version"),
        ("address a\ntopic x\nrestart_timeout soon", "site.conf:4: 'soon' are not seconds"),
    ],
)
def test_an_error_names_the_line(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        conversion_of(tmp_path, f"connection c\n{lines}\n")


def test_outside_of_a_connection_its_options_are_unknown(tmp_path: Path) -> None:
    made = conversion_of(tmp_path, "keepalive_interval 5\n")
    outcomes: list[Any] = made.report.outcomes
    assert [outcome.fate for outcome in outcomes] == [Fate.UNKNOWN]
