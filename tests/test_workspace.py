"""Names of topics, filters and clients in workspaces: both directions, and that two workspaces never meet."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hbroker._native import filter_is_valid, topic_is_valid, topic_matches
from hbroker.protocol.sessions.options import session_id
from hbroker.protocol.subscriptions import shared
from hbroker.topic_filters import covers, overlap
from hbroker.workspace import DEFAULT, Workspace, name_is_valid, name_of
from tests.topics import EVERY_TOPIC, FILTERS, TOPICS

ACME, OTHER, ACM = Workspace("acme"), Workspace("other"), Workspace("acm")
WORKSPACES = [DEFAULT, ACME, OTHER, ACM, Workspace("a" * 64)]
LOCAL_TOPICS = TOPICS.filter(lambda topic: not topic.startswith("$"))
LOCAL_FILTERS = FILTERS.filter(lambda filter: not filter.startswith("$"))


@example("/")
@example("//")
@example("#")
@example("+")
@example("/#")
@example("+/+")
@example("workspace/acme/a")
@given(LOCAL_FILTERS | LOCAL_TOPICS)
def test_a_name_comes_back_as_it_was(local: str) -> None:
    for workspace in WORKSPACES:
        absolute = workspace.absolute(local)
        assert absolute == workspace.prefix + local
        assert workspace.local(absolute) == local
        assert filter_is_valid(absolute)
        assert topic_is_valid(absolute) == topic_is_valid(local)
        others = [each for each in WORKSPACES if each not in (workspace, DEFAULT)]
        assert [each.local(absolute) for each in others] == [None] * len(others)
        assert name_of(absolute) == workspace.name


@given(LOCAL_FILTERS, LOCAL_TOPICS)
def test_a_filter_matches_within_a_workspace_what_it_matches_elsewhere(filter: str, topic: str) -> None:
    absolute = ACME.absolute(topic)
    matched = topic_matches(filter, topic)
    assert absolute is not None
    assert topic_matches(ACME.prefix + filter, absolute) == matched
    for workspace in (DEFAULT, OTHER, ACM):
        assert not topic_matches(workspace.prefix + filter, absolute)


@given(LOCAL_FILTERS, LOCAL_FILTERS)
def test_filters_of_two_workspaces_have_no_topic_in_common(one: str, other: str) -> None:
    for theirs in (DEFAULT, OTHER, ACM):
        pair = ACME.prefix + one, theirs.prefix + other
        assert not overlap(*pair)
        assert not covers(*pair)
        assert not covers(*reversed(pair))
    assert covers(ACME.prefix + one, ACME.prefix + other) == covers(one, other)


@given(LOCAL_FILTERS)
def test_the_filter_of_a_shared_group_is_that_within_it(filter: str) -> None:
    group, plain = shared.split(f"$share/readers/{filter}") or ("", "")
    assert (group, ACME.absolute(plain)) == ("readers", f"$workspace/acme/{filter}")


def test_no_workspace_has_a_topic_that_begins_with_a_dollar_sign() -> None:
    """MQTT 5 §4.7.2: no wildcard may match it, and none within the workspace does, because there is none."""
    hidden = [topic for topic in EVERY_TOPIC if topic.startswith("$")]
    for name in (*hidden, "", "$workspace/other/x", "$share/readers/x", "$SYS/#"):
        assert ACME.absolute(name) is None
        assert ACME.local(f"$workspace/acme/{name}") is None
        assert DEFAULT.absolute(name) == DEFAULT.local(name) == name
    for raw in ("$workspace/acme", "$workspace", "x"):
        assert ACME.local(raw) is None


@pytest.mark.parametrize("name", ["a", "0", "-", "a-b-0", "a" * 64])
def test_a_name_of_a_workspace(name: str) -> None:
    assert name_is_valid(name)
    assert Workspace(name).name == name


@pytest.mark.parametrize("name", ["A", "a" * 65, "a/b", "a b", "+", "#", "a_b", "ä", "$a", "a\n", "", "a\0"])
def test_what_is_no_name_of_a_workspace(name: str) -> None:
    assert not name_is_valid(name)
    if "/" not in name:
        assert name_of(f"$workspace/{name}/x") == ""
    if name:
        with pytest.raises(ValueError, match="no name of a workspace"):
            Workspace(name)


@pytest.mark.parametrize("wide", ["$workspace/#", "$workspace/+/x", "$workspace", "#", "$workspaces/a/b"])
def test_what_is_over_several_workspaces_is_of_none(wide: str) -> None:
    assert name_of(wide) == ""


@given(st.text(min_size=1), st.text(min_size=1), st.binary(max_size=8))
def test_clients_of_two_workspaces_have_no_name_and_no_session_in_common(
    one: str, other: str, key: bytes
) -> None:
    names = [ACME.client_name(one), OTHER.client_name(other), ACM.client_name(other)]
    if not other.startswith("$workspace/"):
        names.append(DEFAULT.client_name(other))
    assert len(set(names)) == len(names)
    assert len({session_id(name, key) for name in names}) == len(names)


def test_no_other_client_has_a_name_like_that_of_one_in_a_workspace() -> None:
    with pytest.raises(ValueError, match="does not begin with"):
        DEFAULT.client_name("$workspace/acme/oven")
    assert DEFAULT.client_name("acme/oven") == "acme/oven"
    assert ACME.client_name("$workspace/other/oven") == "$workspace/acme/$workspace/other/oven"
