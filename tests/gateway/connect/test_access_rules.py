"""Access rules: mosquitto's file format, and what rules allow."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker._native import topic_matches
from hbroker.errors import ConfigErrors
from hbroker.gateway.access.access_lists import guarded
from hbroker.gateway.access.acl_file import OPEN, Acl, may_read_some, may_write, parse
from hbroker.gateway.native_api import Rule
from tests.topics import EVERY_TOPIC, FILTERS, TOPICS

RULES = st.lists(st.builds(Rule, FILTERS, st.booleans(), st.booleans(), st.booleans()), max_size=5)


@given(RULES, TOPICS)
def test_clients_cannot_write_to_reserved_topics(rules: list[Rule], topic: str) -> None:
    if topic.startswith("$"):  # no topic of these is a bridge's state
        assert not may_write(rules, topic)
        for rule in guarded(rules):
            assert not (rule.is_allowed and rule.for_write and topic_matches(rule.filter, topic))
        if topic.partition("/")[0] != "$SYS":
            assert not any(topic_matches(rule.filter, topic) for rule in guarded(rules))


STATE = "$SYS/broker/connection/house.bridge/state"


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("pattern write $SYS/broker/connection/%c/state", True),  # as in mosquitto.conf(5)
        ("topic write $SYS/broker/connection/house.bridge/state", True),
        ("topic readwrite $SYS/broker/connection/#", True),
        ("topic readwrite $SYS/#", True),
        ("topic read $SYS/#", False),
        ("topic readwrite #", False),
        ("topic deny $SYS/broker/connection/+/state\ntopic readwrite $SYS/#", False),
        ("pattern write $SYS/broker/connection/%c/other", False),
    ],
)
def test_a_bridge_writes_its_state_if_a_rule_allows_it(text: str, may: bool) -> None:
    rules = guarded(parse(text, "acl").rules(None, "house.bridge"))
    assert may_write(rules, STATE) == may
    for other in ("$SYS/broker/version", "$SYS/broker/connection", "$SYS/nodes/x", STATE + "/x", "$x"):
        assert not may_write(rules, other)
        assert not any(r.for_write and r.is_allowed and topic_matches(r.filter, other) for r in rules)


@given(RULES, FILTERS)
def test_a_subscription_is_refused_only_if_no_matching_topic_is_readable(
    rules: list[Rule], filter: str
) -> None:
    def may_read(topic: str) -> bool:
        return next((r.is_allowed for r in rules if r.for_read and topic_matches(r.filter, topic)), False)

    if not may_read_some(rules, filter):
        assert not any(may_read(topic) for topic in EVERY_TOPIC if topic_matches(filter, topic))


NAMES = st.text(st.sampled_from("ab+#/$%cu"), max_size=4)


@given(st.none() | NAMES, NAMES)
def test_a_wildcard_in_a_user_name_or_client_id_is_not_one_in_a_rule(user: str | None, client: str) -> None:
    acl = parse("pattern read of/%u/x\npattern read to/%c", "acl")
    for rule in acl.rules(user, client):
        assert "+" not in rule.filter
        assert "#" not in rule.filter
        assert rule.filter.count("/") == (2 if rule.filter.startswith("of/") else 1)


def test_a_placeholder_in_a_user_name_or_client_id_is_not_replaced() -> None:
    acl = parse("pattern read %c/%u", "acl")
    assert [rule.filter for rule in acl.rules("ann", "%u")] == ["%u/ann"]
    assert [rule.filter for rule in acl.rules("%c", "me")] == ["me/%c"]


def test_a_rule_file_of_mosquitto_is_parsed() -> None:
    acl = parse(
        """
        # anonymous
        topic read public/#

        user alice
        topic home/#
        topic deny home/secret
        user  bob smith
        topic write in/bob
        pattern readwrite own/%u/%c
        """,
        "acl",
    )
    assert acl.rules(None, "c") == (Rule("public/#", True, True, False),)
    assert acl.rules("alice", "c") == (
        Rule("home/secret", False, True, True),
        Rule("home/#", True, True, True),
        Rule("own/alice/c", True, True, True),
    )
    assert may_write(acl.rules("bob smith", "c"), "in/bob")
    assert not may_write(acl.rules("alice", "c"), "home/secret")
    assert acl.rules("nobody", "c") == (Rule("own/nobody/c", True, True, True),)
    assert acl.names_clients


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("user", "`user` names nobody"),
        ("topics read x", "'topics' is not known here"),
        ("topic", "the rule names no topic"),
        ("topic read", "the rule names no topic"),
        ("topic read a/#/b", "'a/#/b' is not a topic filter"),
        ("topic write of/%c", "has %c or %u"),
        ("pattern a+", "is not a topic filter"),
    ],
)
def test_every_error_has_its_line_and_a_remedy(line: str, message: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse(f"# rules\ntopic read ok\n{line}\nnonsense\n", "site.acl")
    first, second = caught.value.errors
    assert (first.file, first.line, second.line) == ("site.acl", 3, 4)
    assert message in first.message
    assert first.remedy


@given(st.text(max_size=200))
def test_arbitrary_text_raises_only_config_errors(text: str) -> None:
    with suppress(ConfigErrors):
        assert isinstance(parse(text, "acl"), Acl)


def test_without_a_rule_file_all_topics_but_the_reserved_ones_are_allowed() -> None:
    assert may_write(OPEN, "a/b")
    assert not may_write(OPEN, "$SYS/x")
    assert may_write(OPEN, STATE)
    assert may_read_some(OPEN, "$SYS/#")
    assert not may_read_some(OPEN, "$gateway/#")
