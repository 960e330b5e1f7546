//! Reassembles messages from fragments (§7.5), within bounds.
//!
//! A message of `QoS` 1 or 2 is *firm* if it was received from its first fragment on, no fragment is missing
//! before its newest, and its publisher has not begun more messages than an honest one keeps open. All
//! others, and all messages of `QoS` 0, are in doubt: they are given up first, the oldest of them first.
//!
//! Firm messages must not block each other half-way, so the oldest may always continue: room for one message
//! of the largest size is reserved for it. Fragments of the others that have no room are kept all the same,
//! but their PUBACKs are *withheld*, so that their owner slows down. This is limited to half of the credit
//! that an owner has, because beyond it the fragments of the oldest message would not arrive any more. Then
//! the youngest message is given up. A message that makes no progress for a while is given up, too. A false
//! total costs only its own publisher.
//!
//! Fragments of `QoS` 1 and 2 arrive in order, so each is appended to the previous ones. A fragment that
//! arrives out of order, as at `QoS` 0 it may, is kept aside. Only the received bytes take memory, not the
//! size that a fragment claims.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::Micros;
use crate::broken::Defect;
use crate::keyed_hash::KeyedHash;
use crate::link_id::LinkId;
use crate::wire::MeantFor;

/// A publisher keeps one message of the largest size open, and others with at most this fraction of that size
/// together.
const OTHERS_SHARE: usize = 8;

/// The limits of a reassembler.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one message.
    pub message_bytes: usize,
    /// Bytes that are kept in total, without those whose PUBACKs are withheld.
    pub total_bytes: usize,
    /// The number of fragments whose PUBACKs are withheld, and their bytes.
    pub withheld: usize,
    pub withheld_bytes: usize,
    /// The number of incomplete messages.
    pub messages: usize,
    /// A message without a new fragment for this long is given up.
    pub patience: Micros,
}

/// The link and the delivery to acknowledge a fragment by.
pub type Receipt = (LinkId, u64);

/// (publisher, the sequence number of fragment 0, the listener or shared subscription that it was sent for).
/// A retained message is sent apart from its first distribution, and once for each listener.
pub type ReassemblyKey = (u64, u64, Option<MeantFor>);

/// One fragment of a message, as received. The fragments of a message have consecutive sequence numbers.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedFragment<'a> {
    pub id: ReassemblyKey,
    /// The index of the fragment, from 0.
    pub index: u32,
    /// How many fragments the message has.
    pub count: u32,
    /// The size of the whole payload.
    pub total: u64,
    /// The bytes of this fragment.
    pub bytes: &'a [u8],
    /// `None`: it was received at `QoS` 0.
    pub receipt: Option<Receipt>,
}

/// The result of adding a fragment.
#[derive(Debug, PartialEq, Eq)]
pub enum Added {
    /// It is kept.
    Kept,
    /// It is kept, and must not be acknowledged before `take_released` returns its receipt.
    Withheld,
    /// It was received before.
    Duplicate,
    /// It contradicts itself or earlier fragments, or is too large. It is not kept.
    Invalid,
    /// There is no room: its message is given up.
    GivenUp,
    /// It completed the message: the payload.
    Whole(Vec<u8>),
}

/// The incomplete messages.
pub struct Reassembler {
    limits: Limits,
    open: HashMap<ReassemblyKey, OpenMessage, KeyedHash>,
    /// By publisher: the sum of the sizes that its claimed open messages announced.
    claims: HashMap<u64, u64, KeyedHash>,
    bytes: usize,
    withheld: usize,
    withheld_bytes: usize,
    released: Vec<Receipt>,
    /// A message has ended, so others may have room.
    has_ended: bool,
    begun: u64,
    abandoned: u64,
}

struct OpenMessage {
    partial_message: PartialMessage,
    /// Rises with each new message.
    number: u64,
    touched: Micros,
    /// Whether its first fragment was received first, and its size is in its publisher's claims.
    is_claimed: bool,
    withheld: Vec<(Receipt, usize)>,
}

impl OpenMessage {
    fn is_firm(&self) -> bool {
        self.is_claimed && !self.partial_message.has_gap()
    }
}

impl Reassembler {
    /// Without messages. `seed` is random and secret.
    pub fn new(limits: Limits, seed: u64) -> Self {
        let hasher = KeyedHash::new(seed);
        Self {
            limits,
            open: HashMap::with_hasher(hasher),
            claims: HashMap::with_hasher(hasher),
            bytes: 0,
            withheld: 0,
            withheld_bytes: 0,
            released: Vec::new(),
            has_ended: false,
            begun: 0,
            abandoned: 0,
        }
    }

    /// Takes a fragment.
    pub fn add(&mut self, now: Micros, fragment: ReceivedFragment<'_>) -> Added {
        let added = self.insert_fragment(now, fragment);
        if self.has_ended {
            self.release(now);
        }
        added
    }

    /// Whether a fragment of this message is here.
    pub fn has(&self, id: ReassemblyKey) -> bool {
        self.open.contains_key(&id)
    }

    /// Gives up the messages without a new fragment for too long, unless their PUBACKs are withheld.
    pub fn expire(&mut self, now: Micros) {
        let limit = now.saturating_sub(self.limits.patience);
        let is_stale = |open: &OpenMessage| open.touched < limit && open.withheld.is_empty();
        let stale: Vec<ReassemblyKey> =
            self.open.iter().filter(|(_, open)| is_stale(open)).map(|(id, _)| *id).collect();
        for id in stale {
            self.abandon(id);
        }
        self.release(now);
    }

    /// Takes the receipts that are withheld no more.
    pub fn take_released(&mut self) -> Vec<Receipt> {
        std::mem::take(&mut self.released)
    }

    /// A link has ended, and its receipts with it.
    pub fn forget_link(&mut self, link: LinkId) {
        for open in self.open.values_mut() {
            let (gone, kept) =
                std::mem::take(&mut open.withheld).into_iter().partition(|((from, _), _)| *from == link);
            open.withheld = kept;
            self.withheld -= Vec::len(&gone);
            self.withheld_bytes -= gone.iter().map(|(_, bytes)| bytes).sum::<usize>();
        }
        self.released.retain(|(from, _)| *from != link);
    }

    /// How many messages were given up so far: because fragments or room were missing, or because their
    /// fragments disagreed.
    pub fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// The bytes that are kept, with the cost of keeping them.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of incomplete messages.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    fn insert_fragment(&mut self, now: Micros, fragment: ReceivedFragment<'_>) -> Added {
        let known = self.open.get(&fragment.id);
        if !self.is_valid(&fragment)
            || known.is_some_and(|open| !open.partial_message.agrees(fragment.count, fragment.total))
        {
            return Added::Invalid;
        }
        if known.is_some_and(|open| open.partial_message.has(fragment.index)) {
            return Added::Duplicate;
        }
        if known.is_none() && !self.begin(now, &fragment) {
            return Added::GivenUp;
        }
        let need = PartialMessage::cost_of(fragment.bytes.len());
        let fits = self.make_room(fragment.id, need);
        if !fits && !self.may_withhold(fragment.id, need) {
            self.abandon(fragment.id);
            return Added::GivenUp;
        }
        let Some(open) = self.open.get_mut(&fragment.id) else {
            return Added::GivenUp;
        };
        let before = open.partial_message.cost();
        open.partial_message.add(fragment.index, fragment.bytes);
        open.touched = now;
        self.bytes = self.bytes + open.partial_message.cost() - before;
        if open.partial_message.is_overfull() {
            self.abandon(fragment.id);
            return Added::Invalid;
        }
        if open.partial_message.is_whole() {
            return self.finish(fragment.id);
        }
        if let Some(receipt) = fragment.receipt.filter(|_| !fits) {
            open.withheld.push((receipt, need));
            self.withheld += 1;
            self.withheld_bytes += need;
            return Added::Withheld;
        }
        Added::Kept
    }

    fn is_valid(&self, fragment: &ReceivedFragment<'_>) -> bool {
        let ReceivedFragment { index, count, total, bytes, .. } = *fragment;
        let is_sized = total <= self.limits.message_bytes as u64 && u64::from(count) <= total;
        index < count && is_sized && !bytes.is_empty() && bytes.len() as u64 <= total
    }

    /// Makes an entry for a message. False: there are too many.
    fn begin(&mut self, now: Micros, fragment: &ReceivedFragment<'_>) -> bool {
        if self.open.len() >= self.limits.messages {
            self.expire(now);
        }
        while self.open.len() >= self.limits.messages {
            if !self.abandon_oldest_in_doubt(None) {
                self.abandoned += 1;
                return false;
            }
        }
        self.begun += 1;
        let is_claimed =
            fragment.receipt.is_some() && fragment.index == 0 && self.claim(fragment.id.0, fragment.total);
        let partial_message = PartialMessage::new(fragment.count, fragment.total);
        let (number, withheld) = (self.begun, Vec::new());
        self.open
            .insert(fragment.id, OpenMessage { partial_message, number, touched: now, is_claimed, withheld });
        true
    }

    fn claim(&mut self, publisher: u64, total: u64) -> bool {
        let claims = self.claims.entry(publisher).or_default();
        let most = self.limits.message_bytes + self.limits.message_bytes / OTHERS_SHARE;
        let fits = *claims + total <= most as u64;
        *claims += if fits { total } else { 0 };
        fits
    }

    /// Makes room for a fragment by giving up messages in doubt. False: that does not suffice.
    fn make_room(&mut self, id: ReassemblyKey, need: usize) -> bool {
        while !self.has_room(id, need) {
            if !self.abandon_oldest_in_doubt(Some(id)) {
                return false;
            }
        }
        true
    }

    fn has_room(&self, id: ReassemblyKey, need: usize) -> bool {
        // The bytes that all messages but the oldest may take.
        let common = self.limits.total_bytes - self.limits.message_bytes;
        if self.bytes + need <= common {
            return true;
        }
        let firm = self.open.iter().filter(|(_, open)| open.is_firm());
        match firm.min_by_key(|(_, open)| open.number) {
            Some((oldest, _)) if *oldest == id => true,
            Some((_, oldest)) => self.bytes - oldest.partial_message.cost() + need <= common,
            None => self.bytes + need <= common,
        }
    }

    /// Whether a fragment without room is kept and its PUBACK withheld. If too many are withheld, the
    /// youngest messages are given up.
    fn may_withhold(&mut self, id: ReassemblyKey, need: usize) -> bool {
        let Some(number) = self.open.get(&id).filter(|open| open.is_firm()).map(|open| open.number) else {
            return false;
        };
        while self.withheld >= self.limits.withheld || self.withheld_bytes + need > self.limits.withheld_bytes
        {
            let waiting = self.open.iter().filter(|(_, open)| !open.withheld.is_empty());
            let youngest =
                waiting.max_by_key(|(_, open)| open.number).filter(|(_, open)| open.number > number);
            let Some(youngest) = youngest.map(|(id, _)| *id) else {
                return false;
            };
            self.abandon(youngest);
        }
        true
    }

    /// Gives up the oldest message in doubt, except for this one. False: there is none.
    fn abandon_oldest_in_doubt(&mut self, spared: Option<ReassemblyKey>) -> bool {
        let in_doubt = self.open.iter().filter(|(id, open)| !open.is_firm() && Some(**id) != spared);
        let oldest = in_doubt.min_by_key(|(_, open)| (open.touched, open.number)).map(|(id, _)| *id);
        oldest.inspect(|&id| self.abandon(id)).is_some()
    }

    fn finish(&mut self, id: ReassemblyKey) -> Added {
        match self.take(id).and_then(PartialMessage::into_payload) {
            Some(payload) => Added::Whole(payload),
            None => {
                self.abandoned += 1;
                Added::Invalid
            }
        }
    }

    fn abandon(&mut self, id: ReassemblyKey) {
        self.abandoned += u64::from(self.take(id).is_some());
    }

    fn take(&mut self, id: ReassemblyKey) -> Option<PartialMessage> {
        let open = self.open.remove(&id)?;
        self.has_ended = true;
        self.bytes -= open.partial_message.cost();
        if open.is_claimed
            && let Some(claims) = self.claims.get_mut(&id.0)
        {
            *claims -= open.partial_message.total();
            if *claims == 0 {
                self.claims.remove(&id.0);
            }
        }
        self.release_receipts(open.withheld);
        Some(open.partial_message)
    }

    /// Releases the withheld receipts of firm messages for which there is room now, the oldest first.
    fn release(&mut self, now: Micros) {
        self.has_ended = false;
        if self.withheld_bytes == 0 {
            return;
        }
        let waiting = self.open.iter().filter(|(_, open)| !open.withheld.is_empty());
        let mut waiting: Vec<(u64, ReassemblyKey)> = waiting.map(|(id, open)| (open.number, *id)).collect();
        waiting.sort_unstable();
        for (_, id) in waiting {
            let may_go_on = self.has_room(id, 0);
            if let Some(open) = self.open.get_mut(&id).filter(|open| may_go_on || !open.is_firm()) {
                open.touched = now;
                let withheld = std::mem::take(&mut open.withheld);
                self.release_receipts(withheld);
            }
        }
    }

    fn release_receipts(&mut self, withheld: Vec<(Receipt, usize)>) {
        self.withheld -= withheld.len();
        self.withheld_bytes -= withheld.iter().map(|(_, bytes)| bytes).sum::<usize>();
        self.released.extend(withheld.into_iter().map(|(receipt, _)| receipt));
    }
}

/// The approximate cost of keeping one fragment aside, beyond its bytes.
const ASIDE_OVERHEAD: usize = 64;

#[derive(Debug)]
pub struct PartialMessage {
    count: u32,
    total: u64,
    /// The payloads of the fragments before `next`.
    payload: Vec<u8>,
    next: u32,
    /// Fragments that arrived out of order.
    aside: BTreeMap<u32, Box<[u8]>>,
    aside_bytes: usize,
}

impl PartialMessage {
    /// A message of `count` fragments and `total` bytes, of which nothing has been received.
    pub fn new(count: u32, total: u64) -> Self {
        Self { count, total, payload: Vec::new(), next: 0, aside: BTreeMap::new(), aside_bytes: 0 }
    }

    /// Whether a fragment with these values belongs to this message.
    pub fn agrees(&self, count: u32, total: u64) -> bool {
        (self.count, self.total) == (count, total)
    }

    /// Whether this fragment has been received.
    pub fn has(&self, index: u32) -> bool {
        index < self.next || self.aside.contains_key(&index)
    }

    /// Takes a fragment that has not been received before.
    pub fn add(&mut self, index: u32, bytes: &[u8]) {
        if index != self.next {
            self.aside_bytes += bytes.len() + ASIDE_OVERHEAD;
            self.aside.insert(index, bytes.into());
            return;
        }
        self.append(bytes);
        while let Some(bytes) = self.aside.remove(&self.next) {
            self.aside_bytes -= bytes.len() + ASIDE_OVERHEAD;
            self.append(&bytes);
        }
    }

    /// The bytes that are kept, with the cost of keeping them.
    pub fn cost(&self) -> usize {
        self.payload.len() + self.aside_bytes
    }

    /// The most that another fragment of this size costs.
    pub fn cost_of(bytes: usize) -> usize {
        bytes + ASIDE_OVERHEAD
    }

    /// Whether more bytes were received than the message should have.
    pub fn is_overfull(&self) -> bool {
        self.payload.len() as u64 > self.total
    }

    /// Whether all fragments have been received.
    pub fn is_whole(&self) -> bool {
        self.next == self.count || (Defect::EndsWithLastPart.is_present() && self.has(self.count - 1))
    }

    /// Whether a fragment is missing before one that was received. If fragments arrive in order, it will
    /// never arrive.
    pub fn has_gap(&self) -> bool {
        !self.aside.is_empty()
    }

    /// The size of the whole message.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The memory that the payload takes.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.payload.capacity()
    }

    /// The payload, if it has the announced size.
    pub fn into_payload(self) -> Option<Vec<u8>> {
        let has_all = self.payload.len() as u64 == self.total || Defect::EndsWithLastPart.is_present();
        has_all.then_some(self.payload)
    }

    fn append(&mut self, bytes: &[u8]) {
        let needed = self.payload.len() + bytes.len();
        if needed > self.payload.capacity() {
            // Doubles the capacity, but not beyond the end: the announced size is not reserved before it is
            // received.
            let end = usize::try_from(self.total).unwrap_or(usize::MAX);
            let capacity = (2 * self.payload.capacity()).min(end).max(needed);
            self.payload.reserve_exact(capacity - self.payload.len());
        }
        self.payload.extend_from_slice(bytes);
        self.next += 1;
    }
}

#[cfg(test)]
mod tests;
