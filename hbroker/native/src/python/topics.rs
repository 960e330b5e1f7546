//! Topic names and filters, and the subscription trie alone.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::link_id::SessionKey;
use crate::tables::match_set::MatchSet;
use crate::tables::subscriber::Subscriber;
use crate::tables::trie;
use crate::topic;

#[pyfunction]
pub fn topic_is_valid(topic: &Bound<'_, PyString>) -> bool {
    // A str with lone surrogates has no UTF-8 encoding, so it is no topic.
    topic.to_str().is_ok_and(topic::topic_is_valid)
}

#[pyfunction]
pub fn filter_is_valid(filter: &Bound<'_, PyString>) -> bool {
    filter.to_str().is_ok_and(topic::filter_is_valid)
}

#[pyfunction]
pub fn topic_matches(filter: &str, topic: &str) -> bool {
    topic::matches(filter, topic)
}

#[pyfunction]
pub fn filter_touches(filter: &str, subtree: &str) -> bool {
    topic::filter_touches(filter, subtree)
}

/// The subscription trie alone, for tests and measurements. A subscriber is a number.
#[pyclass(module = "hbroker._native")]
pub struct SubscriptionTrie {
    trie: trie::SubscriptionTrie,
    found: MatchSet,
}

#[pymethods]
impl SubscriptionTrie {
    #[new]
    fn new() -> Self {
        // The tests choose its filters, so its hash key need not be secret.
        Self { trie: trie::SubscriptionTrie::new(0), found: MatchSet::default() }
    }

    fn insert(&mut self, filter: &str, subscriber: u64) -> bool {
        let session = SessionKey(subscriber);
        let subscriber = Subscriber::new(session, 0);
        !self.trie.insert(filter, "", subscriber)
    }

    fn remove(&mut self, filter: &str, subscriber: u64) -> bool {
        self.trie.remove(filter, "", SessionKey(subscriber))
    }

    fn matches(&mut self, topic: &str) -> Vec<u64> {
        self.trie.collect_matches(topic, &mut self.found);
        self.found.subscribers().iter().map(|subscriber| subscriber.session.0).collect()
    }

    fn __len__(&self) -> usize {
        self.trie.len()
    }
}
