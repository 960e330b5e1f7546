//! The topics whose messages wait for a handover to end (§5.4), each for a short while, and once at a time.
//!
//! Messages of one topic may be refused one by one, each in a PUBACK of its own. Were each of them to wait by itself, all that is
//! held of the topic would go out whenever one of them is due: as often as the owner answers.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use crate::Micros;
use crate::keyed::Keyed;

/// How long a topic waits before it is sent again.
const PAUSE: Micros = 10_000;

pub struct Pauses {
    due: VecDeque<(Micros, Arc<str>)>,
    topics: HashSet<Arc<str>, Keyed>,
}

impl Pauses {
    pub fn new(hasher: Keyed) -> Self {
        Self { due: VecDeque::new(), topics: HashSet::with_hasher(hasher) }
    }

    /// A topic waits from now on, if it does not already.
    pub fn add(&mut self, now: Micros, topic: Arc<str>) {
        if self.topics.insert(Arc::clone(&topic)) {
            self.due.push_back((now + PAUSE, topic));
        }
    }

    /// The next topic that has waited long enough.
    pub fn take_due(&mut self, now: Micros) -> Option<Arc<str>> {
        self.next().filter(|until| *until <= now)?;
        let (_, topic) = self.due.pop_front()?;
        self.topics.remove(&topic);
        Some(topic)
    }

    /// When that is.
    pub fn next(&self) -> Option<Micros> {
        self.due.front().map(|(until, _)| *until)
    }
}
