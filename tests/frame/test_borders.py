"""The borders of the Rust half (docs/architecture.md, "Borders"): who may name Python, `unsafe`, a clock."""

from __future__ import annotations

import re

import pytest

from tests.frame.checkout import RUST, rust_code, rust_sources

SHELL = {"endpoint.rs", "python.rs", "socket.rs", "worker.rs"}
"""The files that may know of threads, clocks and sockets. All others are sans-IO."""


@pytest.mark.parametrize(
    ("what", "pattern", "allowed"),
    [
        ("Python", r"\bpyo3\b", {"python.rs"}),
        ("unsafe code", r"\bunsafe\b|allow\(unsafe_code\)", {"socket.rs"}),
        ("a clock", r"\b(Instant|SystemTime)\b", SHELL),
        ("a socket", r"\b(socket2|libc|UdpSocket|TcpStream)\b", SHELL),
        ("a thread", r"\bthread::|\bsleep\(", SHELL),
        ("the system's randomness", r"\b(thread_rng|from_os_rng|OsRng|getrandom)\b", {"python.rs"}),
    ],
)
def test_only_these_files_name(what: str, pattern: str, allowed: set[str]) -> None:
    naming = {path.name for path in rust_sources() if re.search(pattern, rust_code(path))}
    assert naming <= allowed, f"{what}: {sorted(naming - allowed)}"


def test_every_module_is_declared() -> None:
    declared = set(re.findall(r"\bmod (\w+);", rust_code(RUST / "lib.rs")))
    assert {path.stem for path in RUST.glob("*.rs")} - {"lib"} == declared


def test_comments_are_no_code() -> None:
    assert "pyo3" in (RUST / "lib.rs").read_text(encoding="utf-8")
    assert "pyo3" not in rust_code(RUST / "lib.rs")
