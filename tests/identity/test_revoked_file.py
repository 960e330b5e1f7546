"""The file with the list of revoked tokens: what a crash leaves of it, and a replacement of the authority."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from hbroker.errors import ConfigError, LocalError
from hbroker.identity import revoked_file, rotation
from hbroker.identity.authority import Authority, AuthorityCertificate
from hbroker.identity.revocation_list import RECORD_BYTES, RevocationAuthority, RevocationList, short_id
from hbroker.identity.revoked_file import load_list, read_revoked, revoke
from hbroker.identity.rotation import RotationStep
from tests.identity.examples import DAY_S
from tests.identity.test_rotation import NOW, Keys

IDS = [short_id(b"%d" % n) for n in range(10)]


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def listed(keys: Keys) -> RevocationList | None:
    return load_list(keys.folder, AuthorityCertificate.load_all(keys.folder))


def revoked(keys: Keys) -> list[bytes]:
    found = listed(keys)
    return [] if found is None else [token.id for token in found.tokens()]


def signers(keys: Keys) -> list[bytes]:
    """The certificates of those of the old and the present authority that have signed the whole list."""
    content = read_revoked(keys.folder / "revoked")
    assert content is not None
    records = [content.records[at : at + RECORD_BYTES] for at in range(0, len(content.records), RECORD_BYTES)]
    found = []
    for authority in {a.certificate: a for a in (keys.old, Authority.load(keys.folder))}.values():
        verified = RevocationList(RevocationAuthority.of(authority.public_key))
        with suppress(ValueError):
            for record in records:
                verified.append(record)
            assert verified.authority.id == content.authority
            found.append(authority.certificate)
    return found


def test_a_block_is_revoked_once_and_everybody_may_read_the_list(keys: Keys) -> None:
    assert listed(keys) is None
    for n, id in enumerate(IDS, 1):
        token, is_new = revoke(keys.folder, id, n)
        assert (token.sequence, is_new) == (n, True)
        assert revoke(keys.folder, id, n) == (token, False)
    assert revoked(keys) == IDS
    assert signers(keys) == [keys.old.certificate]
    assert (keys.folder / "revoked").stat().st_mode & 0o777 == 0o644
    assert {file.name for file in keys.folder.iterdir()} == {"authority.crt", "authority.key", "revoked"}


def test_a_block_is_revoked_again_if_its_tokens_are_valid_for_longer(keys: Keys) -> None:
    for expires_at, is_new in ((9, True), (8, False), (10, True), (0, True), (11, False), (0, False)):
        assert revoke(keys.folder, IDS[0], expires_at)[1] == is_new
    assert revoked(keys) == IDS[:1] * 3


@pytest.mark.parametrize("left", [0, 1, 27, 28, RECORD_BYTES - 1])
@pytest.mark.parametrize("filling", [b"", b"\0"])
def test_a_record_that_was_being_written_is_replaced_by_the_next(
    keys: Keys, left: int, filling: bytes
) -> None:
    for id in IDS[:3]:
        revoke(keys.folder, id, 0)
    file = keys.folder / "revoked"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) - RECORD_BYTES + left] + filling * (RECORD_BYTES - left))
    assert revoked(keys) == IDS[:2]
    revoke(keys.folder, IDS[3], 0)
    assert revoked(keys) == [*IDS[:2], IDS[3]]
    assert signers(keys) == [keys.old.certificate]


def test_a_damaged_list_is_not_written_to(keys: Keys) -> None:
    for id in IDS[:3]:
        revoke(keys.folder, id, 0)
    file = keys.folder / "revoked"
    whole = file.read_bytes()
    second = whole[: -2 * RECORD_BYTES] + whole[-RECORD_BYTES:] + whole[-RECORD_BYTES:]
    stranger = Authority.create("house", NOW)
    other = whole.replace(
        RevocationAuthority.of(keys.old.public_key).id, RevocationAuthority.of(stranger.public_key).id
    )
    for data, fault in (
        (second, "record 2: it has the number 3"),
        (whole[:20], "no list of revoked tokens"),
        (b"", "no list of revoked tokens"),
        (other, "another authority"),
    ):
        file.write_bytes(data)
        with pytest.raises(ConfigError, match=fault):
            revoke(keys.folder, IDS[4], 0)
        assert file.read_bytes() == data


def copy_of(keys: Keys) -> dict[bytes, list[bytes]]:
    """What a node has."""
    found = listed(keys)
    assert found is not None
    return {found.authority.id: found.records(1, len(found))}


@pytest.mark.parametrize("left", [0, 1, None])
def test_a_list_that_was_lost_is_completed_by_what_nodes_have(keys: Keys, left: int | None) -> None:
    file = keys.folder / "revoked"
    old = b""
    for n, id in enumerate(IDS[:4]):
        revoke(keys.folder, id, 0)
        old = file.read_bytes() if n == left else old
    known = copy_of(keys)
    whole = file.read_bytes()
    if left is None:
        file.unlink()
    else:
        file.write_bytes(old)
    ids = next(iter(known))
    damaged = {ids: [known[ids][0], b"x" * RECORD_BYTES]}
    assert revoke(keys.folder, IDS[1], 0, [{}, damaged, known])[1] is False
    assert file.read_bytes() == whole
    assert file.stat().st_mode & 0o777 == 0o644
    assert revoke(keys.folder, IDS[4], 0, [known])[0].sequence == 5
    assert revoked(keys) == IDS[:5]


def test_two_lists_that_differ_are_an_error(keys: Keys) -> None:
    """Tokens were revoked with an older copy of the list, where no node was."""
    file = keys.folder / "revoked"
    revoke(keys.folder, IDS[0], 0)
    old = file.read_bytes()
    revoke(keys.folder, IDS[1], 0)
    known = copy_of(keys)
    file.write_bytes(old)
    revoke(keys.folder, IDS[2], 0)
    before = file.read_bytes()
    with pytest.raises(ConfigError, match="other records"):
        revoke(keys.folder, IDS[3], 0, [known])
    assert file.read_bytes() == before


def test_a_full_disk_leaves_the_list_as_it_was(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    revoke(keys.folder, IDS[0], 0)
    before = (keys.folder / "revoked").read_bytes()
    with monkeypatch.context() as patch:
        write = os.pwrite
        patch.setattr(os, "pwrite", lambda file, data, at: write(file, data[:40], at))
        with pytest.raises(OSError, match="No space"):
            revoke(keys.folder, IDS[1], 0)
    assert (keys.folder / "revoked").read_bytes() == before


def test_a_full_list_advises_to_replace_the_authority(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revoked_file, "MOST_RECORDS", 2)
    revoke(keys.folder, IDS[0], 0)
    revoke(keys.folder, IDS[1], 0)
    with pytest.raises(LocalError, match="keys rotate"):
        revoke(keys.folder, IDS[2], 0)
    assert not revoke(keys.folder, IDS[1], 0)[1]
    assert revoked(keys) == IDS[:2]


def test_nobody_revokes_without_the_key(keys: Keys) -> None:
    (keys.folder / "authority.key").unlink()
    with pytest.raises(FileNotFoundError):
        revoke(keys.folder, IDS[0], 0)
    assert listed(keys) is None


def test_the_next_authority_signs_what_has_not_expired(keys: Keys) -> None:
    for id, expires_at in zip(IDS, (0, NOW + 1, NOW - 2 * DAY_S), strict=False):
        revoke(keys.folder, id, int(expires_at))
    keys.rotate(RotationStep.PREPARED)
    revoke(keys.folder, IDS[3], 0)
    assert signers(keys) == [keys.old.certificate]
    keys.rotate(RotationStep.SWITCHED)
    assert revoked(keys) == [IDS[0], IDS[1], IDS[3]]
    revoke(keys.folder, IDS[4], 0)
    keys.renew()
    keys.rotate(RotationStep.FINISHED)
    assert revoked(keys) == [IDS[0], IDS[1], IDS[3], IDS[4]]
    assert signers(keys) == [Authority.load(keys.folder).certificate] != [keys.old.certificate]
    assert not revoke(keys.folder, IDS[0], 0)[1]


@pytest.mark.parametrize("then", ["revoke", "rotate 2", "rotate 3"])
def test_a_token_stays_revoked_although_the_second_step_was_interrupted(
    keys: Keys, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """The next authority signs already, and the list is that of the old one."""
    revoke(keys.folder, IDS[0], 0)
    keys.rotate(RotationStep.PREPARED)
    with monkeypatch.context() as patch, suppress(InterruptedError):
        patch.setattr(rotation, "sign_again", _no_power)
        keys.rotate(RotationStep.SWITCHED)
    assert signers(keys) == [keys.old.certificate]
    assert revoked(keys) == IDS[:1]
    keys.renew()
    if then == "revoke":
        revoke(keys.folder, IDS[1], 0)
    else:
        keys.rotate(RotationStep.SWITCHED if then == "rotate 2" else RotationStep.FINISHED)
    assert signers(keys) == [Authority.load(keys.folder).certificate] != [keys.old.certificate]
    assert revoked(keys)[:1] == IDS[:1]


def test_the_next_authority_signs_nothing_that_the_old_one_has_not_signed(keys: Keys) -> None:
    for id in IDS[:3]:
        revoke(keys.folder, id, 0)
    file = keys.folder / "revoked"
    file.write_bytes(file.read_bytes().replace(IDS[1], IDS[5]))
    keys.rotate(RotationStep.PREPARED)
    with pytest.raises(ConfigError, match="record 2: the authority has not signed it"):
        keys.rotate(RotationStep.SWITCHED)


def _no_power(*_: object) -> None:
    raise InterruptedError
