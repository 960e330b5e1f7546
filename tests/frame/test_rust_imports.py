"""No file of the Rust half imports one that imports it back, directly or through others
(docs/architecture.md, "Layers"). A file may import the module that contains it, because a part of a module
extends that module."""

from __future__ import annotations

import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.frame.checkout import RUST, is_rust_test, rust_code, rust_sources

USE = re.compile(r"\buse\s+([a-z_]+::[^;]+);")


def test_no_file_imports_one_that_imports_it_back() -> None:
    modules = {_module(path): path for path in rust_sources() if not is_rust_test(path)}
    imports = {module: set(_imports(module, path, modules)) for module, path in modules.items()}
    assert sum(map(len, imports.values())) > 1_000, "the imports are found"
    TopologicalSorter(imports).prepare()


def test_a_circle_is_found() -> None:
    modules = {"a": Path(), "b": Path(), "b::part": Path()}
    assert [*_known("a", ["crate::b::part::Thing", "crate::b", "self::c"], modules)] == ["b::part", "b"]
    assert [*_known("b::part", ["super::Thing", "super::super::a::Thing"], modules)] == ["a"]
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()


def test_the_paths_of_a_use_are_expanded() -> None:
    assert [*_paths("crate::a::{self, B, c::{D, E as F}}")] == [
        "crate::a::self",
        "crate::a::B",
        "crate::a::c::D",
        "crate::a::c::E",
    ]


def _imports(module: str, path: Path, modules: dict[str, Path]) -> Iterator[str]:
    code = re.split(r"#\[cfg\(test\)\]\s+mod tests\s*\{", rust_code(path))[0]
    used = [path for tree in USE.findall(code) for path in _paths(re.sub(r"\s+", " ", tree))]
    used = [f"self::{path}" if f"{module}::{path.split('::')[0]}" in modules else path for path in used]
    named = re.findall(r"\bcrate(?:::\w+)+", code)
    yield from _known(module, [*used, *named], modules)


def _known(module: str, paths: list[str], modules: dict[str, Path]) -> Iterator[str]:
    """The modules that contain what these paths name, without `module` and those that contain it."""
    for path in paths:
        parts, base = path.split("::"), module.split("::")
        match parts[0]:
            case "crate":
                base = []
            case "super":
                base = base[: -parts.count("super")]
            case "self":
                pass
            case _:
                continue  # A path of a library.
        named = base + [part for part in parts if part not in {"crate", "super", "self"}]
        prefixes = ("::".join(named[:length]) for length in range(len(named), 0, -1))
        found = next((prefix for prefix in prefixes if prefix in modules), module)
        if module != found and not module.startswith(f"{found}::"):
            yield found


def _paths(tree: str) -> Iterator[str]:
    """The paths that a tree of `use` names: `a::{b, c}` is `a::b` and `a::c`."""
    head, brace, rest = tree.partition("{")
    if not brace:
        yield tree.partition(" as ")[0].strip()
        return
    depth, part = 0, ""
    for character in rest.rpartition("}")[0] + ",":
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            yield from _paths(head.strip() + part.strip()) if part.strip() else ()
            part = ""
        else:
            part += character


def _module(path: Path) -> str:
    return "::".join(path.relative_to(RUST).with_suffix("").parts).removesuffix("::mod")
