//! Messages turned away that will come again here, so that none of their topic is taken before them.
//!
//! While an owner is about to serve it refuses with HANDOVER (§5.4, §5.7), and the publisher sends the message again. What the
//! publisher had sent behind it is on its way meanwhile, and may arrive when the owner serves: taken then, it would have
//! overtaken the one refused. So the owner remembers of each publisher and topic the first message that it turned away, and
//! turns away those after it until that one is back. A publisher sends none of a topic again before it has heard of all.

use std::collections::HashMap;

use crate::Micros;
use crate::engine::parts::chain_of;
use crate::keyed::Keyed;
use crate::wire::PublishView;

/// How long a message that was turned away is waited for: its publisher may have given it up.
const PATIENCE: Micros = 2_000_000;
/// Publishers and topics remembered.
const MOST: usize = 65_536;

/// The first message turned away, of each publisher and topic.
pub struct TurnedAway {
    first: HashMap<u64, Absent, Keyed>,
    /// When those that are waited for in vain may be looked for again: to look takes as long as there are many.
    cleared: Micros,
}

struct Absent {
    sequence: u64,
    until: Micros,
}

impl TurnedAway {
    pub fn new(keyed: Keyed) -> Self {
        Self { first: HashMap::with_hasher(keyed), cleared: 0 }
    }

    /// Whether a message of this chain has to wait for one before it. If not, nothing waits for it any more.
    pub fn holds_back(&mut self, now: Micros, publish: &PublishView<'_>) -> bool {
        if self.first.is_empty() {
            return false;
        }
        let chain = chain_of(publish.publisher, publish.topic.as_bytes());
        let Some(absent) = self.first.get(&chain) else {
            return false;
        };
        let waits = absent.sequence < publish.sequence && now < absent.until;
        if !waits {
            self.first.remove(&chain);
        }
        waits
    }

    /// A message is refused, and will come again.
    pub fn note(&mut self, now: Micros, publish: &PublishView<'_>) {
        let chain = chain_of(publish.publisher, publish.topic.as_bytes());
        let (sequence, until) = (publish.sequence, now + PATIENCE);
        if let Some(absent) = self.first.get_mut(&chain) {
            if sequence <= absent.sequence || now >= absent.until {
                *absent = Absent { sequence, until };
            }
            return;
        }
        if self.first.len() >= MOST && now >= self.cleared {
            self.first.retain(|_, absent| now < absent.until);
            self.cleared = until;
        }
        if self.first.len() < MOST {
            self.first.insert(chain, Absent { sequence, until });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(publisher: u64, sequence: u64) -> PublishView<'static> {
        let mut message = PublishView::default();
        (message.topic, message.publisher, message.sequence) = ("t", publisher, sequence);
        message
    }

    fn turned_away() -> TurnedAway {
        TurnedAway::new(Keyed::new(1))
    }

    #[test]
    fn what_comes_after_one_turned_away_waits_until_it_is_back() {
        let mut turned_away = turned_away();
        assert!(!turned_away.holds_back(0, &message(7, 20)));
        (20..25).for_each(|sequence| turned_away.note(0, &message(7, sequence)));
        assert!(turned_away.holds_back(1, &message(7, 25)) && turned_away.holds_back(1, &message(7, 21)));
        assert!(!turned_away.holds_back(1, &message(8, 25)), "another publisher's");
        turned_away.note(1, &message(7, 25));
        assert!(!turned_away.holds_back(2, &message(7, 20)));
        assert!(!turned_away.holds_back(2, &message(7, 21)) && !turned_away.holds_back(2, &message(7, 26)));
    }

    #[test]
    fn nothing_waits_for_ever() {
        let mut turned_away = turned_away();
        turned_away.note(0, &message(7, 20));
        turned_away.note(PATIENCE / 2, &message(7, 20));
        turned_away.note(PATIENCE, &message(7, 21));
        assert!(turned_away.holds_back(PATIENCE, &message(7, 21)), "the first was turned away once more");
        assert!(!turned_away.holds_back(PATIENCE / 2 + PATIENCE, &message(7, 21)));
        (0..2 * MOST as u64).for_each(|publisher| turned_away.note(0, &message(publisher, 1)));
        assert_eq!(turned_away.first.len(), MOST);
        turned_away.note(PATIENCE, &message(3 * MOST as u64, 1));
        assert_eq!(turned_away.first.len(), 1, "those waited for in vain make room");
    }
}
