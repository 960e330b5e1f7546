//! The topics whose messages wait before they are sent, or sent again (§5.4, §7.4, §7.7).
//!
//! Messages of one topic may be refused one by one, each in a PUBACK of its own. Were each of them to wait by itself, all that is
//! held of the topic would go out whenever one of them is due: as often as the owner answers. So the topic waits, and once at a time.
//!
//! While a handover lasts that is a short while, then all of them go. For a session that is crowded it may be minutes, and an owner says nothing when that is over: so
//! the first goes alone, to see, and nothing else of its topic before the next time. If it comes back by then, it goes again, after twice as long.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::Micros;
use crate::engine::{Engine, Side};
use crate::keyed_hash::KeyedHash;

/// How long a topic waits before it is sent again, at least.
const SHORTEST: Micros = 10_000;
/// And where it is tried again and again, at most.
const LONGEST: Micros = 640_000;

pub struct Pauses {
    due: BTreeSet<(Micros, Arc<str>)>,
    topics: HashMap<Arc<str>, (Micros, Pause), KeyedHash>,
}

/// Why a topic waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Its owner moves, or has no room for anybody.
    Handover,
    /// One of those who get its messages is crowded. `wait`: how long until the next try. `tried`: the sequence number of the message that the last
    /// one was made with.
    Crowded { wait: Micros, tried: Option<u64> },
    /// It is too far ahead of another.
    Lead,
}

impl Pause {
    /// Before it was tried. `rtt`: how long an answer of the owner takes.
    pub fn crowded(rtt: Micros) -> Self {
        Self::Crowded { wait: SHORTEST.max(2 * rtt).min(LONGEST), tried: None }
    }

    fn wait(self) -> Micros {
        match self {
            Self::Handover => SHORTEST,
            Self::Crowded { wait, .. } => wait,
            Self::Lead => LONGEST,
        }
    }

    /// What comes when it is over, and this message is the first that waits: `None`: all of them go.
    fn next(self, first: u64) -> Option<Self> {
        match self {
            Self::Crowded { tried: Some(tried), .. } if first > tried => None,
            Self::Crowded { wait, tried: Some(_) } => {
                Some(Self::Crowded { wait: (2 * wait).min(LONGEST), tried: Some(first) })
            }
            Self::Crowded { wait, tried: None } => Some(Self::Crowded { wait, tried: Some(first) }),
            Self::Handover | Self::Lead => None,
        }
    }
}

impl Pauses {
    pub fn new(hasher: KeyedHash) -> Self {
        Self { due: BTreeSet::new(), topics: HashMap::with_hasher(hasher) }
    }

    /// A topic waits from now on, if it does not already.
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

    /// Whether nothing of a topic is to be sent now, but to see whether it is taken.
    pub fn hold(&self, topic: &str) -> bool {
        !self.topics.is_empty() && self.topics.get(topic).is_some_and(|(_, pause)| *pause != Pause::Handover)
    }

    /// When the next one has waited long enough.
    pub fn next(&self) -> Option<Micros> {
        self.due.first().map(|(until, _)| *until)
    }

    /// The next topic that has waited long enough.
    fn take_due(&mut self, now: Micros) -> Option<(Arc<str>, Pause)> {
        self.next().filter(|until| *until <= now)?;
        let (_, topic) = self.due.pop_first()?;
        self.topics.remove(&topic).map(|(_, pause)| (topic, pause))
    }
}

impl Engine {
    /// Sends what waited for its owner, once it has waited long enough.
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
        pauses.add(0, Arc::clone(&long), Pause::crowded(50_000));
        pauses.add(1, Arc::clone(&long), Pause::Handover);
        pauses.add(2, Arc::clone(&short), Pause::Handover);
        assert!(pauses.hold("long") && !pauses.hold("short") && !pauses.hold("other"));
        assert_eq!(pauses.next(), Some(10_002));
        assert_eq!((due(&mut pauses, 10_001), due(&mut pauses, 10_002)), (None, Some(Pause::Handover)));
        assert_eq!(
            (due(&mut pauses, 99_999), due(&mut pauses, 100_000)),
            (None, Some(Pause::crowded(50_000)))
        );
        assert!(pauses.next().is_none() && pauses.topics.is_empty());
    }

    #[test]
    fn one_that_waits_for_a_handover_may_find_a_crowd() {
        let mut pauses = Pauses::new(KeyedHash::new(1));
        pauses.add(0, "a".into(), Pause::Handover);
        pauses.add(5, "a".into(), Pause::crowded(0));
        assert!(pauses.hold("a"));
        assert_eq!(due(&mut pauses, 10_000), Some(Pause::crowded(0)));
    }

    #[test]
    fn a_try_that_comes_back_is_made_again_after_twice_as_long_and_at_most_so_long() {
        let mut pause = Pause::crowded(1_000);
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
