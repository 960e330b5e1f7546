//! What waits to be sent for the first time, in the order in which it was queued.
//!
//! Unreliable packets lie end to end in one buffer, encoded as they will leave, so that a run of them is sealed into a
//! datagram with one copy and queueing one allocates nothing. Of reliable packets only their turn is noted here: they
//! are numbered in the order of queueing, so the turn alone says which it is (`delivery` keeps their bodies).

use std::collections::VecDeque;

use crate::wire;

/// An entry of length 0: the turn of the next reliable packet. (An encoded packet has at least two bytes.)
const RELIABLE: u32 = 0;

/// A first-in first-out queue of packets.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Encoded `packets` fields; those before `head` have left.
    bytes: Vec<u8>,
    head: usize,
    /// The length of each packet in `bytes`, or `RELIABLE`.
    turns: VecDeque<u32>,
    /// Unreliable packets queued so far, and those that have left.
    queued: u64,
    left: u64,
    /// Which of them, in order, are the link's own and no messages. There are few.
    own: VecDeque<u64>,
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// An unreliable packet of so many encoded bytes.
    Unreliable(usize),
    /// The next reliable packet that was never sent.
    Reliable,
}

impl Outbox {
    /// Queues an unreliable packet.
    pub fn push_unreliable(&mut self, body_field: &[u8], retained: bool) {
        self.reclaim();
        let before = self.bytes.len();
        wire::put_packet(&mut self.bytes, 0, 0, retained, body_field);
        let length = u32::try_from(self.bytes.len() - before).expect("a packet is shorter than a datagram");
        self.turns.push_back(length);
        self.queued += 1;
    }

    /// Queues an unreliable packet that is no message.
    pub fn push_own(&mut self, body_field: &[u8]) {
        self.push_unreliable(body_field, false);
        self.own.push_back(self.queued);
    }

    /// Queues the turn of the next reliable packet.
    pub fn push_reliable(&mut self) {
        self.turns.push_back(RELIABLE);
    }

    /// Whose turn it is.
    pub fn front(&self) -> Option<Turn> {
        self.turns.front().map(|&length| match length {
            RELIABLE => Turn::Reliable,
            length => Turn::Unreliable(length as usize),
        })
    }

    /// Ends the turn of the reliable packet at the front.
    pub fn pop_reliable(&mut self) {
        debug_assert_eq!(self.front(), Some(Turn::Reliable));
        self.turns.pop_front();
    }

    /// Moves to `out` the unreliable packets at the front that fit into `room` bytes.
    pub fn seal_unreliable(&mut self, out: &mut Vec<u8>, room: usize) {
        let (mut length, mut count) = (0, 0);
        for &next in &self.turns {
            if next == RELIABLE || length + next as usize > room {
                break;
            }
            length += next as usize;
            count += 1;
        }
        out.extend_from_slice(&self.bytes[self.head..self.head + length]);
        self.turns.drain(..count);
        self.head += length;
        self.left += count as u64;
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

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
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
        outbox.push_unreliable(b"\x7a\x00", false);
        outbox.push_unreliable(b"\x7a\x02\x08\x01", false);
        outbox.push_reliable();
        outbox.push_own(b"\x7a\x00");
        assert_eq!(outbox.messages(), 2);
        let Some(Turn::Unreliable(first)) = outbox.front() else { panic!("an unreliable packet is first") };
        let mut out = Vec::new();
        outbox.seal_unreliable(&mut out, first + 1);
        assert_eq!(out.len(), first, "the second does not fit");
        outbox.seal_unreliable(&mut out, 1_000);
        assert_eq!(outbox.front(), Some(Turn::Reliable), "not past the reliable packet's turn");
        assert_eq!((outbox.messages(), outbox.own.len()), (0, 1), "what is left is no message");
        outbox.pop_reliable();
        outbox.seal_unreliable(&mut out, 1_000);
        assert!(outbox.is_empty() && outbox.unreliable_bytes() == 0 && outbox.own.is_empty());
        let mut expected = Vec::new();
        wire::put_packet(&mut expected, 0, 0, false, b"\x7a\x00");
        wire::put_packet(&mut expected, 0, 0, false, b"\x7a\x02\x08\x01");
        wire::put_packet(&mut expected, 0, 0, false, b"\x7a\x00");
        assert_eq!(out, expected);
    }

    #[test]
    fn its_buffer_stays_in_proportion_to_what_waits() {
        let mut outbox = Outbox::default();
        for _ in 0..10 {
            outbox.push_unreliable(&[0; 100], false);
        }
        for _ in 0..10_000 {
            outbox.push_unreliable(&[0; 100], false);
            outbox.seal_unreliable(&mut Vec::new(), 110);
        }
        assert!(outbox.bytes.len() <= 3 * outbox.unreliable_bytes(), "{}", outbox.bytes.len());
    }
}
