//! The sessions that match one topic, each once (§7.4).

use crate::link_id::SessionKey;

/// Who gets what matches a filter, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// Whose subscription it is.
    pub session: SessionKey,
    /// The highest QoS wanted.
    pub qos: u8,
    /// Not what the session itself published.
    pub no_local: bool,
    /// Keep the publisher's `retain` flag.
    pub retain_as_published: bool,
}

impl Subscriber {
    /// Satisfies two subscriptions of one session: the higher QoS, and each message and each flag that one of
    /// them asks for.
    fn merge(&mut self, other: Subscriber) {
        self.qos = self.qos.max(other.qos);
        self.no_local &= other.no_local;
        self.retain_as_published |= other.retain_as_published;
    }
}

/// A buffer for matches, to be used again for every message: in the long run it does not allocate.
#[derive(Default)]
pub struct MatchSet {
    found: Vec<Subscriber>,
    subscriptions: usize,
    /// By session slot: where in `found` the session is, if `round` is the present one. So nothing is cleared
    /// between topics.
    marks: Vec<Mark>,
    round: u32,
    /// The trie's nodes that match the levels so far, and one level further.
    pub(crate) frontier: Vec<u32>,
    pub(crate) next: Vec<u32>,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    round: u32,
    index: u32,
}

impl MatchSet {
    /// Each session that matches, once.
    pub fn subscribers(&self) -> &[Subscriber] {
        &self.found
    }

    /// How many subscriptions match; of one session perhaps several.
    pub fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    /// Forgets what was found, and expects session slots below `slots`.
    pub(crate) fn begin(&mut self, slots: usize) {
        self.found.clear();
        self.subscriptions = 0;
        self.frontier.clear();
        self.next.clear();
        if self.marks.len() < slots {
            self.marks.resize(slots, Mark::default());
        }
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.marks.fill(Mark::default());
            self.round = 1;
        }
    }

    pub(crate) fn add(&mut self, slot: u32, subscriber: Subscriber) {
        self.subscriptions += 1;
        let mark = &mut self.marks[slot as usize];
        if mark.round == self.round {
            self.found[mark.index as usize].merge(subscriber);
        } else {
            // Fits: there is at most one for each session slot, and those are numbered in 32 bits.
            *mark = Mark { round: self.round, index: self.found.len() as u32 };
            self.found.push(subscriber);
        }
    }
}
