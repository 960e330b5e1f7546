"""Contexts: how to reach a network, named in files of the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbroker.config import SecuritySettings
from hbroker.errors import ConfigError, ConfigErrors
from hbroker.runtime import contexts
from hbroker.runtime.address import parse_place
from hbroker.runtime.contexts import Context
from hbroker.runtime.credentials import client_security

HERE = ("192.0.2.1", 7700)
HOME = Context("192.0.2.1:7700", "/keys/home.crt", "/keys/home.token", "acme", "the house")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("ROOT", "AUTHORITY", "TOKEN", "CONTEXT"):
        monkeypatch.delenv(f"HBROKER_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "config" / "hbroker"


def test_a_context_is_written_for_its_user_alone_and_read_again(folder: Path) -> None:
    file = contexts.add("home", HOME)
    assert file == folder / "contexts" / "home.yaml"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.stat().st_mode & 0o777 for each in (folder, file.parent)] == [0o700, 0o700]
    assert contexts.load("home") == HOME
    contexts.add("bare", Context("[::1]:7701"))
    assert contexts.load("bare") == Context("[::1]:7701")
    assert contexts.names() == ["bare", "home"]
    with pytest.raises(ConfigError, match="there is a context 'home' already"):
        contexts.add("home", Context("other"))
    assert contexts.load("home") == HOME


def test_commands_use_that_of_the_flag_then_of_the_environment_then_the_noted_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("flag", "environment", "noted"):
        contexts.add(name, Context(f"{name}:7700"))
    with contexts.of_command(None):
        assert parse_place(None) == ("127.0.0.1", 7700)
        contexts.use("noted")
        assert parse_place(None) == ("noted", 7700)
        monkeypatch.setenv("HBROKER_CONTEXT", "environment")
        assert parse_place(None) == ("environment", 7700)
        with contexts.of_command("flag"):
            assert parse_place(None) == ("flag", 7700)
        monkeypatch.setenv("HBROKER_ROOT", "variable:1")
        with contexts.of_command("flag"):
            assert parse_place(None) == ("variable", 1)
            assert parse_place("given") == ("given", 7700)


def test_a_program_that_is_no_command_uses_that_of_the_environment_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contexts.add("home", HOME)
    contexts.use("home")
    assert contexts.chosen() is None
    monkeypatch.setenv("HBROKER_CONTEXT", "home")
    assert contexts.chosen() == HOME


def test_its_authority_and_token_are_for_its_own_root(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts.add("home", HOME)
    contexts.add("loopback", Context("localhost:7700", token="/keys/local.token"))
    monkeypatch.setenv("HBROKER_CONTEXT", "home")
    assert client_security(HERE) == SecuritySettings(HOME.authority, token=HOME.token)
    assert client_security(HERE, token="mine") == SecuritySettings(HOME.authority, token="mine")
    for other in (("192.0.2.2", 7700), ("192.0.2.1", 7701)):
        assert client_security(other) == SecuritySettings()
        assert client_security(other, "other.crt") == SecuritySettings("other.crt"), "no token for others"
    monkeypatch.setenv("HBROKER_TOKEN", "environment")
    assert client_security(HERE) == SecuritySettings(HOME.authority, token="environment")
    monkeypatch.delenv("HBROKER_TOKEN")
    monkeypatch.setenv("HBROKER_AUTHORITY", "environment.crt")
    assert client_security(HERE) == SecuritySettings("environment.crt", token=HOME.token)
    monkeypatch.setenv("HBROKER_CONTEXT", "loopback")
    assert client_security(("127.0.0.1", 7700)).token == "/keys/local.token"


def test_the_removed_context_is_used_no_more(folder: Path) -> None:
    contexts.add("home", HOME)
    contexts.add("office", Context("office"))
    contexts.use("home")
    with contexts.of_command(None):
        contexts.remove("office")
        assert contexts.chosen_name() == "home"
        contexts.remove("home")
        assert contexts.chosen_name() is None
    assert not (folder / "context").exists()
    with pytest.raises(ConfigError, match="there is no context 'home'"):
        contexts.remove("home")


def test_an_unknown_context_is_an_error_that_lists_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="hbroker context add office"):
        contexts.load("office")
    contexts.add("home", HOME)
    contexts.add("attic", HOME)
    with pytest.raises(ConfigError, match="there is no context 'office'; known here: attic, home"):
        contexts.use("office")
    with pytest.raises(ConfigError, match="known here: attic, home"), contexts.of_command("office"):
        pass
    monkeypatch.setenv("HBROKER_CONTEXT", "office")
    with pytest.raises(ConfigError, match="known here: attic, home"):
        parse_place(None)
    assert parse_place("given") == ("given", 7700), "who names the root asks no context for it"


@pytest.mark.parametrize("name", ["", "a/b", "../home", ".hidden", "a b", "é", "a\n", "-x", "x" * 65])
def test_a_name_is_one_file_below_the_folder(name: str) -> None:
    for act in (contexts.load, contexts.remove, contexts.use, lambda name: contexts.add(name, HOME)):
        with pytest.raises(ConfigError, match="is no name of a context"):
            act(name)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the file is empty"),
        ("root: [", "not valid YAML"),
        ("- root", "not a mapping"),
        ("authority: /a", "has no `root`"),
        ("root: ''", "root is no address"),
        ("root: a:b:c", "root is no address"),
        ("root: 7", "root is a number, not a text"),
        ("root: a\ntoken: secret", "token is a relative path"),
        ("root: a\nauthorithy: /a", "did you mean `authority`"),
        ("root: a\nroot: b", "has the key 'root' twice"),
        ("root: !!python/object/apply:os.system ['exit 1']", "not a text"),
    ],
)
def test_a_malformed_file_is_named_with_what_is_wrong(folder: Path, text: str, why: str) -> None:
    file = contexts.add("home", HOME)
    file.write_text(text)
    with pytest.raises(ConfigErrors) as raised:
        contexts.load("home")
    assert why in str(raised.value)
    assert str(file) in str(raised.value)
    contexts.remove("home")
    assert contexts.names() == []


def test_who_has_no_home_has_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.delenv("HOME", raising=False)
    with contexts.of_command(None):
        assert contexts.chosen() is None
    assert contexts.names() == []
    with pytest.raises(ConfigError, match="set HOME or XDG_CONFIG_HOME"):
        contexts.add("home", HOME)


def test_a_relative_folder_in_the_environment_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert contexts.file_of("home") == tmp_path / ".config" / "hbroker" / "contexts" / "home.yaml"
