//! Credit: how much the other end of a link takes before it acknowledges with PUBACK (§7.7).

/// The credit until a CREDIT packet is received (§9).
pub const MESSAGES: u32 = 4_096;
pub const BYTES: u64 = 8 << 20;

/// What a publisher with credit 0 may still have under way (§7.7): what it had sent unacknowledged, and what
/// the acknowledgements for that let it send before it received the CREDIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    messages: u32,
    bytes: u32,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { messages: 2 * MESSAGES, bytes: 2 * BYTES as u32 }
    }
}

impl Allowance {
    /// What a congested session takes from a publisher for many clients, which is never sent credit 0 (§7.7).
    pub fn of_many() -> Self {
        Self { messages: MESSAGES / 4, bytes: BYTES as u32 / 4 }
    }

    /// Whether it has room for a message of this size.
    pub fn covers(&self, bytes: usize) -> bool {
        self.messages > 0 && bytes <= self.bytes as usize
    }

    /// Uses it for a message of this size, if it has room.
    pub fn take(&mut self, bytes: usize) -> bool {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        match (self.messages.checked_sub(1), self.bytes.checked_sub(bytes)) {
            (Some(messages), Some(bytes)) => {
                *self = Self { messages, bytes };
                true
            }
            _ => false,
        }
    }
}

/// How many messages may be sent, and how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    pub messages: usize,
    pub bytes: usize,
}

impl Room {
    /// At most `most` messages.
    pub fn of_messages(self, most: usize) -> Self {
        Self { messages: self.messages.min(most), ..self }
    }

    /// At most `most` bytes.
    pub fn of_bytes(self, most: usize) -> Self {
        Self { bytes: self.bytes.min(most), ..self }
    }
}

/// What the peer takes, and how much of that is used. The bytes fit 32 bits: a window of messages (§9) never
/// has more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    messages: u32,
    bytes: u32,
    open_messages: u32,
    open_bytes: u32,
}

impl Default for Credit {
    fn default() -> Self {
        Self { messages: MESSAGES, bytes: BYTES as u32, open_messages: 0, open_bytes: 0 }
    }
}

impl Credit {
    /// The peer sends its credit from now on. What was sent already is not affected.
    pub fn grant(&mut self, messages: u32, bytes: u64) {
        (self.messages, self.bytes) = (messages, u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// The credit of the peer.
    pub fn granted(&self) -> (u32, u64) {
        (self.messages, self.bytes.into())
    }

    /// Whether `messages` messages of `bytes` in total may be sent. If nothing is in flight, one message of any
    /// size may be sent, unless the credit is 0.
    pub fn has_room_for(&self, messages: u32, bytes: usize) -> bool {
        let is_alone = messages == 1 && self.open_messages == 0 && self.bytes > 0;
        self.open_messages.saturating_add(messages) <= self.messages
            && (is_alone || u64::from(self.open_bytes) + bytes as u64 <= u64::from(self.bytes))
    }

    /// Whether `messages` messages of `bytes` in total may be sent of one topic that has these in flight:
    /// with them it must not have more than it leaves free (ADR 30). A topic may always have one message in
    /// flight.
    pub fn has_share_for(
        &self,
        (own_messages, own_bytes): (u32, usize),
        messages: u32,
        bytes: usize,
    ) -> bool {
        let free = |most: u32, open: u32| most.saturating_sub(open) as usize;
        let (messages, own) = (messages as usize, own_messages as usize);
        own == 0
            || own + 2 * messages <= free(self.messages, self.open_messages)
                && own_bytes + 2 * bytes <= free(self.bytes, self.open_bytes)
    }

    /// What may be sent. `own`: what its topic has in flight, if the topic has to leave others their share.
    pub fn room(&self, own: Option<(u32, usize)>) -> Room {
        let messages = self.messages.saturating_sub(self.open_messages) as usize;
        let bytes = self.bytes.saturating_sub(self.open_bytes) as usize;
        match own {
            None => Room { messages, bytes },
            Some((own_messages, own_bytes)) => Room {
                messages: messages.saturating_sub(own_messages as usize) / 2,
                bytes: bytes.saturating_sub(own_bytes) / 2,
            },
        }
    }

    /// `messages` messages of `bytes` in total were sent.
    pub fn open_all(&mut self, messages: u32, bytes: usize) {
        self.open_messages += messages;
        self.open_bytes += bytes as u32;
    }

    /// The bytes that are sent and not acknowledged.
    pub fn open_bytes(&self) -> usize {
        self.open_bytes as usize
    }

    /// The PUBACKs of `messages` such messages, of `bytes` in total, were received.
    pub fn settle(&mut self, messages: u32, bytes: usize) {
        self.open_messages -= messages;
        self.open_bytes -= bytes as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::{Allowance, Credit, Room};

    #[test]
    fn a_topic_leaves_others_as_much_as_it_has_but_one_message_may_always_go() {
        let mut credit = Credit::default();
        credit.grant(100, 1_000);
        credit.open_all(40, 400);
        assert!(credit.has_share_for((40, 400), 10, 100), "half of it, of one alone");
        assert!(!credit.has_share_for((40, 400), 11, 100) && !credit.has_share_for((40, 400), 10, 101));
        assert!(credit.has_share_for((20, 200), 20, 200), "beside one that has 40");
        assert!(!credit.has_share_for((20, 200), 21, 200) && !credit.has_share_for((20, 200), 20, 201));
        credit.open_all(59, 0);
        assert!(credit.has_share_for((0, 0), 1, 1), "a topic that has none");
        assert!(!credit.has_share_for((1, 1), 1, 1));
        credit.grant(10, 1_000);
        assert!(!credit.has_share_for((1, 1), 1, 1), "less is granted than is open");
    }

    #[test]
    fn what_there_is_room_for_may_go_and_no_message_more() {
        let mut credit = Credit::default();
        credit.grant(100, 1_000);
        for (open, own) in [(0, 0), (40, 40), (40, 20), (41, 20), (99, 0), (99, 60), (100, 100)] {
            credit.open_all(open, 0);
            let Room { messages: all, bytes } = credit.room(None);
            let count = u32::try_from(all).expect("at most 100");
            assert_eq!((count, bytes), (100 - open, 1_000));
            assert!(!credit.has_room_for(count + 1, 1) && (count == 0 || credit.has_room_for(count, 1)));
            let share = u32::try_from(credit.room(Some((own, 0))).messages).expect("at most 100");
            assert!(own == 0 || share == 0 || credit.has_share_for((own, 0), share, 0), "{open}, {own}");
            assert!(own == 0 || !credit.has_share_for((own, 0), share + 1, 0), "{open}, {own}");
            credit.settle(open, 0);
        }
        credit.open_all(1, 400);
        assert_eq!((credit.room(None).bytes, credit.room(Some((1, 400))).bytes), (600, 100));
        credit.grant(0, 0);
        assert_eq!(credit.room(None), Room::default(), "less is granted than is open");
    }

    #[test]
    fn what_a_congested_session_takes_all_the_same_ends() {
        let mut allowance = Allowance::of_many();
        assert!(allowance.covers(2 << 20) && !allowance.covers((2 << 20) + 1));
        assert!((0..1_024).all(|_| allowance.covers(9) && allowance.take(9)));
        assert!(!allowance.covers(0) && !allowance.take(0));
    }

    #[test]
    fn ends_by_number_or_by_bytes_and_comes_back_with_each_answer() {
        let mut credit = Credit::default();
        credit.grant(3, 100);
        assert!(credit.has_room_for(1, 1_000), "one alone, however large");
        assert!(!credit.has_room_for(2, 101), "two together are not alone");
        credit.open_all(1, 60);
        assert!(credit.has_room_for(1, 40) && !credit.has_room_for(1, 41));
        assert!(credit.has_room_for(2, 40) && !credit.has_room_for(2, 41) && !credit.has_room_for(3, 3));
        credit.open_all(2, 40);
        assert!(!credit.has_room_for(1, 0), "three are open");
        credit.settle(1, 60);
        assert!(credit.has_room_for(1, 60));
        credit.grant(0, 100);
        assert!(!credit.has_room_for(1, 1));
        credit.settle(1, 20);
        credit.settle(1, 20);
        assert!(!credit.has_room_for(1, 0), "nothing is open, and nothing may go");
        credit.grant(1, 0);
        assert!(!credit.has_room_for(1, 1));
        credit.grant(1, 1);
        assert!(credit.has_room_for(1, 5));
        credit.grant(2, u64::MAX);
        credit.open_all(1, 1 << 30);
        assert!(
            credit.has_room_for(1, 1 << 30) && !credit.has_room_for(1, u32::MAX as usize),
            "in all no more than 4 GiB"
        );
    }
}
