"""Access rules and passwords, converted: the decisions are mosquitto's."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings

from hbroker._native import topic_matches
from hbroker.errors import ConfigErrors
from hbroker.gateway.access import acl_file, password_file
from hbroker.gateway.access.acl_file import Acl, may_write
from hbroker.gateway.access.password_file import Passwords
from hbroker.mosquitto import access
from hbroker.mosquitto.conf_file import Line
from hbroker.mosquitto.outcome import Fate, Report
from tests.interop.lines import Place
from tests.interop.peer import connected
from tests.mosquitto import acl_model
from tests.mosquitto.broker import PATIENCE_S, mosquitto_with
from tests.needs import need_mosquitto


def converted(text: str, directory: Path) -> tuple[Acl, Report]:
    """The rules of a converted file."""
    file = directory / "rules"
    file.write_text(text)
    report = Report()
    made = access.rules(Line("acl_file", str(file), "mosquitto.conf", 1), report)
    return acl_file.parse(made.text, "rules"), report


def may_read(acl: Acl, user: str | None, client: str, topic: str) -> bool:
    rules = acl.rules(user, client)
    return next((r.is_allowed for r in rules if r.for_read and topic_matches(r.filter, topic)), False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acl_model.FILES)
def test_converted_rules_decide_as_mosquittos(tmp_path: Path, text: str) -> None:
    acl, _ = converted(text, tmp_path)
    for user in acl_model.USERS:
        for client in acl_model.CLIENTS:
            for topic in acl_model.TOPICS:
                assert may_write(acl.rules(user, client), topic) == acl_model.may(
                    text, user, client, topic, "write"
                ), (user, client, topic)
                assert may_read(acl, user, client, topic) == acl_model.may(text, user, client, topic, "read")


@pytest.mark.parametrize("seed", range(4))
def test_mosquitto_itself_decides_so(tmp_path: Path, seed: int) -> None:
    need_mosquitto()
    text = acl_model.random_file(Random(seed))
    acl, _ = converted(text, tmp_path)
    (tmp_path / "users").touch()
    subprocess.run(["mosquitto_passwd", "-b", tmp_path / "users", "ann", "x"], check=True)
    files = f"acl_file {tmp_path}/rules\npassword_file {tmp_path}/users\n"
    with mosquitto_with(tmp_path, files) as port:
        for user in (None, "ann"):
            for client in ("c1", "ann"):
                refused = refusals(Place("127.0.0.1", port, client), user)
                rules = acl.rules(user, client)
                assert refused == {topic for topic in acl_model.TOPICS if not may_write(rules, topic)}


def refusals(place: Place, user: str | None) -> set[str]:
    """The topics that mosquitto does not let this client write."""
    refused: set[str] = set()
    topics: dict[int, str] = {}
    with connected(place, lambda client: client.username_pw_set(user, "x") if user else None) as peer:

        def note(_client: object, _userdata: object, mid: int, reason: object, *_: object) -> None:
            results.append((mid, reason == "Not authorized"))

        results: list[tuple[int, bool]] = []
        peer.client.on_publish = note
        sent = [(topic, peer.client.publish(topic, b"", 1)) for topic in acl_model.TOPICS]
        for topic, info in sent:
            info.wait_for_publish(PATIENCE_S)
            topics[info.mid] = topic
        refused = {topics[mid] for mid, is_refused in results if is_refused}
        assert len(results) == len(acl_model.TOPICS)
    return refused


def test_a_rule_that_means_something_else_here_is_reported(tmp_path: Path) -> None:
    text = "topic write own/%c\npattern write own/%c\ntopic read $other/x\ntopic read $SYS/#\ntopic read a\n"
    acl, report = converted(text, tmp_path)
    assert [rule.filter for rule in acl.rules(None, "c")] == ["$other/x", "$SYS/#", "a", "own/c"]
    lines = {o.place.rpartition(":")[2] for o in report.outcomes if o.fate is Fate.MISSING}
    assert lines == {"1", "2", "3"}


@pytest.mark.parametrize("line", ["topic read a#", "topics a", "user"])
def test_a_file_with_which_mosquitto_does_not_start_is_an_error(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigErrors, match=re.escape(f"{tmp_path}/rules:2: ")):
        converted(f"topic read ok\n{line}\n", tmp_path)


@contextmanager
def hashed(directory: Path, *flags: str) -> Iterator[Passwords]:
    """The converted file that mosquitto_passwd made, with the user ann."""
    need_mosquitto()
    file = directory / "passwords"
    file.touch()
    subprocess.run(["mosquitto_passwd", *flags, "-b", file, "ann", "opens näh"], check=True)
    file.write_text(file.read_text() + "# others\neve:in plain text\nmallory\n")
    report = Report()
    made = access.passwords(Line("password_file", str(file), "mosquitto.conf", 1), report)
    assert made.count == 1
    assert [o.option for o in report.outcomes if o.fate is Fate.MISSING] == ["user", "user"]
    assert "plain" not in made.text
    yield Passwords(password_file.parse(made.text, "users"), NothingRemembered())


class NothingRemembered:
    def add(self, user: str, hash: str, password: bytes) -> None: ...

    def has(self, user: str, hash: str, password: bytes) -> bool:
        return False


@pytest.mark.parametrize("flags", [(), ("-H", "sha512")], ids=["PBKDF2", "SHA-512"])
def test_a_user_keeps_the_password(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with hashed(tmp_path, *flags) as users:
        assert users.verify("ann", "opens näh".encode())
        assert not users.verify("ann", b"opens")
        assert not users.verify("eve", b"in plain text")
