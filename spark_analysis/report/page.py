"""The page: head, style, sections, script. It loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from . import sections
from .markup import Content, Markup, tag
from .rows import Section


def page(
    summary: Mapping[str, Any], tables: Mapping[str, list[dict[str, Any]]], more: Sequence[Section] = ()
) -> str:
    """The report as one HTML document. `more`: sections after those of the measurement."""

    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", "Load of the network"),
        tag("style", _resource("page.css")),
    ]
    measured = sections.of_measurement(summary, tables)
    shown: Iterable[Section] = [*measured, *more, *sections.of_files(summary, tables)]
    body = [
        sections.header(summary, tables),
        tag("main", [_section(section) for section in shown]),
        tag("div", id="tip", role="tooltip", hidden=""),
        tag("script", _resource("page.js")),
    ]
    return f'<!doctype html>\n<html lang="en-GB">{tag("head", head)}{tag("body", body)}</html>\n'


def _section(section: Section) -> Markup:
    parts: list[Content] = [tag("h2", section.title), tag("p", section.lead, class_="lead"), section.body]
    if section.note:
        parts.append(tag("p", section.note, class_="note"))
    return tag("section", parts)


def _resource(name: str) -> Markup:
    return Markup(files(__package__).joinpath(name).read_text("utf-8"))
