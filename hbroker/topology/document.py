"""Turns the text of a file into YAML nodes that know their line, and collects the errors.

The text is composed, never constructed: no object is made of it, tags mean nothing, and aliases are not
expanded. So the size of a hostile file bounds its cost. The kind of a value is the one that YAML gives it
(`name: on` is a truth value, not a name), and the error message says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import TypeVar

import yaml

from hbroker.errors import ConfigError, ConfigErrors

T = TypeVar("T")

COMMAND_LINE = "command line"
"""Stands for the name of the file in errors of flags."""

MAX_BYTES = 1 << 20
"""The largest file, in bytes. It would list ten thousand nodes."""

_KINDS = {
    "str": "a text",
    "int": "a number",
    "float": "a number",
    "bool": "a truth value",
    "null": "empty",
    "timestamp": "a date",
    "seq": "a list",
    "map": "a mapping",
}


class Report:
    """Collects the errors of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._errors: list[ConfigError] = []

    def error(self, at: yaml.Node | int | None, message: str, remedy: str) -> None:
        """Notes an error at a YAML node, at a line (from 1), or, with None, of the file as a whole."""
        line = line_of(at) if isinstance(at, yaml.Node) else at
        file = COMMAND_LINE if isinstance(at, yaml.Node) and line is None else self.file
        self._errors.append(ConfigError(message, file=file, line=line, remedy=remedy))

    def raise_if_any(self) -> None:
        """Raises ConfigErrors with all noted errors, in the order of their lines, if there is any."""
        if self._errors:
            raise ConfigErrors(sorted(self._errors, key=lambda error: error.line or 0))

    def mapping(self, node: yaml.Node, label: str, keys: tuple[str, ...]) -> dict[str, yaml.Node]:
        """The values of a mapping, by key. Notes an error if the node is no mapping, and for each key that is
        unknown or occurs twice."""
        if not isinstance(node, yaml.MappingNode):
            remedy = f"write it as `key: value` lines with {listed(keys)}"
            self.error(node, f"{label} is {kind(node)}, not a mapping", remedy)
            return {}
        values: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if name not in keys:
                self.error(key, f"{label} has an unknown key {name!r}", _unknown_key_remedy(name, keys))
            elif name in values:
                remedy = f"keep one (the first is on line {line_of(values[name])})"
                self.error(key, f"{label} has the key {name!r} twice", remedy)
            else:
                values[name] = value
        return values

    def require(
        self, node: yaml.Node, label: str, values: Mapping[str, yaml.Node], needed: Mapping[str, str]
    ) -> None:
        """Notes an error for each key that a mapping lacks. `values`: of `mapping`. `needed`: the remedies by
        key."""
        for key in needed if isinstance(node, yaml.MappingNode) else ():
            if key not in values:
                self.error(node, f"{label} has no `{key}`", needed[key])

    def items(
        self, node: yaml.Node, label: str, example: str = "- {name: …, subtree: …, listen: …}"
    ) -> list[yaml.Node]:
        """The items of a list. Notes an error if the node is no list, or is an empty list."""
        if isinstance(node, yaml.SequenceNode) and node.value:
            return list(node.value)
        state = "an empty list" if isinstance(node, yaml.SequenceNode) else f"{kind(node)}, not a list"
        self.error(node, f"{label} is {state}", f"write one `{example}` line for each")
        return []

    def text(self, node: yaml.Node, label: str) -> str | None:
        """The text of a node; it may be empty if it is quoted. Notes an error for any other kind, and returns
        None."""
        if isinstance(node, yaml.ScalarNode) and _tag(node) == "str":
            return str(node.value)
        if _tag(node) == "null":
            self.error(node, f"{label} has no value", 'write one, or `""` for an empty text')
        else:
            quote = "put it into quotes" if isinstance(node, yaml.ScalarNode) else "write a text"
            self.error(node, f"{label} is {kind(node)}, not a text", quote)
        return None

    def truth(self, node: yaml.Node, label: str) -> bool | None:
        """A truth value. Notes an error for anything else, and returns None."""
        if isinstance(node, yaml.ScalarNode) and _tag(node) == "bool":
            text = str(node.value).lower()
            if text in ("true", "yes", "on", "false", "no", "off"):
                return text in ("true", "yes", "on")
        self.error(node, f"{label} is {kind(node)}, not a truth value", "write `true` or `false`")
        return None

    def number(self, node: yaml.Node, label: str) -> float | None:
        """A finite number, at least 0. Notes an error for anything else, and returns None."""
        if isinstance(node, yaml.ScalarNode) and _tag(node) in ("int", "float"):
            with suppress(ValueError):
                value = float(node.value)
                if 0 <= value < inf:
                    return value
        shown = f"{node.value[:20]!r}" if isinstance(node, yaml.ScalarNode) else kind(node)
        self.error(node, f"{label} is {shown}, not a number from 0 on", "write one, as 12.5")
        return None

    def integer(self, node: yaml.Node, label: str, low: int, high: int) -> int | None:
        """A whole number in decimal, from `low` to `high`. Notes an error for anything else, and returns
        None."""
        remedy = f"write a whole number from {low} to {high}"
        digits = node.value.removeprefix("-") if isinstance(node, yaml.ScalarNode) else ""
        if not (
            isinstance(node, yaml.ScalarNode)
            and _tag(node) == "int"
            and digits.isascii()
            and digits.isdigit()
        ):
            shown = f"{node.value!r}" if isinstance(node, yaml.ScalarNode) else kind(node)
            self.error(node, f"{label} is {shown}, not a whole number", remedy)
            return None
        if len(digits) > 18 or not low <= int(node.value) <= high:
            self.error(node, f"{label} is {node.value[:20]}, out of range", remedy)
            return None
        return int(node.value)

    def numbers(
        self, values: Mapping[str, yaml.Node], ranges: Mapping[str, tuple[int, int]]
    ) -> dict[str, int]:
        """The whole numbers among the values of a mapping. `ranges`: their keys, each with its smallest and
        largest value. Notes an error for each value that is none, and leaves it out."""
        read = {key: self.integer(values[key], key, *ranges[key]) for key in ranges if key in values}
        return {key: value for key, value in read.items() if value is not None}


def optional(
    values: Mapping[str, yaml.Node], key: str, read: Callable[[yaml.Node, str], T | None]
) -> T | None:
    """What `read(value, key)` returns for the value of a key; None: there is none."""
    return read(values[key], key) if key in values else None


def read_text(path: Path) -> str:
    """The text of a file. Raises ConfigErrors if the file cannot be read, is over `MAX_BYTES` or is not
    UTF-8."""
    report = Report(str(path))
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) <= MAX_BYTES:
            return content.decode("utf-8-sig")
        report.error(None, f"the file is over {MAX_BYTES} bytes", "name a topology file")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        report.error(line, "the text is not UTF-8", "save the file as UTF-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        report.error(
            None, f"cannot read the file ({reason})", "check its name and your permission to read it"
        )
    report.raise_if_any()
    raise AssertionError("an error was noted")


def compose(text: str, report: Report) -> yaml.Node | None:
    """The root node of the YAML document. Notes an error for wrong syntax and for an empty document, and
    returns None."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        report.error(
            line, f"not valid YAML: {error.problem or error.context}", _syntax_remedy(error.problem or "")
        )
        return None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        report.error(line, "the text holds a control character", "delete it")
        return None
    except RecursionError:
        report.error(None, "lists or mappings are nested too deeply", "follow the form of docs/topology.md")
        return None
    except ValueError as error:
        report.error(None, f"not valid YAML: {error}", "check the numbers and escapes")
        return None
    if node is None:
        report.error(None, "the file is empty", "list at least one node under `nodes:`")
    return node


def line_of(node: yaml.Node) -> int | None:
    """The line, from 1, on which a YAML node begins. None: the node was made of command-line flags."""
    return int(node.start_mark.line) + 1 if node.start_mark else None


def kind(node: yaml.Node) -> str:
    """The kind of a YAML node, in words."""
    return _KINDS.get(_tag(node), f"of the unknown kind {_tag(node)!r}")


def listed(names: tuple[str, ...]) -> str:
    """Names in backticks, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def _tag(node: yaml.Node) -> str:
    return str(node.tag).rpartition(":")[2]


def _unknown_key_remedy(name: str, keys: tuple[str, ...]) -> str:
    close = get_close_matches(name, keys, n=1)
    return f"did you mean `{close[0]}`?" if close else f"remove it; known here: {listed(keys)}"


def _syntax_remedy(problem: str) -> str:
    if "'\\t'" in problem:
        return "indent with spaces, not with tabs"
    if "another document" in problem:
        return "keep one document in the file: remove the `---`"
    return "check indentation, colons and quotes on this line and the one before"
