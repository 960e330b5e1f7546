"""`hbroker token`: tokens of native clients are made, narrowed and shown."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest

from hbroker.cli import main
from hbroker.cli.exits import DONE, FAILED, USAGE
from hbroker.identity.authority import Authority
from hbroker.rights.token import verify
from hbroker.rights.verified import VerifiedToken

Capture = pytest.CaptureFixture[str]


class Site:
    """A state directory with the authority of the network `house`, and a folder for tokens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.authority = Authority.create("house", time.time())
        self.authority.save(self.state / "house" / "authority")
        self.certificate = str(self.state / "house" / "authority" / "authority.crt")

    def call(self, action: str, *arguments: str | Path) -> int:
        return main(["token", action, *map(str, arguments), "--state-dir", str(self.state)])

    def token(self, name: str = "home.token") -> Path:
        """A token that reads `home/#` and writes `home/+/set` for 30 days."""
        out = self.folder / name
        flags = ("--read", "home/#", "--write", "home/+/set", "--retain", "--share")
        assert self.call("create", *flags, "--out", out) == DONE
        return out

    def verified(self, file: Path) -> VerifiedToken:
        return verify(file.read_text().strip(), [self.authority.public_key], time.time())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    for name in ("HBROKER_TOKEN", "HBROKER_AUTHORITY"):
        monkeypatch.delenv(name, raising=False)
    return Site(tmp_path)


def test_a_token_is_written_that_only_its_owner_can_read(site: Site, capsys: Capture) -> None:
    file = site.token()
    said = capsys.readouterr().out
    assert said.startswith(f"{file}: a token (a secret). Its holder may read home/# (also in shared groups)")
    assert file.read_text().strip() not in said
    assert file.stat().st_mode & 0o777 == 0o600
    found = site.verified(file)
    assert found.rights.may_read("home/+", is_shared=True)
    assert found.rights.may_write("home/oven/set", retain=True)
    assert found.expires_at is not None
    assert 29 < (found.expires_at - time.time()) / 86_400 <= 30


@pytest.mark.parametrize(("valid", "seconds"), [("90m", 5_400), ("12h", 43_200), ("3650d", 315_360_000)])
def test_a_token_is_printed_and_valid_for_the_time_that_was_named(
    site: Site, capsys: Capture, valid: str, seconds: int
) -> None:
    assert site.call("create", "--write", "a", "--client", "oven", "--valid", valid) == DONE
    (text,) = capsys.readouterr().out.split()
    found = verify(text, [site.authority.public_key], time.time())
    assert found.rights.clients == ("oven",)
    assert found.expires_at is not None
    assert seconds - 60 < found.expires_at - time.time() <= seconds


def test_a_token_is_narrowed_without_the_key_of_the_authority(site: Site, monkeypatch: Any) -> None:
    file, out = site.token(), site.folder / "guest.token"
    (site.state / "house" / "authority" / "authority.key").unlink()
    narrow = ("--read", "home/kitchen/#", "--client", "guest", "--valid", "12h", "--out", out)
    assert site.call("attenuate", "--token", file, *narrow) == DONE
    assert out.stat().st_mode & 0o777 == 0o600
    found = site.verified(out)
    assert found.rights.may_read("home/kitchen/oven", is_shared=False)
    assert not found.rights.may_read("home/attic", is_shared=False)
    assert not found.rights.may_write("home/oven/set", retain=False)
    assert not found.rights.may_be("oven")
    elsewhere = site.folder / "home.crt"
    Path(site.certificate).rename(elsewhere)
    assert site.call("attenuate", "--token", out, "--valid", "1h") == USAGE
    monkeypatch.setenv("HBROKER_AUTHORITY", str(elsewhere))
    monkeypatch.setenv("HBROKER_TOKEN", str(out))
    last = site.folder / "last.token"
    assert site.call("attenuate", "--valid", "1h", "--out", last) == DONE
    assert site.verified(last).rights == found.rights


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--read", "#"), "the token does not allow to read #: it can only be narrowed"),
        (("--write", "home/#"), "to write home/#"),
        (("--valid", "31d"), "already: it can only be narrowed"),
        (("--read", 'home/"'), "cannot be a filter of a token"),
        ((), "nothing is said of how"),
    ],
)
def test_a_token_that_would_allow_more_is_not_made(
    site: Site, capsys: Capture, flags: tuple[str, ...], said: str
) -> None:
    out = site.folder / "more.token"
    assert site.call("attenuate", "--token", site.token(), *flags, "--out", out) == FAILED
    assert said in capsys.readouterr().err
    assert not out.exists()


def test_a_token_is_shown(site: Site, capsys: Capture) -> None:
    file = site.token()
    narrow = ("--read", "home/kitchen/#", "--client", "oven")
    assert site.call("attenuate", "--token", file, *narrow, "--out", file) == DONE
    assert site.call("attenuate", "--token", file, "--valid", "1h", "--out", file) == DONE
    capsys.readouterr()
    assert site.call("inspect", "--token", file, "--authority", site.certificate) == DONE
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["BLOCK", "READ", "WRITE", "RETAIN", "SHARE", "CLIENT", "EXPIRES"]
    assert lines[1][:6] == ["1", "home/#", "home/+/set", "yes", "yes", "any"]
    assert lines[2] == ["2", "home/kitchen/#", "nothing", "no", "no", "oven", "never"]
    assert lines[3][:10] == ["3", *["as", "before"] * 4, "any"]
    assert " ".join(lines[5]).startswith(
        "The holder may read home/kitchen/# and write nothing as the client oven"
    )
    assert [line[-1] for line in lines[6:9]] == [i.hex() for i in site.verified(file).revocation_ids]
    assert " ".join(lines[9]) == "valid: signed by the authority of house"


def test_a_token_is_shown_as_json(site: Site, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    file = site.token()
    capsys.readouterr()
    stdin = io.TextIOWrapper(io.BytesIO(file.read_bytes()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert site.call("inspect", "--token", "-", "--json") == DONE
    found = json.loads(capsys.readouterr().out)
    (block,) = found["blocks"]
    expected = {"read": ["home/#"], "write": ["home/+/set"], "retain": True, "share": True}
    assert expected.items() <= block.items()
    assert expected.items() <= found.items()
    assert (found["clients"], found["valid"], found["network"]) == ([], None, None)
    assert "--authority" in found["fault"]
    assert site.call("inspect", "--token", file, "--json", "--authority", site.certificate) == DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["valid"], found["network"], found["fault"]) == (True, "house", None)


def test_a_token_that_is_not_valid_is_shown_with_the_reason(
    site: Site, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = site.token()
    Authority.create("office", time.time()).save(site.state / "office" / "authority")
    other = site.state / "office" / "authority" / "authority.crt"
    assert site.call("inspect", "--token", file, "--authority", other) == FAILED
    assert "not valid: no authority that is believed has signed the token" in capsys.readouterr().out
    both = site.folder / "both.crt"
    both.write_bytes(other.read_bytes() + Path(site.certificate).read_bytes())
    assert site.call("inspect", "--token", file, "--authority", both) == DONE
    later = time.time() + 31 * 86_400
    monkeypatch.setattr(time, "time", lambda: later)
    capsys.readouterr()
    both.write_bytes(Path(site.certificate).read_bytes() + other.read_bytes())
    assert site.call("inspect", "--token", file, "--authority", both) == FAILED
    assert "not valid: the token expired at" in capsys.readouterr().out


def test_a_file_that_has_no_token_is_refused(site: Site, capsys: Capture) -> None:
    assert site.call("inspect", "--token", site.certificate) == FAILED
    assert "not a token of hbroker: it is not base64" in capsys.readouterr().err
    assert site.call("inspect", "--token", site.folder / "nothing") == FAILED
    assert site.call("inspect", "--token", site.token(), "--authority", "/nothing") == USAGE
    assert "/nothing: cannot be read: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("make",),
        ("create", "--read", "a", "--network", "office"),
        *(
            ("create", "--read", "a", "--valid", valid)
            for valid in ("forever", "0d", "3651d", "1", "1y", "-1d")
        ),
        ("create", "--read", "a", "--json"),
        ("attenuate", "--read", "a"),
        ("inspect",),
        ("inspect", "--token", "a", "--read", "a"),
        ("inspect", "--token", "a", "--out", "a"),
    ],
)
def test_wrong_arguments_are_refused(site: Site, arguments: tuple[str, ...]) -> None:
    assert site.call(*arguments) == USAGE


def test_nothing_can_be_made_without_the_key_of_the_authority(site: Site, capsys: Capture) -> None:
    (site.state / "house" / "authority" / "authority.key").unlink()
    assert site.call("create", "--read", "a") == USAGE
    assert "authority.key: the key of the authority is not here" in capsys.readouterr().err


def test_a_token_of_a_workspace_is_made_narrowed_and_shown(site: Site, capsys: Capture) -> None:
    file, narrow = site.folder / "acme.token", site.folder / "narrow.token"
    flags = ("--workspace", "acme", "--read", "#", "--client", "oven", "--out", file)
    assert site.call("create", *flags) == DONE
    assert "may read # and write nothing in the workspace acme as the client oven" in capsys.readouterr().out
    rights = site.verified(file).rights
    assert rights.may_read("$workspace/acme/x", is_shared=False)
    assert not rights.may_read("x", is_shared=False)
    more = ("--token", file, "--read", "home/#", "--authority", site.certificate, "--out", narrow)
    assert site.call("attenuate", *more) == DONE
    assert site.call("attenuate", *more, "--workspace", "other") == FAILED
    assert "its first block decides that" in capsys.readouterr().err
    assert site.call("inspect", "--token", narrow, "--json") == DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["workspace"], found["read"], found["clients"]) == ("acme", ["home/#"], ["oven"])
    assert [block["workspace"] for block in found["blocks"]] == ["acme", None]
    assert site.call("create", "--workspace", "A", "--read", "#") == FAILED
