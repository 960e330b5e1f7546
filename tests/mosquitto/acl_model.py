"""A model of mosquitto's access rules, from mosquitto.conf(5), `acl_file`, and random files for it.

The page does not say it, but mosquitto 2.0 does: no pattern applies to a client whose id or user name holds
`+` or `#`, and clients write nothing below `$SYS`.
"""

from __future__ import annotations

import re
from random import Random

from hypothesis import strategies as st

USERS = (None, "ann", "bob")
CLIENTS = ("c1", "c2", "ann")
LEVELS = ("a", "b", "ann", "c1", "%c", "%u", "+")
TOPICS = tuple(
    f"{first}/{second}{third}"
    for first in ("a", "ann", "c1")
    for second in ("b", "bob", "c2")
    for third in ("", "/a", "/c1")
)
ACCESS = ("read ", "write ", "readwrite ", "deny ", "")

_FILTER = st.tuples(
    st.lists(st.sampled_from(LEVELS), min_size=1, max_size=3), st.sampled_from(["", "/#"])
).map(lambda parts: "/".join(parts[0]) + parts[1])
_LINE = st.one_of(
    st.sampled_from(["user ann", "user bob", "# a comment", ""]),
    st.tuples(st.sampled_from(["topic", "pattern"]), st.sampled_from(ACCESS), _FILTER | st.just("#")).map(
        lambda parts: f"{parts[0]} {parts[1]}{parts[2]}"
    ),
)
FILES = st.lists(_LINE, max_size=10).map(lambda lines: "".join(f"{line}\n" for line in lines))


def random_file(random: Random) -> str:
    """A file of ten rules."""
    lines = []
    for _ in range(10):
        levels = [random.choice(LEVELS) for _ in range(random.randint(1, 3))]
        filter = "/".join(levels) + random.choice(("", "/#"))
        keyword = random.choice(("topic", "topic", "pattern", "user"))
        if keyword == "user":
            lines.append(f"user {random.choice(('ann', 'bob'))}")
        else:
            lines.append(f"{keyword} {random.choice(ACCESS)}{filter}")
    return "".join(f"{line}\n" for line in lines)


def may(text: str, user: str | None, client: str, topic: str, access: str) -> bool:
    """Whether mosquitto lets a client `read` or `write` a topic."""
    own: list[tuple[str, str]] = []
    patterns: list[tuple[str, str]] = []
    section: str | None = None
    for line in text.splitlines():
        keyword, _, rest = line.strip().partition(" ")
        if keyword == "user":
            section = rest
        elif keyword in ("topic", "pattern"):
            word, _, filter = rest.partition(" ")
            rule = (word, filter) if filter else ("readwrite", rest)
            if keyword == "pattern":
                patterns.append(rule)
            elif section == user:
                own.append(rule)
    # "Any "deny" topics are handled before topics that grant read/write access."
    filled = [(word, _filled(filter, user, client)) for word, filter in patterns]
    for rules in (own, [(word, filter) for word, filter in filled if filter is not None]):
        matching = [word for word, filter in rules if _matches(filter, topic)]
        if "deny" in matching:
            return False
        if access in matching or "readwrite" in matching:
            return True
    return False


def _filled(filter: str, user: str | None, client: str) -> str | None:
    if "%u" in filter and user is None:
        return None
    return filter.replace("%c", client).replace("%u", user or "")


def _matches(filter: str, topic: str) -> bool:
    if topic.startswith("$") and not filter.startswith("$"):
        return False
    body = filter.partition("#")[0]
    expression = re.escape(body).replace(r"\+", "[^/]*")
    if filter.endswith("/#"):
        expression = expression.removesuffix("/") + "(/.*)?"
    elif filter == "#":
        expression = ".*"
    return re.fullmatch(expression, topic) is not None
