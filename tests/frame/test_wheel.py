"""The wheel contains exactly the package, and works outside of the checkout.

docs/adr/0004-generic-names.md says how it includes the packages at the top of the repository.
"""

from __future__ import annotations

import json
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.frame.checkout import ROOT, run

pytestmark = pytest.mark.timeout(900)  # builds the core in release mode if there is none yet

NOT_SHIPPED = {"bench", "docs", "hbroker", "packaging", "scripts", "tests"}
SHIPPED_SUFFIXES = {".css", ".html", ".js", ".lua", ".properties", ".py", ".pyi", ".svg", ".typed", ".yaml"}

IMPORT_EVERYTHING = """
import importlib, json, pkgutil, hbroker

optional = {"litestar", "numpy", "opentelemetry", "paho", "psutil", "py4j", "pydantic", "pyspark", "scapy"}
optional |= {"textual", "uvicorn"}
names, refused = [], []
for module in pkgutil.walk_packages(hbroker.__path__, "hbroker."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in optional:
            refused.append(f"{module.name}: {error}")
    names.append(module.name)
print(json.dumps({"file": hbroker.__file__, "names": names, "refused": refused}))
"""

USE = """
import importlib.metadata, importlib.resources, json
from hbroker import _native
print(json.dumps({
    "home": importlib.resources.files("hbroker").joinpath("topologies/home.yaml").is_file(),
    "typed": importlib.resources.files("hbroker").joinpath("py.typed").is_file(),
    "versions": [_native.VERSION, importlib.metadata.version("hbroker")],
    "matches": [
        _native.topic_matches("home/+/lights", "home/kitchen/lights"),
        _native.topic_matches("home/+/lights", "home/kitchen/oven/lights"),
    ],
}))
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release wheel, built from this checkout."""
    return _built(tmp_path_factory.mktemp("wheel"), "build", "--release")


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` directory of a new environment with the wheel and its dependencies, and no extra."""
    home = tmp_path_factory.mktemp("environment")
    assert run([sys.executable, "-m", "venv", home]).returncode == 0
    installed = run([home / "bin" / "python", "-m", "pip", "install", "--quiet", wheel], cwd=home)
    assert installed.returncode == 0, installed.stderr
    return home / "bin"


def test_the_wheel_contains_exactly_the_package(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {name for name in names if name.startswith("hbroker/")}
    metadata = {name.partition("/")[0] for name in names - package}
    assert package == _package_files() | {"hbroker/_native.abi3.so"}
    assert len(metadata) == 1
    assert metadata.pop().endswith(".dist-info")


def test_the_wheel_contains_the_files_that_are_easily_lost(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "_native.pyi",
        "_proto/packet_pb2.py",
        "_proto/packet_pb2.pyi",
        "capture/hbroker.lua",
        "clients/hpub.py",
        "clients/hsub.py",
        "http_api/dashboard/index.html",
        "http_api/dashboard/views/tree.js",
        "py.typed",
        "spark_analysis/log4j2.properties",
        "spark_analysis/report/page.css",
        "spark_analysis/report/page.js",
        "topologies/home.yaml",
    ):
        assert f"hbroker/{name}" in names
    assert not [name for name in names if name.endswith((".rs", "Cargo.toml", ".pyc"))]


def test_every_package_at_the_top_is_linked_below_hbroker() -> None:
    at_top = {path.parent.name for path in ROOT.glob("*/__init__.py")} - NOT_SHIPPED
    assert at_top
    for name in at_top:
        link = ROOT / "hbroker" / name
        assert link.is_symlink()
        assert link.readlink() == Path("..") / name


def test_the_source_distribution_contains_the_package_and_the_crate(tmp_path: Path) -> None:
    with tarfile.open(_built(tmp_path, "sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    rust = {path.relative_to(ROOT).as_posix() for path in (ROOT / "hbroker" / "native" / "src").rglob("*.rs")}
    assert _package_files() <= names
    assert rust <= names
    assert {"Cargo.toml", "Cargo.lock", "LICENSE", "README.md", "pyproject.toml"} <= names


def test_every_module_of_the_installed_wheel_can_be_imported(environment: Path, tmp_path: Path) -> None:
    answer = run([environment / "python", "-I", "-W", "error", "-c", IMPORT_EVERYTHING], cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert not Path(found["file"]).is_relative_to(ROOT)
    assert found["refused"] == []
    for name in ("_native", "_proto", "protocol", "runtime", "clients.hpub"):
        assert f"hbroker.{name}" in found["names"]


def test_the_installed_wheel_has_no_generic_top_level_name(environment: Path, tmp_path: Path) -> None:
    for name in ("bench", "clients", "sim", "spark_analysis", "tests", "topologies"):
        answer = run([environment / "python", "-I", "-c", f"import {name}"], cwd=tmp_path)
        assert "ModuleNotFoundError" in answer.stderr


def test_the_installed_wheel_works(environment: Path, tmp_path: Path) -> None:
    answer = run([environment / "python", "-I", "-c", USE], cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    ours, installed = found.pop("versions")
    assert ours == installed
    assert found == {"home": True, "typed": True, "matches": [True, False]}


@pytest.mark.parametrize("command", ["hbroker", "hpub", "hsub"])
def test_the_installed_commands_print_their_help(environment: Path, tmp_path: Path, command: str) -> None:
    answer = run([environment / command, "--help"], cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "usage: " in answer.stdout.lower()


def _built(out: Path, *command: str) -> Path:
    build = run([sys.executable, "-m", "maturin", *command, "--out", out])
    assert build.returncode == 0, build.stderr
    (made,) = out.iterdir()
    return made


def _package_files() -> set[str]:
    """The files of the package, by their names in a wheel, with links followed and without the crate."""
    links = [link for link in (ROOT / "hbroker").iterdir() if link.is_symlink()]
    return {
        path.relative_to(ROOT).as_posix()
        for top in (ROOT / "hbroker", *links)
        for path in top.rglob("*")
        if path.suffix in SHIPPED_SUFFIXES and path.relative_to(ROOT / "hbroker").parts[0] != "native"
    }
