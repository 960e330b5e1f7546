"""What was saved is loaded, private keys are private, and a faulty file is named."""

from __future__ import annotations

import os
import stat
from errno import ENOSPC
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from hbroker.errors import ConfigError
from hbroker.identity import authority, node_identity
from hbroker.identity.authority import Authority
from hbroker.identity.certificate import InvalidCertificate
from hbroker.identity.node_identity import Identity
from tests.identity.examples import AUTHORITY, NOW, OTHER_AUTHORITY

KITCHEN = AUTHORITY.issue("kitchen", ["home/kitchen"], NOW)
P256 = ec.generate_private_key(ec.SECP256R1())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def no_space(*_: object) -> None:
    raise OSError(ENOSPC, "no space")


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_an_authority_is_saved_and_loaded(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "authority"
    before = os.umask(umask)
    try:
        AUTHORITY.save(folder)
    finally:
        os.umask(before)
    files = [folder, folder / "authority.key", folder / "authority.crt"]
    assert [mode(each) for each in files] == [0o700, 0o600, 0o644]
    loaded = Authority.load(folder)
    assert (loaded.network, loaded.certificate) == ("house", AUTHORITY.certificate)
    assert AUTHORITY.verify(loaded.issue("kitchen", [""], NOW).chain[0], NOW).name == "kitchen"


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_an_identity_is_saved_and_loaded(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "nodes"
    before = os.umask(umask)
    try:
        KITCHEN.save(folder)
    finally:
        os.umask(before)
    files = [folder, folder / "kitchen.key", folder / "kitchen.crt"]
    assert [mode(each) for each in files] == [0o700, 0o600, 0o644]
    assert sorted(each.name for each in folder.iterdir()) == ["kitchen.crt", "kitchen.key"]
    assert Identity.load(folder, "kitchen") == KITCHEN


def test_a_chain_is_loaded_in_its_order(tmp_path: Path) -> None:
    chain = Identity((*KITCHEN.chain, AUTHORITY.certificate), KITCHEN.key)
    chain.save(tmp_path)
    assert Identity.load(tmp_path, "kitchen") == chain


def test_the_key_of_an_authority_is_never_replaced(tmp_path: Path) -> None:
    AUTHORITY.save(tmp_path)
    with pytest.raises(FileExistsError, match=r"authority\.crt"):
        OTHER_AUTHORITY.save(tmp_path)
    assert Authority.load(tmp_path).certificate == AUTHORITY.certificate


@pytest.mark.parametrize("step", ["write_key", "write_certificates", "make_folder"])
def test_an_authority_is_saved_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    folder = tmp_path / "authority"
    with monkeypatch.context() as patch:
        patch.setattr(authority, step, no_space)
        with pytest.raises(OSError, match="no space"):
            OTHER_AUTHORITY.save(folder)
    with pytest.raises(FileNotFoundError):
        Authority.load(folder)
    AUTHORITY.save(folder)
    assert Authority.load(folder).certificate == AUTHORITY.certificate
    (folder / "authority.key").unlink()
    with pytest.raises(FileExistsError, match=r"authority\.crt"):
        OTHER_AUTHORITY.save(folder)


def test_a_certificate_is_never_beside_the_key_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KITCHEN.save(tmp_path)

    for step in ("write_key", "write_certificates"):
        with monkeypatch.context() as patch:
            patch.setattr(node_identity, step, no_space)
            with pytest.raises(OSError, match="no space"):
                AUTHORITY.issue("kitchen", [""], NOW).save(tmp_path)
        with pytest.raises(FileNotFoundError):
            Identity.load(tmp_path, "kitchen")


def test_a_renewal_with_the_same_key_replaces_the_certificate_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KITCHEN.save(tmp_path)
    renewed = AUTHORITY.issue("kitchen", [""], NOW, key=KITCHEN.key)

    with monkeypatch.context() as patch:
        patch.setattr(node_identity, "write_certificates", no_space)
        with pytest.raises(OSError, match="no space"):
            renewed.save(tmp_path)
    assert Identity.load(tmp_path, "kitchen") == KITCHEN
    renewed.save(tmp_path)
    assert Identity.load(tmp_path, "kitchen") == renewed


# Faulty files


def encrypted(key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))


FAULTS = {
    "empty": b"",
    "no PEM": b"\xff" * 50,
    "damaged PEM": b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    "encrypted": encrypted(Ed25519PrivateKey.generate()),
}


@pytest.mark.parametrize("content", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("suffix", ["key", "crt"])
def test_a_faulty_file_is_named(tmp_path: Path, content: bytes, suffix: str) -> None:
    AUTHORITY.save(tmp_path / "authority")
    KITCHEN.save(tmp_path)
    for file in (tmp_path / f"authority/authority.{suffix}", tmp_path / f"kitchen.{suffix}"):
        file.write_bytes(content)
    with pytest.raises(ConfigError) as of_authority:
        Authority.load(tmp_path / "authority")
    assert of_authority.value.file == str(tmp_path / f"authority/authority.{suffix}")
    with pytest.raises(ConfigError) as of_node:
        Identity.load(tmp_path, "kitchen")
    assert of_node.value.file == str(tmp_path / f"kitchen.{suffix}")


def test_a_certificate_of_another_node_is_refused(tmp_path: Path) -> None:
    KITCHEN.save(tmp_path)
    for suffix in ("crt", "key"):
        (tmp_path / f"kitchen.{suffix}").rename(tmp_path / f"attic.{suffix}")
    with pytest.raises(ConfigError, match="that of the node kitchen"):
        Identity.load(tmp_path, "attic")


def test_a_certificate_of_another_key_is_refused(tmp_path: Path) -> None:
    for folder, identity in [("one", KITCHEN), ("two", AUTHORITY.issue("kitchen", [""], NOW))]:
        identity.save(tmp_path / folder)
    for folder, each in [("one", AUTHORITY), ("two", OTHER_AUTHORITY)]:
        each.save(tmp_path / folder / "authority")
    for file in ("kitchen.crt", "authority/authority.crt"):
        (tmp_path / "one" / file).replace(tmp_path / "two" / file)
    with pytest.raises(ConfigError, match=r"not the certificate of the key in .*kitchen\.key"):
        Identity.load(tmp_path / "two", "kitchen")
    with pytest.raises(ConfigError, match="not the certificate of this key"):
        Authority.load(tmp_path / "two/authority")


def test_the_certificate_of_a_node_is_not_that_of_an_authority(tmp_path: Path) -> None:
    KITCHEN.save(tmp_path)
    for suffix in ("crt", "key"):
        (tmp_path / f"kitchen.{suffix}").rename(tmp_path / f"authority.{suffix}")
    with pytest.raises(ConfigError, match="not usable"):
        Authority.load(tmp_path)


def test_the_certificate_of_an_authority_is_not_that_of_a_node(tmp_path: Path) -> None:
    AUTHORITY.save(tmp_path)
    with pytest.raises(ConfigError, match="not a certificate of a node"):
        Identity.load(tmp_path, "authority")
    with pytest.raises(InvalidCertificate):
        Identity((AUTHORITY.certificate,), KITCHEN.key).save(tmp_path)


def test_an_authority_without_its_certificate_says_so(tmp_path: Path) -> None:
    AUTHORITY.save(tmp_path)
    (tmp_path / "authority.crt").unlink()
    with pytest.raises(ConfigError, match=r"authority\.crt: the certificate of the authority is missing"):
        Authority.load(tmp_path)
