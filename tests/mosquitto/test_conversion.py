"""Configurations, converted line by line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hbroker.errors import ConfigError, ConfigErrors
from hbroker.mosquitto.conf_file import CONNECTION_OPTIONS, LISTENER_OPTIONS, PER_LISTENER_OPTIONS, read
from hbroker.mosquitto.conversion import Conversion, convert
from hbroker.mosquitto.options import MISSING, SAME
from hbroker.mosquitto.outcome import Fate
from hbroker.topology import parse


def conversion_of(directory: Path, text: str, **files: str) -> Conversion:
    """The conversion of `site.conf`, beside these files."""
    for name, content in files.items():
        directory.joinpath(name).write_text(content)
    file = directory / "site.conf"
    file.write_text(text.replace("DIR", str(directory)))
    return convert(read(file), "site", has_ipv6=True)


def document(conversion: Conversion) -> dict[str, Any]:
    """The topology file, which must be valid."""
    text = conversion.files[conversion.topology]
    parse(text, file="site.yaml", resolve=lambda _: "192.0.2.1")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def fates(conversion: Conversion) -> dict[str, Fate]:
    """What became of each option; of several lines with one option, of the last one that was noted."""
    return {outcome.option: outcome.fate for outcome in conversion.report.outcomes}


def listeners(conversion: Conversion) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document(conversion)["gateways"][0]["listeners"]
    return found


def test_without_a_listener_only_this_host_gets_in(tmp_path: Path) -> None:
    made = conversion_of(tmp_path, "persistence true\nlog_dest stdout\n")
    assert listeners(made) == [{"address": "127.0.0.1:1883"}]
    assert document(made)["auth"] == {"anonymous": True}
    assert made.report.is_complete


def test_with_a_listener_nobody_gets_in_without_a_password(tmp_path: Path) -> None:
    made = conversion_of(tmp_path, "listener 1883\n")
    assert listeners(made) == [{"address": "[::]:1883"}]
    assert document(made)["auth"] == {"passwords": "users", "anonymous": False}
    assert made.files["users"] == ""
    assert "nobody" in made.report.remarks[0]


@pytest.mark.parametrize(
    ("lines", "addresses"),
    [
        ("port 1884", ["[::]:1884"]),
        ("port 1884\nbind_address 127.0.0.1", ["127.0.0.1:1884"]),
        ("bind_address 192.0.2.1", ["192.0.2.1:1883"]),
        ("listener 1885 127.0.0.1\nlistener 1886\nsocket_domain ipv4", ["127.0.0.1:1885", "0.0.0.0:1886"]),
        ("port 1884\nlistener 1885 ::1", ["[::]:1884", "[::1]:1885"]),
        ("listener 0 /run/mosquitto.sock\nlistener 1885", ["[::]:1885"]),
    ],
)
def test_listeners_have_their_addresses(tmp_path: Path, lines: str, addresses: list[str]) -> None:
    made = conversion_of(tmp_path, f"{lines}\nallow_anonymous true\n")
    assert [each["address"] for each in listeners(made)] == addresses


def test_a_listener_with_client_certificates(tmp_path: Path) -> None:
    made = conversion_of(
        tmp_path,
        """
        listener 8883
        cafile /tls/ca.pem
        certfile /tls/host.pem
        keyfile /tls/host.key
        require_certificate true
        use_identity_as_username true
        crlfile /tls/revoked.pem
        tls_version tlsv1.3
        max_connections 20
        message_size_limit 5000
        """,
    )
    assert listeners(made) == [
        {
            "address": "[::]:8883",
            "tls": {
                "certificate": "/tls/host.pem",
                "key": "/tls/host.key",
                "client_ca": "/tls/ca.pem",
                "client_certificate": "required",
                "names_user": True,
            },
            "connections": 20,
            "connections_per_address": 20,
            "packet_bytes": 6024,
        }
    ]
    assert [o.option for o in made.report.outcomes if o.fate is not Fate.CONVERTED] == [
        "crlfile",
        "tls_version",
    ]
    assert fates(made)["crlfile"] is Fate.MISSING


def test_without_required_certificates_no_client_is_asked_for_one(tmp_path: Path) -> None:
    text = "listener 8883\nallow_anonymous true\ncafile /ca\ncertfile /c\nkeyfile /k\n"
    made = conversion_of(tmp_path, text + "use_identity_as_username true\n")
    assert listeners(made)[0]["tls"] == {"certificate": "/c", "key": "/k"}


def test_limits(tmp_path: Path) -> None:
    made = conversion_of(
        tmp_path,
        "max_inflight_messages 7\nmax_queued_messages 0\nmax_queued_bytes 2000\nmax_keepalive 100\n"
        "persistent_client_expiration 2w\n",
    )
    limits = {"in_flight": 7, "queue_bytes": 2000, "keep_alive": 100, "session_expiry": 1_209_600}
    assert document(made)["gateways"][0]["limits"] == limits
    assert fates(made)["max_queued_messages"] is Fate.MISSING


def test_included_files_are_read_in_mosquittos_order(tmp_path: Path) -> None:
    directory = tmp_path / "conf.d"
    directory.mkdir()
    for number, name in enumerate(["b.conf", "A.conf", "01.conf", "a.conf", "B.conf", "00.conf"]):
        (directory / name).write_text(f"max_inflight_messages {number + 1}\n")
    (directory / "ignored").write_text("nonsense\n")
    (tmp_path / "site.conf").write_text(f"listener 1\ninclude_dir {directory}\nmax_connections 3\n")
    configuration = read(tmp_path / "site.conf")
    assert [int(line.value) for line in configuration.general.lines[1:]] == [6, 3, 2, 4, 5, 1]
    assert [line.option for line in configuration.listeners[0].lines] == ["listener", "max_connections"]


def test_the_last_of_several_lines_counts_and_the_others_are_no_mistake(tmp_path: Path) -> None:
    made = conversion_of(tmp_path, "max_keepalive 10\nmax_keepalive 20\n")
    assert document(made)["gateways"][0]["limits"] == {"keep_alive": 20}
    assert [o.fate for o in made.report.outcomes] == [Fate.CONVERTED, Fate.SAME]


USERS = "ann:$6$YWJj$" + "A" * 86 + "==\n"


def test_listeners_with_users_of_their_own_are_not_opened_to_others(tmp_path: Path) -> None:
    text = """
        per_listener_settings true
        listener 1883
        password_file DIR/users
        listener 1884
        allow_anonymous true
        listener 1885
        password_file DIR/users
        """
    made = conversion_of(tmp_path, text, users=USERS)
    assert [each["address"] for each in listeners(made)] == ["[::]:1883", "[::]:1885"]
    assert document(made)["auth"] == {"passwords": "users", "anonymous": False}
    assert made.files["users"] == USERS
    missing = {(o.place.rpartition(":")[2], o.option) for o in made.report.outcomes if o.fate is Fate.MISSING}
    assert missing == {("5", "listener"), ("6", "allow_anonymous")}


def test_settings_of_all_listeners_apply_wherever_they_are(tmp_path: Path) -> None:
    made = conversion_of(
        tmp_path,
        "listener 1883\npassword_file DIR/users\nlistener 1884\nallow_anonymous true\nacl_file DIR/rules\n",
        users=USERS,
        rules="topic read public/#\n",
    )
    assert len(listeners(made)) == 2
    assert document(made)["auth"] == {"passwords": "users", "acl": "rules", "anonymous": True}
    assert made.report.is_complete


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("listener nowhere", "site.conf:1: 'nowhere' is not a port"),
        ("persistence maybe", "site.conf:1: persistence is 'maybe', not a truth value"),
        ("max_keepalive soon", "site.conf:1: max_keepalive is 'soon', not a whole number"),
        ("persistent_client_expiration 3", "site.conf:1: '3' is not a duration"),
        ("password_file DIR/none", "cannot read the file"),
        ("include_dir DIR/none", "site.conf:1: cannot read"),
        ("listener 1\ncertfile c\nkeyfile k\nrequire_certificate true", "site.conf:4: certificates are req"),
        ("listener 1\nprotocol http", "site.conf:2: 'http' is no protocol"),
    ],
)
def test_an_error_names_the_line(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises((ConfigError, ConfigErrors), match=re.escape(message)):
        conversion_of(tmp_path, f"{line}\n")


def test_a_directory_that_includes_itself_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "again.conf").write_text(f"include_dir {tmp_path}\n")
    with pytest.raises(ConfigError, match="included twice"):
        read(tmp_path / "again.conf")


def test_an_unknown_option_is_named(tmp_path: Path) -> None:
    made = conversion_of(tmp_path, "alow_anonymous true\n")
    (outcome,) = made.report.outcomes
    assert (outcome.fate, outcome.place) == (Fate.UNKNOWN, f"{tmp_path}/site.conf:1")


OPTIONS = sorted({*SAME, *MISSING, *LISTENER_OPTIONS, *PER_LISTENER_OPTIONS, *CONNECTION_OPTIONS, "x"})
LINES = st.lists(st.tuples(st.sampled_from(OPTIONS), st.sampled_from(["true", "1", "1883", "", "a b"])))


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES)
def test_every_line_is_accounted_for_or_an_error(tmp_path: Path, lines: list[tuple[str, str]]) -> None:
    try:
        made = conversion_of(tmp_path, "".join(f"{option} {value}\n" for option, value in lines))
    except (ConfigError, ConfigErrors):
        return
    places = {outcome.place for outcome in made.report.outcomes}
    assert places >= {f"{tmp_path}/site.conf:{number + 1}" for number in range(len(lines))}
    assert all(o.fate is Fate.UNKNOWN for o in made.report.outcomes if o.option == "x")
    # If two listeners have one address, mosquitto does not start, either.
    addresses = [
        each["address"] for each in yaml.safe_load(made.files["site.yaml"])["gateways"][0]["listeners"]
    ]
    if len(set(addresses)) == len(addresses):
        document(made)
