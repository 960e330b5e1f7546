//! What waits to be sent for the first time, in the order in which it was queued.
//!
//! Unreliable packets lie end to end in one buffer, encoded as they will leave, so that a run of them is sealed into a
//! datagram with one copy and queueing one allocates nothing. Of reliable packets only their turn is noted here: they
//! are numbered in the order of queueing, so the turn alone says which it is (`delivery` keeps their bodies).
//!
//! A peer that keeps no reliable packet blocks those (§3.3). Unreliable ones then pass them, or they would wait for ever.

use std::collections::VecDeque;

use crate::wire;

/// A first-in first-out queue of packets.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Encoded `packets` fields; those before `head` have left.
    bytes: Vec<u8>,
    head: usize,
    turns: VecDeque<Entry>,
    /// Unreliable packets queued so far, and those that have left.
    queued: u64,
    left: u64,
    /// Which of them, in order, are the link's own and no messages. There are few.
    own: VecDeque<u64>,
}

#[derive(Debug, Clone, Copy)]
enum Entry {
    /// The encoded length of the next packets in `bytes`, and how many have it.
    Unreliable(u32, u32),
    /// A run of reliable packets.
    Reliable(u32),
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// An unreliable packet of so many encoded bytes.
    Unreliable(usize),
    /// So many reliable packets that were never sent, the next ones.
    Reliable(u32),
}

impl Outbox {
    /// Queues an unreliable packet.
    pub fn push_unreliable(&mut self, body_field: &[u8], retained_for: Option<u64>) {
        self.reclaim();
        let before = self.bytes.len();
        wire::put_packet(&mut self.bytes, 0, 0, retained_for, body_field);
        self.push_turns(self.bytes.len() - before, 1);
    }

    /// Queues unreliable packets that are encoded as they will leave: `packets` fields, of these lengths each, and so many of it.
    pub fn push_encoded(&mut self, packets: &[u8], lengths: impl Iterator<Item = (usize, u32)>) {
        self.reclaim();
        self.bytes.extend_from_slice(packets);
        lengths.for_each(|(length, count)| self.push_turns(length, count));
    }

    /// Queues an unreliable packet that is no message.
    pub fn push_own(&mut self, body_field: &[u8]) {
        self.push_unreliable(body_field, None);
        self.own.push_back(self.queued);
    }

    /// Queues the turns of so many reliable packets, the next ones.
    pub fn push_reliable(&mut self, more: u32) {
        match self.turns.back_mut() {
            Some(Entry::Reliable(count)) => *count += more,
            _ => self.turns.push_back(Entry::Reliable(more)),
        }
    }

    /// Whose turn it is.
    pub fn front(&self) -> Option<Turn> {
        self.turns.front().map(|entry| match *entry {
            Entry::Unreliable(length, _) => Turn::Unreliable(length as usize),
            Entry::Reliable(count) => Turn::Reliable(count),
        })
    }

    /// Ends the turns of so many reliable packets at the front.
    pub fn pop_reliable(&mut self, sealed: u32) {
        match self.turns.front_mut() {
            Some(Entry::Reliable(count)) if *count > sealed => *count -= sealed,
            Some(Entry::Reliable(count)) if *count == sealed => _ = self.turns.pop_front(),
            _ => debug_assert!(false, "it is not the turn of so many reliable packets"),
        }
    }

    /// Lets the unreliable packets up to the next reliable one pass those at the front. False: there are none.
    pub fn pass_reliable(&mut self) -> bool {
        let Some(&Entry::Reliable(blocked)) = self.turns.front() else {
            return false;
        };
        let unreliable = |entry: &Entry| matches!(entry, Entry::Unreliable(..));
        let passing = self.turns.iter().skip(1).take_while(|entry| unreliable(entry)).count();
        if passing == 0 {
            return false;
        }
        self.turns.pop_front();
        match self.turns.get_mut(passing) {
            Some(Entry::Reliable(count)) => *count += blocked,
            _ => self.turns.insert(passing, Entry::Reliable(blocked)),
        }
        true
    }

    /// Moves to `out` the unreliable packets at the front that fit into `room` bytes.
    pub fn seal_unreliable(&mut self, out: &mut Vec<u8>, room: usize) {
        let mut end = self.head;
        while let Some(Entry::Unreliable(length, count)) = self.turns.front_mut() {
            let fitting = (room - (end - self.head)) / *length as usize;
            let taken = (*count).min(u32::try_from(fitting).unwrap_or(u32::MAX));
            end += taken as usize * *length as usize;
            self.left += u64::from(taken);
            *count -= taken;
            if *count > 0 {
                break;
            }
            self.turns.pop_front();
        }
        out.extend_from_slice(&self.bytes[self.head..end]);
        self.head = end;
        while self.own.front().is_some_and(|&own| own <= self.left) {
            self.own.pop_front();
        }
    }

    /// Encoded bytes of the unreliable packets that wait.
    pub fn unreliable_bytes(&self) -> usize {
        self.bytes.len() - self.head
    }

    /// How many messages wait among the unreliable packets.
    pub fn messages(&self) -> usize {
        (self.queued - self.left) as usize - self.own.len()
    }

    /// Unreliable packets queued so far, and those that have left.
    pub fn passed(&self) -> (u64, u64) {
        (self.queued, self.left)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Packets of one length that follow one another are noted together: those of a run nearly always have one.
    fn push_turns(&mut self, length: usize, more: u32) {
        let length = u32::try_from(length).expect("a packet is shorter than a datagram");
        match self.turns.back_mut() {
            Some(Entry::Unreliable(last, count)) if *last == length => *count += more,
            _ => self.turns.push_back(Entry::Unreliable(length, more)),
        }
        self.queued += u64::from(more);
    }

    /// Drops the sent part of the buffer once it is the larger one: each byte moves at most once on average.
    fn reclaim(&mut self) {
        if self.head > 0 && self.head >= self.unreliable_bytes() {
            self.bytes.drain(..self.head);
            self.head = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_order_and_seals_whole_packets_only() {
        let mut outbox = Outbox::default();
        outbox.push_unreliable(b"\x7a\x00", None);
        outbox.push_unreliable(b"\x7a\x02\x08\x01", None);
        outbox.push_reliable(1);
        outbox.push_own(b"\x7a\x00");
        assert_eq!(outbox.messages(), 2);
        let Some(Turn::Unreliable(first)) = outbox.front() else { panic!("an unreliable packet is first") };
        let mut out = Vec::new();
        outbox.seal_unreliable(&mut out, first + 1);
        assert_eq!(out.len(), first, "the second does not fit");
        outbox.seal_unreliable(&mut out, 1_000);
        assert_eq!(outbox.front(), Some(Turn::Reliable(1)), "not past the reliable packet's turn");
        assert_eq!((outbox.messages(), outbox.own.len()), (0, 1), "what is left is no message");
        outbox.pop_reliable(1);
        outbox.seal_unreliable(&mut out, 1_000);
        assert!(outbox.is_empty() && outbox.unreliable_bytes() == 0 && outbox.own.is_empty());
        let mut expected = Vec::new();
        wire::put_packet(&mut expected, 0, 0, None, b"\x7a\x00");
        wire::put_packet(&mut expected, 0, 0, None, b"\x7a\x02\x08\x01");
        wire::put_packet(&mut expected, 0, 0, None, b"\x7a\x00");
        assert_eq!(out, expected);
    }

    #[test]
    fn unreliable_packets_pass_reliable_ones_that_are_blocked() {
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        for id in 0..6u8 {
            outbox.push_reliable(1);
            let field = [0x7a, 2, 8, id];
            (0..id % 3).for_each(|_| outbox.push_unreliable(&field, None));
            (0..id % 3).for_each(|_| wire::put_packet(&mut expected, 0, 0, None, &field));
        }
        let mut out = Vec::new();
        while outbox.pass_reliable() {
            outbox.seal_unreliable(&mut out, 1_000);
        }
        assert_eq!((out, outbox.messages()), (expected, 0));
        for left in (1..=6).rev() {
            assert_eq!(outbox.front(), Some(Turn::Reliable(left)));
            outbox.pop_reliable(1);
        }
        assert!(outbox.is_empty());
    }

    #[test]
    fn encoded_packets_leave_as_many_as_fit_whatever_their_lengths() {
        let (mut outbox, mut encoded, mut lengths) = (Outbox::default(), Vec::new(), Vec::new());
        for size in [3_u8, 3, 3, 9, 9, 3, 40, 40, 40, 40] {
            let before = encoded.len();
            wire::put_packet(&mut encoded, 0, 0, None, &vec![size; usize::from(size)]);
            lengths.push(encoded.len() - before);
        }
        outbox.push_encoded(&encoded, lengths.iter().map(|&length| (length, 1)));
        let (mut out, mut left) = (Vec::new(), VecDeque::from(lengths));
        for room in [5, 6, 20, 1, 21, 90, 1_000] {
            let mut end = out.len();
            let limit = end + room;
            while left.front().is_some_and(|next| end + next <= limit) {
                end += left.pop_front().unwrap_or(0);
            }
            outbox.seal_unreliable(&mut out, room);
            assert_eq!((out.len(), outbox.messages()), (end, left.len()), "{room} bytes of room");
        }
        assert_eq!((out, outbox.is_empty()), (encoded, true));
    }

    #[test]
    fn its_buffer_stays_in_proportion_to_what_waits() {
        let mut outbox = Outbox::default();
        for _ in 0..10 {
            outbox.push_unreliable(&[0; 100], None);
        }
        for _ in 0..10_000 {
            outbox.push_unreliable(&[0; 100], None);
            outbox.seal_unreliable(&mut Vec::new(), 110);
        }
        assert!(outbox.bytes.len() <= 3 * outbox.unreliable_bytes(), "{}", outbox.bytes.len());
    }
}
