"""Bridges of a network to mosquitto: one for each version of MQTT, each with topics of its own."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hbroker.cli.exits import USAGE
from tests.bridge.site import PATIENCE_S, Site, await_messages, messages_of, publish, site_with
from tests.gateway.transports.certificates import Authority
from tests.interop.peer import connected, fields_of, properties_of
from tests.mosquitto.broker import Mosquitto, free_port
from tests.needs import need_mosquitto
from tests.product.network import PROJECT, environment, hbroker, run_hbroker
from tests.waiting import until

VERSIONS = {"newest": "5", "older": "3.1.1"}


def topics(name: str) -> list[dict[str, Any]]:
    """The topics of a bridge. `shared` is the same on both sides."""
    return [
        {
            "filter": "#",
            "direction": "both",
            "local_prefix": f"home/kitchen/{name}/",
            "remote_prefix": f"site/{name}/",
        },
        {"filter": f"shared/{name}/#", "direction": "both"},
        {"filter": f"down/{name}/#", "direction": "in"},
        {"filter": f"up/{name}/#"},
        {"filter": f"quick/{name}/#", "direction": "both", "qos": 0},
    ]


TLS = """
password_file {users}
listener {port} 127.0.0.1
cafile {authority}
certfile {certificate}
keyfile {key}
require_certificate true
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    need_mosquitto()
    directory = tmp_path_factory.mktemp("site")
    authority, port, users = Authority(directory, "ours"), free_port(), directory / "users"
    server, client = authority.server(), authority.client("bridge")
    users.touch()
    subprocess.run(["mosquitto_passwd", "-b", users, "site", "secret"], check=True)
    (directory / "password").write_text("secret\n")
    (directory / "wrong").write_text("guessed\n")
    more = {"users": users, "port": port, "authority": authority.file, **server.tls}
    broker = Mosquitto(directory, TLS.format(**more))
    broker.start()
    bridges: list[dict[str, Any]] = [
        {"name": name, "client_id": name, "version": version, "topics": topics(name)}
        for name, version in VERSIONS.items()
    ]
    tls = {
        "addresses": [f"127.0.0.1:{port}"],
        "username": "site",
        "tls": {"ca": authority.file, **client.tls},
        "topics": [{"filter": "up/secure"}],
    }
    bridges += [
        {"name": "secure", **tls, "password_file": "password"},
        {"name": "guessing", **tls, "password_file": "wrong"},
        {"name": "unknown", **tls, "password_file": "password", "tls": {"ca": authority.file}},
        {"name": "distrusting", **tls, "password_file": "password", "tls": dict(client.tls)},
    ]
    with site_with(directory, broker, bridges) as site:
        site.await_connected(*VERSIONS)
        yield site


@pytest.mark.parametrize("name", VERSIONS)
def test_messages_are_carried_in_both_directions_once(site: Site, name: str) -> None:
    home, there = f"home/kitchen/{name}", f"site/{name}"
    with (
        connected(site.here(f"{name}-local")) as local,
        connected(site.there(f"{name}-remote")) as remote,
    ):
        for peer in (local, remote):
            peer.subscribe(*((f"{place}/{name}/#", 1) for place in ("shared", "up", "down", "quick")))
        local.subscribe((f"{home}/#", 1))
        remote.subscribe((f"{there}/#", 1))
        publish(local, f"{home}/a", b"from here")
        publish(remote, f"{there}/b", b"from there")
        publish(local, f"shared/{name}/c", b"from here")
        publish(remote, f"shared/{name}/d", b"from there", 2)
        publish(remote, f"down/{name}/e", b"down")
        publish(local, f"down/{name}/f", b"stays")
        publish(local, f"up/{name}/g", b"up")
        publish(remote, f"up/{name}/h", b"stays")
        publish(local, f"quick/{name}/i", b"from here", 0)
        publish(remote, f"quick/{name}/j", b"from there", 0)
        on_both = [
            (f"shared/{name}/c", b"from here"),
            (f"shared/{name}/d", b"from there"),
            (f"down/{name}/e", b"down"),
            (f"up/{name}/g", b"up"),
            (f"quick/{name}/i", b"from here"),
            (f"quick/{name}/j", b"from there"),
        ]
        of_local = [*on_both, (f"{home}/a", b"from here"), (f"{home}/b", b"from there")]
        of_remote = [*on_both, (f"{there}/a", b"from here"), (f"{there}/b", b"from there")]
        await_messages(local, *of_local)
        await_messages(remote, *of_remote)
        # What would go round, went before these.
        publish(local, f"{home}/last", b"1")
        publish(remote, f"{there}/end", b"2")
        await_messages(remote, (f"{there}/last", b"1"), (f"{there}/end", b"2"))
        await_messages(local, (f"{home}/last", b"1"), (f"{home}/end", b"2"))
        assert Counter(messages_of(local)) == Counter(
            [*of_local, (f"down/{name}/f", b"stays"), (f"{home}/last", b"1"), (f"{home}/end", b"2")]
        )
        assert Counter(messages_of(remote)) == Counter(
            [*of_remote, (f"up/{name}/h", b"stays"), (f"{there}/last", b"1"), (f"{there}/end", b"2")]
        )


def test_properties_go_along(site: Site) -> None:
    given = properties_of(
        "PUBLISH",
        ContentType="text/plain",
        ResponseTopic="answers",
        CorrelationData=b"7",
        PayloadFormatIndicator=1,
        MessageExpiryInterval=1_000,
        UserProperty=[("unit", "K"), ("unit", "C")],
    )
    with connected(site.here("props-local")) as local, connected(site.there("props-remote")) as remote:
        local.subscribe(("shared/newest/in", 1))
        remote.subscribe(("shared/newest/out", 1))
        remote.client.publish("shared/newest/in", b"x", 1, properties=given).wait_for_publish(PATIENCE_S)
        local.client.publish("shared/newest/out", b"x", 1, properties=given).wait_for_publish(PATIENCE_S)
        for peer in (local, remote):
            peer.await_received(1)
            fields = {k: v for k, v in fields_of(peer.received[0]).items() if k[0].isupper()}
            assert 990 <= fields.pop("MessageExpiryInterval") <= 1_000
            wanted = {k: v for k, v in vars(given).items() if k[0].isupper() and k != "MessageExpiryInterval"}
            assert fields == wanted


@pytest.mark.parametrize("name", VERSIONS)
def test_retained_messages_are_retained_on_the_other_side(site: Site, name: str) -> None:
    with (
        connected(site.here(f"{name}-keeper")) as local,
        connected(site.there(f"{name}-watcher")) as watcher,
    ):
        watcher.subscribe((f"shared/{name}/kept", 1))
        publish(local, f"shared/{name}/kept", b"state", retained=True)
        await_messages(watcher, (f"shared/{name}/kept", b"state"))
    with connected(site.there(f"{name}-late")) as late:
        late.subscribe((f"shared/{name}/kept", 1))
        late.await_received(1)
        assert late.received[0].retain


@pytest.mark.parametrize("name", VERSIONS)
def test_both_sides_know_whether_the_bridge_is_connected(site: Site, name: str) -> None:
    state = f"$SYS/broker/connection/{name}/state"
    for place in (site.here(f"{name}-state"), site.there(f"{name}-state")):
        with connected(place) as peer:
            peer.subscribe((state, 1))
            await_messages(peer, (state, b"1"))


def test_a_bridge_with_tls_and_a_password(site: Site) -> None:
    site.await_connected("secure")
    with connected(site.here("up-local")) as local, connected(site.there("up-remote")) as remote:
        remote.subscribe(("up/secure", 1))
        publish(local, "up/secure", b"sealed")
        await_messages(remote, ("up/secure", b"sealed"))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("guessing", "Not authorized"),
        ("unknown", "the broker closed the connection"),
        ("distrusting", "certificate verify failed"),
    ],
)
def test_a_refusal_is_in_the_log_and_ends_nothing(site: Site, name: str, why: str) -> None:
    until(lambda: why in site.log(name), why, PATIENCE_S, found=lambda: site.log(name))
    run = site.run(name)
    assert (run["broker"], run["state"], run["restarts"]) == ("", "up", 0)


def test_a_bridge_in_a_process_of_its_own(site: Site, tmp_path: Path) -> None:
    bridge = {
        "name": "alone",
        "addresses": [f"127.0.0.1:{site.broker.port}"],
        "topics": [{"filter": "up/alone"}],
    }
    nodes = [{"name": "root", "subtree": "", "listen": "127.0.0.1:0"}]
    file = tmp_path / "alone.yaml"
    file.write_text(yaml.safe_dump({"nodes": nodes, "bridges": [bridge]}))
    command = [*hbroker("bridge"), "--config", str(file), "--name", "alone", "--root", site.root]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT, env=environment())
    try:
        assert process.stdout is not None
        with process.stdout as output:
            assert output.readline() == "ready alone: subscribed\n"
        with connected(site.here("alone-local")) as local, connected(site.there("alone-remote")) as remote:
            remote.subscribe(("up/alone", 1))
            publish(local, "up/alone", b"x")
            await_messages(remote, ("up/alone", b"x"))
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()


def test_a_bridge_that_is_not_in_the_file_is_an_error(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "none.yaml"
    file.write_text('nodes: [{name: root, subtree: "", listen: "127.0.0.1:0"}]\n')
    done = run_hbroker("bridge", "--config", file, "--name", "cloud", "--root", site.root)
    assert done.returncode == USAGE
    assert "the file has no bridges" in done.stderr


def test_a_bridge_of_311_says_that_it_is_one(site: Site) -> None:
    assert "as a bridge" in site.log("older")
    until(lambda: "New bridge connected" in site.broker.log, "a bridge", PATIENCE_S)
    until(lambda: "as newest (p5" in site.broker.log, "MQTT 5", PATIENCE_S)
