"""The documentation builds without a warning, and what the code cites exists."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hbroker.cli import commands
from hbroker.metrics.families import LOSSES
from tests.frame.checkout import ROOT, RUST, python_sources, run, rust_sources

DOCS = ROOT / "docs"
COMMANDS = DOCS / "commands.md"

# A § of this project's protocol, which has two levels. A § of an RFC or of MQTT has its document's name
# before it.
CITATION = re.compile(
    r"(?P<of>(?:RFC \d+|MQTT 5(?:\.0)?|DESIGN(?:\.md)?),? )?§(?P<section>\d+(?:\.\d+)?)(?!\.?\d)"
)


def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    build = run([sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"])
    assert build.returncode == 0, build.stderr
    assert (tmp_path / "site" / "protocol" / "index.html").is_file()


def test_cited_sections_exist() -> None:
    sections = set(re.findall(r"^#+ ([\d.]+?)\.? ", (DOCS / "protocol.md").read_text("utf-8"), re.MULTILINE))
    assert "5.4" in sections
    files = [*python_sources("hbroker", "clients", "tests"), *rust_sources(), DOCS / "protocol.md"]
    for path in files:
        cited = {
            match["section"] for match in CITATION.finditer(path.read_text("utf-8")) if match["of"] is None
        }
        assert cited <= sections, path


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_pages_outside_of_the_site_link_to_existing_files(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text("utf-8")):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_the_pages_name_the_versions_that_a_build_needs() -> None:
    preflight = (ROOT / "scripts" / "preflight.sh").read_text("utf-8")
    python, rust = re.findall(r"OLDEST_(?:PYTHON|RUST)=([\d.]+)", preflight)
    for page in ("README.md", "CONTRIBUTING.md", "docs/install.md"):
        text = (ROOT / page).read_text("utf-8")
        assert f"Python {python} or later" in text, page
        assert re.search(rf"Rust\S* {re.escape(rust)} or later", text), page
    (version,) = re.findall(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text("utf-8"), re.MULTILINE)
    assert f"`hbroker {version}`" in (DOCS / "install.md").read_text("utf-8")


def test_decision_records_are_numbered_and_listed() -> None:
    records = sorted((DOCS / "adr").glob("[0-9]*.md"))
    index = (DOCS / "adr" / "index.md").read_text("utf-8")
    for number, record in enumerate(records, start=1):
        assert record.name.startswith(f"{number:04}-")
        title = record.read_text("utf-8").splitlines()[0].removeprefix("# ")
        assert f"[{title}]({record.name})" in index


@pytest.mark.parametrize("program", ["hbroker", "hpub", "hsub"])
def test_the_command_reference_names_exactly_the_flags_of_each_command(program: str) -> None:
    """The section of each command names all its flags, and no others."""
    reference = COMMANDS.read_text("utf-8")
    for command in _commands(program):
        answer = run([*command, "--help"])
        assert answer.returncode == 0, answer.stderr
        heading = f"## {' '.join(command)}\n"
        assert heading in reference, heading
        section = reference.partition(heading)[2].partition("\n## ")[0]
        assert _long_flags(section) | {"--help"} == _long_flags(answer.stdout), command


def _commands(program: str) -> list[list[str]]:
    """The program, and each of its commands."""
    return [[program], *([program, name] for name in commands.COMMANDS if program == "hbroker")]


def _long_flags(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def test_every_reason_of_a_drop_is_documented_and_every_loss_is_marked() -> None:
    told = re.findall(r"^\| (`.+?) \| ", COMMANDS.read_text("utf-8").partition("| reason |")[2], re.MULTILINE)
    documented = {name for row in told for name in re.findall(r"`([a-z]+_?[a-z_]*)`", row)}
    sources = "".join(path.read_text("utf-8") for path in [*rust_sources(), *python_sources("hbroker")])
    (core,) = re.findall(r"\ndrops! \{\n(.*?)\n\}\n", sources, re.DOTALL)
    of_sockets = re.findall(r'\("drop\.([a-z_]+)", &self', sources)
    of_control = re.findall(r'\.drop\("([a-z_]+)"\)', sources)
    reasons = {*re.findall(r'"([a-z_]+)"', core), *of_sockets, *of_control}
    assert len(reasons) > 20
    assert reasons <= documented
    assert {re.findall(r"`(.+)`", row)[0] for row in told if row.endswith("(lost)")} == LOSSES


def test_every_file_in_the_architecture_exists() -> None:
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    named = set(re.findall(r"`([\w./]+/\w+\.(?:py|rs|yaml))`", page))
    assert len(named) > 40
    places = (ROOT, ROOT / "hbroker", RUST)
    assert not [name for name in sorted(named) if not any((place / name).exists() for place in places)]
