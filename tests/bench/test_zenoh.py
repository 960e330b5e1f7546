"""The program for Zenoh uses source files of `hbroker bench`, which must be at the expected paths."""

from __future__ import annotations

import re

from bench.contestants.zenoh import Zenoh
from tests.frame.checkout import ROOT, RUST

_SOURCES = ROOT / "bench" / "zenoh" / "src"


def test_the_shared_source_files_exist() -> None:
    shared = re.findall(r'#\[path = "(.+)"\]', (_SOURCES / "bench.rs").read_text("utf-8"))
    assert len(shared) >= 3
    for path in shared:
        assert (_SOURCES / path).resolve().is_relative_to(RUST / "bench")
        assert (_SOURCES / path).exists(), path


def test_the_lock_file_has_the_version_of_the_manifest() -> None:
    manifest = (_SOURCES.parent / "Cargo.toml").read_text("utf-8")
    locked = (_SOURCES.parent / "Cargo.lock").read_text("utf-8")
    wanted = re.search(r'^zenoh = \{ version = "=(.+?)"', manifest, re.MULTILINE)
    assert wanted is not None
    assert f'name = "zenoh"\nversion = "{wanted[1]}"' in locked


def test_each_transport_is_a_separate_contestant() -> None:
    assert [Zenoh("tcp").name, Zenoh("udp").name] == ["zenoh TCP", "zenoh UDP"]
