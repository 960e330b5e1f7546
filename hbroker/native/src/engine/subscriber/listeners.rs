//! A client's listeners: who in its application wants what.
//!
//! A message is for all whose filters match its topic, and are not shared; one that was sent for a shared subscription is for those that
//! have that one; and one that was retained is for the listener in whose name it was asked for, where
//! that is one of this run's.

use crate::link_id::SessionKey;
use crate::tables::match_set::{MatchSet, Subscriber};
use crate::tables::trie::SubscriptionTrie;
use crate::wire::MeantFor;

/// See the module. Of many clients most are idle or only publish: without a listener this is small.
pub struct Listeners {
    seed: u64,
    known: Option<Box<Known>>,
}

struct Known {
    filters: SubscriptionTrie,
    /// The lowest and the highest id that a listener of this run has had.
    ids: (u64, u64),
    matches: MatchSet,
    /// Whose matches these are; empty: nobody's any more. Messages of one topic often follow one another.
    matched: String,
}

impl Listeners {
    /// None. `seed`: random and secret.
    pub fn new(seed: u64) -> Self {
        Self { seed, known: None }
    }

    /// `group`: of a shared subscription; empty: it is none.
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

    /// Looks for those that match a topic, and gives those among them that are not shared.
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

    /// Of those that match the topic that was looked for last those that are to get a message.
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

    /// The listener of this run that a message was retained for, whether or not that is still there.
    pub fn requesting_listener(&self, meant_for: Option<MeantFor>) -> Option<u64> {
        let (lowest, highest) = self.known.as_ref()?.ids;
        meant_for?.retained_for().filter(|&listener| listener > 0 && (lowest..=highest).contains(&listener))
    }

    fn found(&self) -> &[Subscriber] {
        self.known.as_ref().map_or(&[], |known| known.matches.subscribers())
    }
}
