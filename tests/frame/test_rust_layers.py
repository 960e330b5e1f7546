"""The borders of the Rust half (docs/architecture.md, "Borders"): which modules may use Python, `unsafe`
or a clock."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.frame.checkout import RUST, is_rust_test, rust_code, rust_sources

SHELL = ("bench/io", "endpoint", "mqtt/io", "python")
"""The modules that may use threads, clocks and sockets. All others are sans-IO."""


@pytest.mark.parametrize(
    ("what", "pattern", "allowed"),
    [
        ("Python", r"\bpyo3\b", ("python",)),
        ("unsafe code", r"\bunsafe\b|allow\(unsafe_code\)", ("endpoint/socket",)),
        ("a clock", r"\b(Instant|SystemTime)\b", (*SHELL, "store/churn")),
        ("a socket", r"\b(socket2|libc|UdpSocket|TcpStream)\b", SHELL),
        ("a thread", r"\bthread::|\bsleep\(", (*SHELL, "store/merge")),
        ("the system's randomness", r"\b(thread_rng|from_os_rng|OsRng|getrandom)\b", ("python",)),
    ],
)
def test_only_the_allowed_modules_use_it(what: str, pattern: str, allowed: tuple[str, ...]) -> None:
    naming = [_module(path) for path in rust_sources() if re.search(pattern, _shipped(path))]
    outside = [module for module in naming if not is_in(module, allowed)]
    assert not outside, f"{what}: {outside}"


def test_every_file_is_a_module_of_the_crate() -> None:
    declaration = re.compile(r'\bmod (\w+);|#\[path = "(\w+)\.rs"\]')
    declared = {
        name for path in rust_sources() for names in declaration.findall(rust_code(path)) for name in names
    }
    files = {path.parent.name if path.stem == "mod" else path.stem for path in rust_sources()}
    assert files - {"lib"} <= declared | {"schema"}


def test_the_module_of_a_folder_is_in_it_as_mod() -> None:
    assert not [path for path in rust_sources() if path.with_suffix("").is_dir()]


def test_comments_are_removed_from_the_code() -> None:
    assert "pyo3" in (RUST / "lib.rs").read_text("utf-8")
    assert "pyo3" not in rust_code(RUST / "lib.rs")


def _shipped(path: Path) -> str:
    """A file's code without its tests, which are last, or in a folder of their own."""
    return "" if is_rust_test(path) else re.split(r"#\[cfg\(test\)\]\s+mod tests \{", rust_code(path))[0]


def is_in(module: str, parents: tuple[str, ...]) -> bool:
    """Whether a module is one of these, or within one."""
    return any(module == parent or module.startswith(f"{parent}/") for parent in parents)


def _module(path: Path) -> str:
    """The module of a file, as a path in the crate."""
    return path.relative_to(RUST).as_posix().removesuffix(".rs").removesuffix("/mod")
