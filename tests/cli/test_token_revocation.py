"""`hbroker token revoke` and `revoked`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hbroker.cli.exits import DONE, FAILED, USAGE
from hbroker.identity.authority import Authority
from hbroker.identity.revocation_list import RevokedToken, short_id
from hbroker.identity.revoked_file import load_list
from hbroker.rights.token import inspect
from tests.cli.test_token import Capture, Site, site

__all__ = ["site"]


def listed(site: Site) -> list[RevokedToken]:
    found = load_list(site.state / "house" / "authority", [site.authority])
    return [] if found is None else found.tokens()


def narrowed(site: Site, file: Path, *flags: str) -> Path:
    out = site.folder / f"{len(list(site.folder.iterdir()))}.token"
    assert site.call("attenuate", "--token", file, *flags, "--out", out) == DONE
    return out


def blocks(file: Path) -> list[bytes]:
    return [short_id(each) for each in inspect(file.read_text().strip()).revocation_ids]


def is_valid(site: Site, file: Path) -> bool:
    return site.call("inspect", "--token", file, "--authority", site.certificate) == DONE


def test_a_token_is_revoked_with_what_was_made_of_it_and_nothing_else(site: Site, capsys: Capture) -> None:
    home = site.token()
    kitchen = narrowed(site, home, "--read", "home/kitchen/#")
    guest, cook = narrowed(site, kitchen, "--valid", "1h"), narrowed(site, kitchen, "--valid", "2h")
    capsys.readouterr()
    assert site.call("revoke", "--token", guest) == DONE
    assert "revoked: block 3 of 3" in capsys.readouterr().out
    assert [is_valid(site, file) for file in (home, kitchen, guest, cook)] == [True, True, False, True]
    assert "not valid: revoked (block 3)" in capsys.readouterr().out
    assert site.call("revoke", "--token", cook, "--block", "2") == DONE
    assert [is_valid(site, file) for file in (home, kitchen, guest, cook)] == [True, False, False, False]
    capsys.readouterr()
    assert site.call("inspect", "--token", guest, "--authority", site.certificate, "--json") == FAILED
    found = json.loads(capsys.readouterr().out)
    assert (found["valid"], found["fault"]) == (False, "not valid: revoked (block 2, 3)")
    assert is_valid(site, site.token("another.token"))


def test_a_record_lasts_as_long_as_any_token_with_the_block(site: Site) -> None:
    home = site.token()
    contents = inspect(home.read_text().strip())
    guest = narrowed(site, home, "--valid", "1h")
    assert site.call("revoke", "--token", guest) == DONE
    assert site.call("revoke", "--token", guest, "--block", "1") == DONE
    first, second = listed(site)
    assert 0 < first.expires_at - time.time() <= 3_600
    assert second == (2, blocks(guest)[0], contents.expires_at)


def test_to_revoke_again_changes_nothing(site: Site, capsys: Capture) -> None:
    file = site.token()
    assert site.call("revoke", "--token", file) == DONE
    capsys.readouterr()
    assert site.call("revoke", "--token", file) == DONE
    assert "block 1 of 1 is revoked already: record 1 of house" in capsys.readouterr().out
    assert len(listed(site)) == 1


def test_a_block_is_revoked_by_its_id(site: Site, capsys: Capture) -> None:
    home = site.token()
    guest = narrowed(site, home, "--valid", "1h")
    (_, id) = inspect(guest.read_text().strip()).revocation_ids
    assert site.call("revoke", "--id", id.hex().upper(), "--expires", "2030-01-01T00:00:00Z") == DONE
    assert listed(site) == [(1, short_id(id), 1_893_456_000)]
    assert not is_valid(site, guest)
    assert is_valid(site, home)
    assert site.call("revoke", "--id", id.hex()) == DONE
    capsys.readouterr()
    assert site.call("revoked", "--json") == DONE
    shown = json.loads(capsys.readouterr().out)
    expected = [(1, 1_893_456_000), (2, None)]
    assert shown == [{"number": n, "id": short_id(id).hex(), "expires_at": at} for n, at in expected]
    assert site.call("revoked") == DONE
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:] == [
        ["1", short_id(id).hex(), "2030-01-01T00:00:00Z"],
        ["2", short_id(id).hex(), "never"],
    ]


def test_nobody_revokes_his_own_token_by_forgetting_a_flag(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    file = site.token()
    monkeypatch.setenv("HBROKER_TOKEN", str(file))
    assert site.call("revoke") == USAGE
    assert "either --token or --id" in capsys.readouterr().err
    assert site.call("revoke", "--id", "00" * 64) == DONE
    assert len(listed(site)) == 1
    assert is_valid(site, file)


def test_a_token_of_another_network_is_not_revoked(site: Site, capsys: Capture) -> None:
    file = site.token()
    Authority.create("office", time.time()).save(site.state / "office" / "authority")
    assert site.call("revoke", "--token", file, "--network", "office") == FAILED
    assert "no authority that is believed has signed the token" in capsys.readouterr().err
    assert site.call("revoke", "--token", file) == USAGE
    assert "name one of house, office" in capsys.readouterr().err


def test_without_the_key_nothing_is_revoked(site: Site, capsys: Capture) -> None:
    file = site.token()
    (site.state / "house" / "authority" / "authority.key").unlink()
    assert site.call("revoke", "--token", file) == USAGE
    assert "authority.key: the key of the authority is not here" in capsys.readouterr().err
    assert is_valid(site, file)


def test_a_damaged_list_is_an_error_and_no_empty_list(site: Site, capsys: Capture) -> None:
    file = site.token()
    (site.state / "house" / "authority" / "revoked").write_text("nothing")
    for action in (("revoke", "--token", file), ("revoked",)):
        assert site.call(*action) == USAGE
        assert "revoked: not usable: it is no list of revoked tokens" in capsys.readouterr().err
    assert not is_valid(site, file)


@pytest.mark.parametrize(
    "arguments",
    [
        ("revoke",),
        ("revoke", "--id", "12"),
        ("revoke", "--id", "0x" + "0" * 126),
        ("revoke", "--id", "00" * 64, "--expires", "tomorrow"),
        ("revoke", "--id", "00" * 64, "--block", "1"),
        ("revoke", "--id", "00" * 64, "--token", "home.token"),
        ("revoke", "--token", "home.token", "--expires", "2030-01-01T00:00:00Z"),
        ("revoke", "--token", "home.token", "--block", "0"),
        ("revoke", "--token", "home.token", "--block", "2"),
        ("revoke", "--token", "home.token", "--read", "a"),
        ("revoked", "--id", "00" * 64),
        ("create", "--read", "a", "--block", "1"),
    ],
)
def test_wrong_arguments_are_refused(
    site: Site, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.token()
    monkeypatch.chdir(site.folder)
    assert site.call(*arguments) == USAGE
    assert not listed(site)
