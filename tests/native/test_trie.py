"""The subscription trie agrees with a search through all filters, whatever was inserted and removed
before."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hbroker._native import SubscriptionTrie, filter_is_valid, topic_is_valid, topic_matches

NAMES = ["a", "b", "", "$s", "a name too long to be stored in place", "é"]

# Few names and few subscribers, so that filters share nodes, links share filters, and topics match several
# filters.
filter_paths = st.lists(st.sampled_from([*NAMES, "+", "+", "#"]), min_size=1, max_size=4).map("/".join)
filters = filter_paths.filter(filter_is_valid)
topics = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5).map("/".join).filter(topic_is_valid)
subscribers = st.integers(0, 4) | st.just(2**64 - 1)


class TrieMachine(RuleBasedStateMachine):
    """Runs a trie beside a set of (filter, subscriber)."""

    def __init__(self) -> None:
        super().__init__()
        self.trie = SubscriptionTrie()
        self.model: set[tuple[str, int]] = set()

    @rule(filter=filters, subscriber=subscribers)
    def insert(self, filter: str, subscriber: int) -> None:
        assert self.trie.insert(filter, subscriber) is ((filter, subscriber) not in self.model)
        self.model.add((filter, subscriber))

    @rule(filter=filters, subscriber=subscribers)
    def remove_any(self, filter: str, subscriber: int) -> None:
        assert self.trie.remove(filter, subscriber) is ((filter, subscriber) in self.model)
        self.model.discard((filter, subscriber))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove_present(self, data: st.DataObject) -> None:
        filter, subscriber = data.draw(st.sampled_from(sorted(self.model)))
        assert self.trie.remove(filter, subscriber)
        self.model.remove((filter, subscriber))

    @rule(topic=topics)
    def match(self, topic: str) -> None:
        found = self.trie.matches(topic)
        expected = {subscriber for filter, subscriber in self.model if topic_matches(filter, topic)}
        assert sorted(found) == sorted(expected), "each subscriber that matches, once"

    @invariant()
    def counts(self) -> None:
        assert len(self.trie) == len(self.model)


TestTrie = TrieMachine.TestCase
TestTrie.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


def test_a_link_with_many_overlapping_filters_is_found_once() -> None:
    trie = SubscriptionTrie()
    for filter in ["#", "a/#", "a/+", "+/b", "+/+", "a/b", "a/b/#", "+/#"]:
        assert trie.insert(filter, 7)
    assert trie.matches("a/b") == [7]
    assert trie.matches("$s/b") == []


def test_many_subscribers_of_one_filter_are_inserted_and_removed() -> None:
    trie = SubscriptionTrie()
    count = 10_000
    for subscriber in range(count):
        assert trie.insert("a/+", subscriber)
    for subscriber in range(0, count, 2):
        assert trie.remove("a/+", subscriber)
    assert sorted(trie.matches("a/b")) == list(range(1, count, 2))
    for subscriber in range(1, count, 2):
        assert trie.remove("a/+", subscriber)
    assert (trie.matches("a/b"), len(trie)) == ([], 0)
