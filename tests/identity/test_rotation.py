"""The authority is replaced in three steps, and each step can be done again after a crash."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from hbroker.errors import ConfigError
from hbroker.identity import rotation
from hbroker.identity.authority import Authority
from hbroker.identity.node_identity import Identity
from hbroker.identity.pem_files import read_certificates
from hbroker.identity.rotation import RotationStep, rotate

NOW = 1_800_000_000.0


class Keys:
    """An authority, and the identity of one node."""

    def __init__(self, directory: Path) -> None:
        self.folder, self.identities = directory / "authority", directory / "identities"
        self.old = Authority.create("house", NOW)
        self.old.save(self.folder)
        self.old.issue("kitchen", ["home"], NOW).save(self.identities)

    def rotate(self) -> RotationStep:
        return rotate(self.folder, self.identities, NOW)

    def renew(self) -> None:
        """What `hbroker up` does when it gets SIGHUP."""
        key = Identity.load(self.identities, "kitchen").key
        Authority.load(self.folder).issue("kitchen", ["home"], NOW, key=key).save(self.identities)

    def believed(self) -> int:
        """How many authorities there are in the file that everybody has."""
        return len(read_certificates(self.folder / "authority.crt"))


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def test_everybody_believes_both_authorities_before_the_second_signs(keys: Keys) -> None:
    assert keys.rotate() is RotationStep.PREPARED
    assert keys.believed() == 2
    assert Authority.load(keys.folder).certificate == keys.old.certificate
    assert keys.rotate() is RotationStep.SWITCHED
    following = Authority.load(keys.folder)
    assert keys.believed() == 2
    assert following.certificate != keys.old.certificate
    assert following.network == "house"
    keys.renew()
    assert keys.rotate() is RotationStep.FINISHED
    (certificate,) = read_certificates(keys.folder / "authority.crt")
    assert certificate == following.parsed
    assert {file.name for file in keys.folder.iterdir()} == {"authority.crt", "authority.key"}
    assert (keys.folder / "authority.key").stat().st_mode & 0o777 == 0o600
    assert keys.rotate() is RotationStep.PREPARED


def test_the_old_authority_is_believed_as_long_as_a_node_has_its_certificate(keys: Keys) -> None:
    keys.rotate()
    keys.rotate()
    with pytest.raises(ConfigError, match=r"kitchen\.crt.*not signed by the authority"):
        keys.rotate()
    assert keys.believed() == 2
    keys.renew()
    assert keys.rotate() is RotationStep.FINISHED


@pytest.mark.parametrize("broken", ["write_key", "write_certificates", "unlink"])
def test_a_step_that_was_interrupted_is_done_again(
    keys: Keys, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    steps = [RotationStep.PREPARED]
    while steps[-1] is not RotationStep.FINISHED:
        with monkeypatch.context() as patch, suppress(InterruptedError):
            patch.setattr(os if broken == "unlink" else rotation, broken, no_power)
            steps.append(keys.rotate())
        # Whatever is on the disk now, whoever reads it goes on.
        keys.renew()
        if steps[-1] is not RotationStep.FINISHED:
            steps.append(keys.rotate())
            keys.renew()
    (certificate,) = read_certificates(keys.folder / "authority.crt")
    assert certificate == Authority.load(keys.folder).parsed != keys.old.parsed


def no_power(*_: object) -> None:
    raise InterruptedError


def test_a_key_of_another_time_is_refused(keys: Keys) -> None:
    keys.rotate()
    other = Authority.create("house", NOW)
    rotation.write_key(keys.folder / "next.key", other.key)
    with pytest.raises(ConfigError, match="no certificate of this key"):
        keys.rotate()
    assert Authority.load(keys.folder).certificate == keys.old.certificate


def test_without_its_key_no_authority_is_replaced(keys: Keys) -> None:
    (keys.folder / "authority.key").unlink()
    with pytest.raises(FileNotFoundError):
        keys.rotate()
    assert len(read_certificates(keys.folder / "authority.crt")) == 1
