"""Makes a bridge of a `connection` section of mosquitto.conf."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from hbroker.addresses import format_address, parse_address
from hbroker.config import NAME, BridgeTopic, Direction
from hbroker.mosquitto.conf_file import Line, Section
from hbroker.mosquitto.outcome import Report
from hbroker.topology.bridges import BRIDGE_RANGES, VERSIONS, client_id_is_valid, topic_error

__all__ = ["bridge"]

_PORT: Final = 1883
_PSK: Final = "there are no pre-shared keys, so the bridge is left out: use certificates"
_VERSIONS: Final = {"mqttv50": VERSIONS[0], "mqttv311": VERSIONS[1], "mqttv31": VERSIONS[1]}


def bridge(
    section: Section, names: Collection[str], files: dict[str, str], report: Report
) -> dict[str, Any] | None:
    """The bridge of a section; None: it cannot be converted. `names`: those that are taken. `files`: gets the
    file with its password. Raises ConfigError."""
    if section.last("bridge_psk", "bridge_identity") is not None:
        _leave_out(section, report, _PSK)
        return None
    name = _name(section.lines[0], names, report)
    topics = [topic for line in section.lines if (topic := _topic(line, report)) is not None]
    if not topics:
        _leave_out(section, report, "the bridge is left out: it would carry nothing")
        return None
    values: dict[str, Any] = {"name": name, "addresses": _addresses(section, report)}
    client_id = section.last("remote_clientid", "clientid")
    if client_id is not None and client_id_is_valid(client_id.value):
        values["client_id"] = client_id.value
        report.converted(client_id, "client_id")
    else:
        report.missing(client_id, "it cannot be a level of a topic: the bridge has its name and the host's")
    values |= _login(section, name, files, report)
    tls = _tls(section, report)
    if tls is not None:
        values["tls"] = tls
    return {**values, **_session(section, report), **_pauses(section, report), "topics": topics}


def _leave_out(section: Section, report: Report, why: str) -> None:
    for line in section.lines:
        report.missing(line, why)


def _name(line: Line, names: Collection[str], report: Report) -> str:
    wanted = re.sub(r"[^A-Za-z0-9_.-]", "-", line.value).lstrip("_.-")[:63] or "bridge"
    name = wanted
    number = 1
    while name in names:
        number += 1
        name = f"{wanted[:58]}-{number}"
    assert NAME.fullmatch(name), "it begins with a letter or digit, and has no other characters"
    report.converted(line, f"bridge {name}")
    return name


def _addresses(section: Section, report: Report) -> list[str]:
    line = section.last("address", "addresses")
    if line is None:
        raise section.lines[0].error("the bridge has no address", "`address <host>[:<port>]` below it")
    try:
        addresses = [format_address(parse_address(text, default_port=_PORT)) for text in line.value.split()]
    except ValueError as error:
        raise line.error(f"not an address: {error}", "`<host>[:<port>]`") from None
    report.converted(line, f"addresses: {' '.join(addresses)}")
    return addresses


def _topic(line: Line, report: Report) -> dict[str, Any] | None:
    """The topic of a line; None: it is another line, or the topic is left out. Raises ConfigError."""
    if line.option != "topic":
        return None
    form = "`topic <filter> [out|in|both [0|1|2 [<local prefix> [<remote prefix>]]]]`"
    words = ["" if word == '""' else word for word in line.value.split()]
    if not 1 <= len(words) <= 5:
        raise line.error("this is not a topic of a bridge", form)
    filter, direction, qos, local, remote = words + ["", "out", "0", "", ""][len(words) :]
    if direction not in ("out", "in", "both") or qos not in ("0", "1", "2"):
        raise line.error("this is not a topic of a bridge", form)
    topic = BridgeTopic(filter, Direction(direction), min(int(qos), 1), local, remote)
    wrong = topic_error(topic)
    if wrong is not None:
        report.missing(line, f"left out: {wrong[0]}; {wrong[1]}")
        return None
    report.converted(line, f"{direction}: {topic.local} here is {topic.remote} there")
    if qos == "2":
        report.missing(line, "with `qos: 1`: a message may arrive twice after a failure")
    values: dict[str, Any] = {"filter": filter, "direction": direction, "qos": topic.qos}
    prefixes = {"local_prefix": local, "remote_prefix": remote}
    return values | {key: prefix for key, prefix in prefixes.items() if prefix}


def _login(section: Section, name: str, files: dict[str, str], report: Report) -> dict[str, Any]:
    user, password = section.last("remote_username", "username"), section.last("remote_password", "password")
    if user is None or not user.value:
        report.missing(password, "without a user name mosquitto sends no password, either")
        return {}
    report.converted(user, "username")
    if password is None:
        return {"username": user.value}
    files[f"{name}.password"] = f"{password.value}\n"
    report.converted(password, f"password_file: {name}.password")
    return {"username": user.value, "password_file": f"{name}.password"}


def _tls(section: Section, report: Report) -> dict[str, Any] | None:
    names = {"ca": "bridge_cafile", "certificate": "bridge_certfile", "key": "bridge_keyfile"}
    lines = {key: section.last(option) for key, option in names.items()}
    directory = section.last("bridge_capath")
    of_system = section.is_true("bridge_tls_use_os_certs")
    if lines["ca"] is None and directory is None and not of_system:
        for line in lines.values():
            report.missing(line, "without `bridge_cafile` or `bridge_capath` mosquitto uses no TLS, either")
        return None
    for line in lines.values():
        report.converted(line, "tls")
    report.missing(
        directory, "`ca` is one file, and without it the CAs of the system count: append them to one"
    )
    report.converted(section.last("bridge_tls_use_os_certs"), "tls, with the CAs of the system")
    tls: dict[str, Any] = {key: str(Path(line.value).absolute()) for key, line in lines.items() if line}
    if section.is_true("bridge_insecure"):
        tls["checks_host"] = False
    report.converted(section.last("bridge_insecure"), f"checks_host: {str('checks_host' not in tls).lower()}")
    return tls


def _session(section: Section, report: Report) -> dict[str, Any]:
    values: dict[str, Any] = {}
    clean, local_clean = section.is_true("cleansession"), section.last("local_cleansession")
    if clean:
        values["clean_start"] = True
    report.converted(section.last("cleansession"), f"clean_start: {str(clean).lower()}")
    if local_clean is not None and local_clean.truth() != clean:
        report.missing(local_clean, "`clean_start` holds on both sides")
    else:
        report.same(local_clean, "as `cleansession`")
    version = section.last("bridge_protocol_version")
    if version is not None:
        if version.value not in _VERSIONS:
            raise version.error(f"{version.value[:40]!r} is not a version", "mqttv311 or mqttv50")
        values["version"] = _VERSIONS[version.value]
        report.converted(version, f"version: {values['version']}")
    notifies, is_local = section.last("notifications"), section.last("notifications_local_only")
    if notifies is not None and not notifies.truth():
        values["notifies"] = "none"
    elif is_local is not None and is_local.truth():
        values["notifies"] = "local"
    for line in (notifies, is_local):
        report.converted(line, f"notifies: {values.get('notifies', 'both')}")
    receive = section.last("bridge_receive_maximum")
    if receive is not None:
        low, high = BRIDGE_RANGES["in_flight"]
        values["in_flight"] = min(max(receive.whole(), low), high)
        report.converted(receive, f"in_flight: {values['in_flight']}")
    return values


def _pauses(section: Section, report: Report) -> dict[str, Any]:
    values: dict[str, Any] = {}
    keep_alive = section.last("keepalive_interval")
    if keep_alive is not None:
        low, high = BRIDGE_RANGES["keep_alive"]
        values["keep_alive"] = min(max(keep_alive.whole(), low), high)
        report.converted(keep_alive, f"keep_alive: {values['keep_alive']}")
    restart = section.last("restart_timeout")
    if restart is not None:
        words = restart.value.split()
        if not 1 <= len(words) <= 2 or not all(word.isascii() and word.isdigit() for word in words):
            raise restart.error(f"{restart.value[:40]!r} are not seconds", "`restart_timeout <base> [<cap>]`")
        low, high = BRIDGE_RANGES["pause"]
        values["pause"] = min(max(int(words[0][:9]), low), high)
        values["longest_pause"] = max(values["pause"], min(int(words[-1][:9]), high))
        report.converted(restart, f"pause: {values['pause']}, longest_pause: {values['longest_pause']}")
    return values
