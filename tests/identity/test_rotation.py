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

    def rotate(self, step: RotationStep) -> None:
        rotate(self.folder, self.identities, step, NOW)

    def renew(self) -> None:
        """What `hbroker up` does when it gets SIGHUP."""
        key = Identity.load(self.identities, "kitchen").key
        Authority.load(self.folder).issue("kitchen", ["home"], NOW, key=key).save(self.identities)

    def files(self) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in self.folder.iterdir()}

    def believed(self) -> int:
        """How many authorities there are in the file that everybody has."""
        return len(read_certificates(self.folder / "authority.crt"))


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


STEPS = (RotationStep.PREPARED, RotationStep.SWITCHED, RotationStep.FINISHED)


def test_everybody_believes_both_authorities_before_the_second_signs(keys: Keys) -> None:
    keys.rotate(RotationStep.PREPARED)
    assert keys.believed() == 2
    assert Authority.load(keys.folder).certificate == keys.old.certificate
    keys.rotate(RotationStep.SWITCHED)
    following = Authority.load(keys.folder)
    assert keys.believed() == 2
    assert following.certificate != keys.old.certificate
    assert following.network == "house"
    keys.renew()
    keys.rotate(RotationStep.FINISHED)
    (certificate,) = read_certificates(keys.folder / "authority.crt")
    assert certificate == following.parsed
    assert {file.name for file in keys.folder.iterdir()} == {"authority.crt", "authority.key"}
    assert (keys.folder / "authority.key").stat().st_mode & 0o777 == 0o600


def test_a_step_that_is_done_changes_nothing_and_none_is_left_out(keys: Keys) -> None:
    for step in STEPS:
        for other in STEPS:
            before = keys.files()
            keys.rotate(RotationStep((step - 1) % 3))
            assert keys.files() == before
            if other not in (step, (step - 1) % 3):
                with pytest.raises(ConfigError, match=f"step {step or 3} is next"):
                    keys.rotate(other)
        keys.rotate(step)
        keys.renew()


def test_the_old_authority_is_believed_as_long_as_a_node_has_its_certificate(keys: Keys) -> None:
    keys.rotate(RotationStep.PREPARED)
    keys.rotate(RotationStep.SWITCHED)
    with pytest.raises(ConfigError, match=r"kitchen\.crt.*not signed by the authority"):
        keys.rotate(RotationStep.FINISHED)
    assert keys.believed() == 2
    keys.renew()
    keys.rotate(RotationStep.FINISHED)


@pytest.mark.parametrize("broken", ["write_key", "write_certificates", "replace"])
def test_a_step_that_was_interrupted_is_done_again(
    keys: Keys, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    for step in STEPS:
        with monkeypatch.context() as patch, suppress(InterruptedError):
            patch.setattr(os if broken == "replace" else rotation, broken, no_power)
            keys.rotate(step)
        # Whatever is on the disk now, whoever reads it goes on.
        keys.renew()
        keys.rotate(step)
        keys.renew()
    (certificate,) = read_certificates(keys.folder / "authority.crt")
    assert certificate == Authority.load(keys.folder).parsed != keys.old.parsed


def no_power(*_: object) -> None:
    raise InterruptedError


def test_a_key_of_another_time_is_refused(keys: Keys) -> None:
    keys.rotate(RotationStep.PREPARED)
    (keys.folder / "next.key").write_bytes((keys.folder / "authority.key").read_bytes())
    with pytest.raises(ConfigError, match="not the key of the second certificate"):
        keys.rotate(RotationStep.SWITCHED)
    assert Authority.load(keys.folder).certificate == keys.old.certificate


def test_without_the_next_key_the_old_authority_is_not_taken_for_the_next(keys: Keys) -> None:
    keys.rotate(RotationStep.PREPARED)
    (keys.folder / "next.key").unlink()
    with pytest.raises(FileNotFoundError, match=r"next\.key"):
        keys.rotate(RotationStep.SWITCHED)
    with pytest.raises(ConfigError, match="step 2 is next"):
        keys.rotate(RotationStep.FINISHED)
    assert keys.believed() == 2


def test_without_its_key_no_authority_is_replaced(keys: Keys) -> None:
    (keys.folder / "authority.key").unlink()
    with pytest.raises(FileNotFoundError):
        keys.rotate(RotationStep.PREPARED)
    assert keys.believed() == 1
