//! A client's listeners: which part of its application wants which messages.
//!
//! A message is for all listeners whose filters match its topic and that are not shared. A message that was
//! sent for a shared subscription is for the listeners of that subscription. A retained message is for the
//! listener in whose name it was requested, if that is a listener of this run.

use crate::link_id::SessionKey;
use crate::tables::match_set::{MatchSet, Subscriber};
use crate::tables::trie::SubscriptionTrie;
use crate::wire::MeantFor;

/// Small without a listener, because most clients of a pool are idle or only publish.
pub struct Listeners {
    seed: u64,
    known: Option<Box<Known>>,
}

struct Known {
    filters: SubscriptionTrie,
    /// The lowest and the highest id that a listener of this run has had.
    ids: (u64, u64),
    matches: MatchSet,
    /// The topic whose matches these are; empty: none. Consecutive messages often have one topic.
    matched: String,
}

impl Listeners {
    /// Without listeners. `seed` is random and secret.
    pub fn new(seed: u64) -> Self {
        Self { seed, known: None }
    }

    /// `group`: of a shared subscription; empty: it is not shared.
    pub fn add(&mut self, listener: Subscriber, group: &str, filter: &str) {
        let SessionKey(id) = listener.session;
        let known = self.known.get_or_insert_with(|| {
            Box::new(Known {
                filters: SubscriptionTrie::new(self.seed),
                ids: (id, id),
                matches: MatchSet::default(),
                matched: String::new(),
            })
        });
        known.filters.insert(filter, group, listener);
        known.ids = (known.ids.0.min(id), known.ids.1.max(id));
        known.matched.clear();
    }

    pub fn remove(&mut self, listener: u64) {
        if let Some(known) = &mut self.known {
            known.filters.remove_session(SessionKey(listener));
            known.matched.clear();
        }
    }

    /// Looks the listeners up that match a topic. Returns those that are not shared.
    pub fn find(&mut self, topic: &str) -> &[Subscriber] {
        if let Some(known) = &mut self.known
            && (topic.is_empty() || known.matched != topic)
        {
            known.filters.collect_matches(topic, &mut known.matches);
            known.matched.clear();
            known.matched.push_str(topic);
        }
        self.found()
    }

    /// Of the listeners that matched the topic of the last look-up, those that get a message.
    pub fn wanting(&self, meant_for: Option<MeantFor>) -> impl Iterator<Item = &Subscriber> {
        let shared = match meant_for {
            Some(MeantFor::Shared(id)) => Some(id),
            _ => None,
        };
        let requesting_listener = self.requesting_listener(meant_for);
        let is_meant = move |listener: &&Subscriber| {
            requesting_listener.is_none_or(|requesting_listener| listener.session.0 == requesting_listener)
        };
        let plain = if shared.is_none() { self.found() } else { &[] };
        let members = shared.zip(self.known.as_deref());
        let members = members.into_iter().flat_map(|(id, known)| known.matches.groups().members_of(id));
        plain.iter().filter(is_meant).chain(members)
    }

    /// The listener of this run that requested a retained message, whether or not it still exists.
    pub fn requesting_listener(&self, meant_for: Option<MeantFor>) -> Option<u64> {
        let (lowest, highest) = self.known.as_ref()?.ids;
        meant_for?.retained_for().filter(|&listener| listener > 0 && (lowest..=highest).contains(&listener))
    }

    fn found(&self) -> &[Subscriber] {
        self.known.as_ref().map_or(&[], |known| known.matches.subscribers())
    }
}
