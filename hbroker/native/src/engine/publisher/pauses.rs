//! The topics whose messages pause before they are sent, or sent again (§5.4, §7.4, §7.7).
//!
//! An owner may refuse messages of one topic one by one, each in its own PUBACK. If each refused message
//! waited by itself, all waiting messages of the topic would be sent whenever one of them was due: as often
//! as the owner answers. So the topic pauses as a whole, with one pause at a time.
//!
//! During a handover the pause is short, and then all messages are sent. If a session is congested, it may last
//! minutes, and the owner does not report its end. So after the pause only the first message is sent, as a
//! probe, and no other of its topic until the next pause ends. If the owner has refused the probe by then, it
//! is sent again, and the pause doubles.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::Micros;
use crate::engine::{Engine, Side};
use crate::keyed_hash::KeyedHash;

/// The shortest pause of a topic.
const SHORTEST: Micros = 10_000;
/// The longest pause between two probes.
const LONGEST: Micros = 640_000;

pub struct Pauses {
    due: BTreeSet<(Micros, Arc<str>)>,
    topics: HashMap<Arc<str>, (Micros, Pause), KeyedHash>,
}

/// Why a topic pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Its owner changes, or the owner's queues are full.
    Handover,
    /// A session that gets its messages is congested. `wait` is the time until the next probe; `tried` is the
    /// sequence number of the last probe.
    Congested { wait: Micros, tried: Option<u64> },
    /// The sequence number of its next message is too far ahead of a message that waits on another topic.
    OutOfWindow,
}

impl Pause {
    /// The pause before the first probe. `rtt`: the round-trip time to the owner.
    pub fn congested(rtt: Micros) -> Self {
        Self::Congested { wait: SHORTEST.max(2 * rtt).min(LONGEST), tried: None }
    }

    fn wait(self) -> Micros {
        match self {
            Self::Handover => SHORTEST,
            Self::Congested { wait, .. } => wait,
            Self::OutOfWindow => LONGEST,
        }
    }

    /// The pause after this one, if this is the first message that waits. `None`: all messages are sent.
    fn next(self, first: u64) -> Option<Self> {
        match self {
            Self::Congested { tried: Some(tried), .. } if first > tried => None,
            Self::Congested { wait, tried: Some(_) } => {
                Some(Self::Congested { wait: (2 * wait).min(LONGEST), tried: Some(first) })
            }
            Self::Congested { wait, tried: None } => Some(Self::Congested { wait, tried: Some(first) }),
            Self::Handover | Self::OutOfWindow => None,
        }
    }
}

impl Pauses {
    pub fn new(hasher: KeyedHash) -> Self {
        Self { due: BTreeSet::new(), topics: HashMap::with_hasher(hasher) }
    }

    /// A topic pauses from now on, unless it does already. Another pause replaces one for a handover.
    pub fn add(&mut self, now: Micros, topic: Arc<str>, pause: Pause) {
        match self.topics.get_mut(&topic) {
            Some((_, known)) if *known == Pause::Handover => *known = pause,
            Some(_) => {}
            None => {
                let until = now + pause.wait();
                self.due.insert((until, Arc::clone(&topic)));
                self.topics.insert(topic, (until, pause));
            }
        }
    }

    /// Whether no message of a topic may be sent now, except a probe.
    pub fn allows_only_probes(&self, topic: &str) -> bool {
        !self.topics.is_empty() && self.topics.get(topic).is_some_and(|(_, pause)| *pause != Pause::Handover)
    }

    /// When the next pause ends.
    pub fn next(&self) -> Option<Micros> {
        self.due.first().map(|(until, _)| *until)
    }

    /// The next topic whose pause has ended.
    fn take_due(&mut self, now: Micros) -> Option<(Arc<str>, Pause)> {
        self.next().filter(|until| *until <= now)?;
        let (_, topic) = self.due.pop_first()?;
        self.topics.remove(&topic).map(|(_, pause)| (topic, pause))
    }
}

impl Engine {
    /// Sends messages of the topics whose pause has ended.
    pub(in crate::engine) fn resume_paused(&mut self, now: Micros) {
        while let Side::Client(client) = &mut self.side
            && let Some((topic, pause)) = client.paused.take_due(now)
        {
            let next = client.publisher.first_on(&topic).and_then(|first| pause.next(first));
            match next {
                Some(next) => {
                    client.paused.add(now, Arc::clone(&topic), next);
                    self.send_some(now, &topic, 1);
                }
                None => _ = self.send_topic(now, &topic),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(pauses: &mut Pauses, now: Micros) -> Option<Pause> {
        pauses.take_due(now).map(|(_, pause)| pause)
    }

    #[test]
    fn a_topic_waits_once_at_a_time_and_each_as_long_as_it_is_to() {
        let mut pauses = Pauses::new(KeyedHash::new(1));
        let (long, short): (Arc<str>, Arc<str>) = ("long".into(), "short".into());
        pauses.add(0, Arc::clone(&long), Pause::congested(50_000));
        pauses.add(1, Arc::clone(&long), Pause::Handover);
        pauses.add(2, Arc::clone(&short), Pause::Handover);
        assert!(
            pauses.allows_only_probes("long")
                && !pauses.allows_only_probes("short")
                && !pauses.allows_only_probes("other")
        );
        assert_eq!(pauses.next(), Some(10_002));
        assert_eq!((due(&mut pauses, 10_001), due(&mut pauses, 10_002)), (None, Some(Pause::Handover)));
        assert_eq!(
            (due(&mut pauses, 99_999), due(&mut pauses, 100_000)),
            (None, Some(Pause::congested(50_000)))
        );
        assert!(pauses.next().is_none() && pauses.topics.is_empty());
    }

    #[test]
    fn one_that_waits_for_a_handover_may_find_a_crowd() {
        let mut pauses = Pauses::new(KeyedHash::new(1));
        pauses.add(0, "a".into(), Pause::Handover);
        pauses.add(5, "a".into(), Pause::congested(0));
        assert!(pauses.allows_only_probes("a"));
        assert_eq!(due(&mut pauses, 10_000), Some(Pause::congested(0)));
    }

    #[test]
    fn a_try_that_comes_back_is_made_again_after_twice_as_long_and_at_most_so_long() {
        let mut pause = Pause::congested(1_000);
        let mut waits = Vec::new();
        for _ in 0..9 {
            pause = pause.next(7).expect("it came back");
            waits.push(pause.wait() / 1_000);
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 640, 640]);
        assert_eq!(pause.next(5).map(Pause::wait), Some(640_000), "one that came back before it goes first");
        assert_eq!(pause.next(8), None, "it was taken");
        assert_eq!(Pause::Handover.next(7), None);
    }
}
