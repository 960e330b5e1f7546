//! A client's incoming messages: from a delivery to the application (§7).
//!
//! A message waits here until the application reads it, and is acknowledged to its owner only then (§7.3), so
//! that a message that the application never took over is retransmitted. The same holds for a duplicate that
//! arrives meanwhile ([`Unacknowledged`]). The inbox is bounded in bytes. While it is full (`is_full`),
//! messages of `QoS` 0 are dropped and counted. The engine leaves the others unacknowledged, so that their
//! owner keeps them.
//!
//! In a persistent session messages may arrive before the application, which was offline, listens for them.
//! Messages of `QoS` 1 and 2 that no listener wants wait for one for a while (§6.4), within the credit that
//! the owner was given.
//!
//! Messages of `QoS` 1 that arrived together stay together (`batch`), if the application takes messages over
//! by reading them. They are not looked up by their ids meanwhile: at this `QoS` a duplicate counts as
//! another message.
//!
//! A message that was sent for a shared subscription is for the listeners of that one alone. Any other
//! message is for all listeners whose filters match its topic and that are not shared (§6.5).
//!
//! A retained message is for the listener in whose name it was requested, and for no listener if that one is
//! gone. It is for all matching listeners if it was requested in no name, or by a listener of an earlier run,
//! which is recognised by its id (§7.6). A listener gets each retained message once, even if it was requested
//! twice: from an owner that was slow, or from another owner (`delivered`).
//!
//! A message that has expired on the way is delivered all the same. Its owner has to stop expired messages,
//! and the clock here may differ.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::Micros;
use crate::config::Config;
use crate::engine::fragmentation::reassembly::{Added, Limits, Reassembler, Receipt, ReceivedFragment};
use crate::engine::metrics::counters::{Counters, Drop};
use crate::engine::retained::delivered::DeliveredRetained;
use crate::engine::sessions::copy_blocks::CopyBlocks;
use crate::engine::subscriber::batch::{DeliveryRange, InboxItem, ReceivedBatch};
use crate::engine::subscriber::unclaimed::Unclaimed;
use crate::engine::transport::event::Message;
use crate::engine::transport::publish_batch::PublishBatch;
use crate::keyed_hash::KeyedHash;
use crate::link_id::{LinkId, SessionKey};
use crate::tables::match_set::MatchSet;
use crate::tables::subscriber::Subscriber;
use crate::tables::trie::SubscriptionTrie;
use crate::tables::window::{self, DuplicateWindow};
use crate::wire::{Body, FragmentView, MeantFor, MessageId, PacketView, PublishView};
use crate::workspace::Workspace;

/// How many publishers are remembered, to recognise retransmitted messages.
const WINDOW_PUBLISHERS: usize = 16_384;
/// How long a message may wait for its missing fragments.
const PATIENCE: Micros = 30_000_000;
/// How many messages may be incomplete.
const MOST_PARTIAL_MESSAGES: usize = 4_096;

/// When a received PUBLISH is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckTiming {
    /// When `take_due` returns it. Until then it waits for the application, or for other fragments.
    Later,
    /// At once: it is a fragment that is kept, or a duplicate, or no listener here wants it.
    Now,
}

pub struct Inbox {
    listeners: Listeners,
    window: DuplicateWindow,
    delivered_retained: DeliveredRetained,
    reassembler: Reassembler,
    abandoned: u64,
    queue: VecDeque<InboxItem>,
    bytes: usize,
    limit: usize,
    unclaimed: Unclaimed,
    unacknowledged: Unacknowledged,
    /// For the ids of copies.
    copies: KeyedHash,
    copy_blocks: CopyBlocks,
    /// The application takes a message over by reading it, and not with `handled`.
    reading_is_handling: bool,
    /// The deliveries to acknowledge.
    due: Vec<DeliveryRange>,
}

impl Inbox {
    pub fn new(config: &Config) -> Self {
        let limits = Limits {
            message_bytes: config.max_message_bytes,
            total_bytes: config.reassembly_bytes,
            withheld: config.receive_messages as usize / 2,
            withheld_bytes: usize::try_from(config.receive_bytes / 2).unwrap_or(usize::MAX),
            messages: MOST_PARTIAL_MESSAGES,
            patience: PATIENCE,
        };
        Self {
            listeners: Listeners::new(config.seed),
            window: DuplicateWindow::new(WINDOW_PUBLISHERS, window::SPAN, config.seed),
            delivered_retained: DeliveredRetained::new(config.seed),
            reassembler: Reassembler::new(limits, config.seed),
            abandoned: 0,
            queue: VecDeque::new(),
            bytes: 0,
            limit: config.message_queue_bytes,
            unclaimed: Unclaimed::new(config),
            unacknowledged: Unacknowledged::new(KeyedHash::new(config.seed)),
            copies: KeyedHash::new(config.seed),
            copy_blocks: CopyBlocks::default(),
            reading_is_handling: !config.hold,
            due: Vec::new(),
        }
    }

    /// Delivers matching messages to this listener from now on, including those that waited for one. With a
    /// group it gets only the messages for that shared subscription, else only messages for none. `names`: the group,
    /// empty for none, and the filter. `workspace`: as in [`Listeners::add`].
    pub fn listen(
        &mut self,
        now: Micros,
        listener: Subscriber,
        names: (&str, &str),
        workspace: &Workspace,
        counters: &mut Counters,
    ) {
        self.listeners.add(listener, names, workspace);
        for message in self.unclaimed.take_all() {
            let Ok(PacketView { body: Body::Publish(publish), .. }) = PacketView::from_raw(&message.field)
            else {
                continue;
            };
            self.listeners.find(publish.topic);
            if self.listeners.wanting(message.meant_for).next().is_none() {
                self.unclaimed.put_back(message);
            } else if self.take(now, &publish, message.meant_for, Some(message.receipt), counters)
                == AckTiming::Now
            {
                self.due.push(message.receipt.into());
            }
        }
    }

    /// Delivers nothing more to a listener. `gives_back`: it was a member of a shared group, and its unread
    /// messages are for another member.
    pub fn unlisten(&mut self, now: Micros, listener: u64, gives_back: bool) {
        self.listeners.remove(listener);
        self.unclaimed.wait_anew();
        if gives_back {
            let is_its = |item: &InboxItem| match item {
                InboxItem::Message(message) => {
                    message.awaiting_acknowledgement.is_some() && message.subscriptions[..] == [listener]
                }
                InboxItem::ReceivedBatch(received_batch) => {
                    received_batch.receipts(1).is_some() && received_batch.subscriptions[..] == [listener]
                }
            };
            let (unread, left): (VecDeque<_>, _) =
                std::mem::take(&mut self.queue).into_iter().partition(is_its);
            self.queue = left;
            self.bytes -= unread.iter().map(InboxItem::bytes).sum::<usize>();
            let ids: Vec<_> =
                unread.iter().filter_map(|item| item.alone()?.awaiting_acknowledgement).collect();
            self.give_back(now, &ids);
            for DeliveryRange { link, first, last } in unread.iter().filter_map(InboxItem::receipts) {
                let receipts = (first..=last).map(|delivery| (link, delivery));
                self.due.extend(due(self.unclaimed.give_back(receipts)));
            }
        }
    }

    /// While the client leaves a shared group it does not acknowledge a message that no listener here wants.
    /// Once the owner knows, it gives such messages to another member (§6.5).
    pub fn set_leaving(&mut self, is_leaving: bool) {
        self.due.extend(due(self.unclaimed.set_leaving(is_leaving)));
    }

    /// Takes a message in. `receipt`: the link and the delivery to acknowledge; `None` at `QoS` 0.
    pub fn take(
        &mut self,
        now: Micros,
        publish: &PublishView<'_>,
        meant_for: Option<MeantFor>,
        receipt: Option<Receipt>,
        counters: &mut Counters,
    ) -> AckTiming {
        if receipt.is_none() && self.is_full() {
            counters.drop(Drop::InboxFull);
            return AckTiming::Now;
        }
        self.listeners.find(publish.topic);
        if self.listeners.wanting(meant_for).next().is_none() {
            let is_kept = self.listeners.requesting_listener(meant_for).is_none()
                && receipt
                    .is_some_and(|receipt| self.unclaimed.keep(now, publish, meant_for, receipt, counters));
            return if is_kept { AckTiming::Later } else { AckTiming::Now };
        }
        match publish.fragment {
            None => self.take_single(now, publish, meant_for, receipt, counters),
            Some(fragment) => self.take_fragment(now, publish, fragment, meant_for, receipt, counters),
        }
    }

    /// Takes the messages of a batch in. Their bytes stay in one allocation, which lasts as long as any of
    /// them.
    pub fn take_batch(&mut self, batch: &PublishBatch<'_, '_>, counters: &mut Counters) {
        let found = self.listeners.find(batch.topic());
        let subscriptions: SmallVec<[u64; 2]> = found.iter().map(|listener| listener.session.0).collect();
        if subscriptions.is_empty() {
            return;
        }
        let received_batch = ReceivedBatch::of(batch, subscriptions, self.limit.saturating_sub(self.bytes));
        let taken = received_batch.as_ref().map_or(0, ReceivedBatch::len);
        counters.messages_in += taken as u64;
        counters.drop_many(Drop::InboxFull, (batch.len() - taken) as u64);
        received_batch
            .into_iter()
            .for_each(|received_batch| self.keep(InboxItem::ReceivedBatch(received_batch)));
    }

    /// Takes consecutive deliveries of `QoS` 1 in, from this one on, as [`Inbox::take`] does each. The
    /// application acknowledges them by reading them. False: each has to be taken by itself.
    pub fn take_deliveries(
        &mut self,
        batch: &PublishBatch<'_, '_>,
        first: Receipt,
        counters: &mut Counters,
    ) -> bool {
        // An application that calls `handled` for each message needs each message by itself.
        if !self.reading_is_handling || self.is_full() {
            return false;
        }
        let found = self.listeners.find(batch.topic());
        let granted = found.iter().map(|listener| listener.qos).max();
        let subscriptions = found.iter().map(|listener| listener.session.0).collect();
        let Some((granted, received_batch)) =
            granted.zip(ReceivedBatch::of(batch, subscriptions, usize::MAX))
        else {
            return false;
        };
        counters.messages_in += received_batch.len() as u64;
        self.keep(InboxItem::ReceivedBatch(received_batch.awaiting_acknowledgement(granted.min(1), first)));
        true
    }

    /// The next messages for the application.
    pub fn read(&mut self, limit: usize) -> Vec<Message> {
        let mut read = Vec::new();
        while read.len() < limit
            && let Some(item) = self.queue.pop_front()
        {
            match item {
                InboxItem::Message(message) => {
                    self.bytes -= message.bytes();
                    read.push(message);
                }
                InboxItem::ReceivedBatch(mut received_batch) => {
                    let left = received_batch.len().min(limit - read.len());
                    self.due.extend(received_batch.receipts(left));
                    self.bytes -= received_batch.bytes();
                    read.extend(std::iter::from_fn(|| received_batch.take_first()).take(left));
                    self.bytes += received_batch.bytes();
                    if !received_batch.is_empty() {
                        self.queue.push_front(InboxItem::ReceivedBatch(received_batch));
                    }
                }
            }
        }
        if self.reading_is_handling {
            self.take_over(&read);
        }
        read
    }

    /// As `read`, but messages that were received together stay together. So the result may exceed `limit`.
    pub fn read_items(&mut self, limit: usize) -> Vec<InboxItem> {
        let mut messages = 0;
        let mut count = 0;
        while messages < limit && count < self.queue.len() {
            messages += self.queue[count].len();
            count += 1;
        }
        let read: Vec<InboxItem> = self.queue.drain(..count).collect();
        self.bytes -= read.iter().map(InboxItem::bytes).sum::<usize>();
        if self.reading_is_handling {
            self.due.extend(read.iter().filter_map(InboxItem::receipts));
            self.take_over(read.iter().filter_map(InboxItem::alone));
        }
        read
    }

    /// The application has handled these messages: they are acknowledged.
    pub fn handled(&mut self, messages: &[MessageId]) {
        self.due.extend(messages.iter().flat_map(|id| due(self.unacknowledged.take(*id))));
    }

    /// The application will not handle these messages of a shared group, because the client leaves the group.
    /// They are for another member. If they are received again, they count as new here.
    pub fn give_back(&mut self, now: Micros, messages: &[MessageId]) {
        for &id in messages {
            let receipts = self.unacknowledged.take(id);
            self.window.take_back(now, id.0, id.1);
            self.due.extend(due(self.unclaimed.give_back(receipts)));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Forgets the receipts of a link that has ended: its deliveries are retransmitted under other numbers.
    pub fn forget_link(&mut self, link: LinkId) {
        self.reassembler.forget_link(link);
        self.unclaimed.forget_link(link);
        self.unacknowledged.forget_link(link);
        self.due.retain(|due| due.link != link);
        for item in &mut self.queue {
            if let InboxItem::ReceivedBatch(received_batch) = item {
                received_batch.forget_link(link);
            }
        }
    }

    /// Gives up messages that have waited too long for fragments or for a listener. Returns whether others
    /// still wait.
    pub fn expire(&mut self, now: Micros, counters: &mut Counters) -> bool {
        self.reassembler.expire(now);
        self.count_abandoned(counters);
        self.due.extend(due(self.reassembler.take_released()));
        let before = self.due.len();
        self.due.extend(due(self.unclaimed.expire(now)));
        counters.drop_many(Drop::Unclaimed, (self.due.len() - before) as u64);
        self.is_waiting()
    }

    /// Whether a message waits for more fragments, or for a listener.
    pub fn is_waiting(&self) -> bool {
        self.reassembler.len() > 0 || !self.unclaimed.is_empty()
    }

    /// Takes the receipts that have to be acknowledged now.
    pub fn take_due(&mut self) -> Vec<DeliveryRange> {
        std::mem::take(&mut self.due)
    }

    /// Whether there is no room for another message.
    pub fn is_full(&self) -> bool {
        self.bytes >= self.limit
    }

    fn take_single(
        &mut self,
        now: Micros,
        publish: &PublishView<'_>,
        meant_for: Option<MeantFor>,
        receipt: Option<Receipt>,
        counters: &mut Counters,
    ) -> AckTiming {
        // A retained message is sent once for each subscription, always under the same id.
        let once = receipt.is_some() && publish.qos == 2 && !is_retained(meant_for);
        let id = self.copy_id(publish.publisher, publish.sequence, meant_for);
        if once && !self.window.first_seen(now, id.0, id.1) {
            return self.take_again(id, receipt, counters);
        }
        self.push(publish, id, None, meant_for, receipt, counters)
    }

    fn take_fragment(
        &mut self,
        now: Micros,
        publish: &PublishView<'_>,
        fragment: FragmentView,
        meant_for: Option<MeantFor>,
        receipt: Option<Receipt>,
        counters: &mut Counters,
    ) -> AckTiming {
        let FragmentView { index, count, total } = fragment;
        let first = publish.sequence.wrapping_sub(u64::from(index));
        let id = (publish.publisher, first, meant_for);
        // A fragmented message is recognised as a whole, once it is complete. If each fragment were
        // remembered, a message that was given up half-way could never be completed by its retransmission.
        let once = receipt.is_some() && !is_retained(meant_for);
        let copy = self.copy_id(publish.publisher, first, meant_for);
        if once && !self.reassembler.has(id) && self.window.has_seen(copy.0, copy.1) {
            // The other fragments were acknowledged when they were kept (§7.5).
            let last = receipt.filter(|_| index + 1 == count);
            return self.take_again(copy, last, counters);
        }
        let fragment = ReceivedFragment { id, index, count, total, bytes: publish.payload, receipt };
        let added = self.reassembler.add(now, fragment);
        self.count_abandoned(counters);
        self.due.extend(due(self.reassembler.take_released()));
        match added {
            Added::Whole(payload) => {
                if once {
                    self.window.first_seen(now, copy.0, copy.1);
                }
                return self.push(publish, copy, Some(payload), meant_for, receipt, counters);
            }
            Added::Withheld => return AckTiming::Later,
            Added::Duplicate => counters.drop(Drop::DuplicateMessage),
            Added::Invalid => counters.drop(Drop::InvalidMessage),
            Added::Kept | Added::GivenUp => {}
        }
        AckTiming::Now
    }

    /// The id of a copy of a message. The copy for a shared subscription is another message than that for all
    /// others, although both have one id. No publisher can choose an id that collides with it.
    fn copy_id(&self, publisher: u64, sequence: u64, meant_for: Option<MeantFor>) -> MessageId {
        match meant_for {
            Some(MeantFor::Shared(id)) => (self.copies.hash_one((publisher, id)), sequence),
            _ => (publisher, sequence),
        }
    }

    /// Handles a duplicate. If the application has not taken the message over yet, the duplicate is
    /// acknowledged once it has.
    fn take_again(&mut self, id: MessageId, receipt: Option<Receipt>, counters: &mut Counters) -> AckTiming {
        counters.drop(Drop::DuplicateMessage);
        let is_held = receipt.is_some_and(|receipt| self.unacknowledged.hold_again(id, receipt));
        if is_held { AckTiming::Later } else { AckTiming::Now }
    }

    fn push(
        &mut self,
        publish: &PublishView<'_>,
        id: MessageId,
        whole: Option<Vec<u8>>,
        meant_for: Option<MeantFor>,
        receipt: Option<Receipt>,
        counters: &mut Counters,
    ) -> AckTiming {
        let mut wanted: SmallVec<[Subscriber; 2]> = self.listeners.wanting(meant_for).copied().collect();
        if is_retained(meant_for) {
            wanted.retain(|listener| self.delivered_retained.is_new(listener.session.0, id));
            if wanted.is_empty() {
                return self.take_again(id, receipt, counters);
            }
        }
        counters.messages_in += 1;
        let granted = wanted.iter().map(|listener| listener.qos).max().unwrap_or(0);
        let as_published = wanted.iter().any(|listener| listener.retain_as_published);
        let qos = if receipt.is_some() { publish.qos.min(granted) } else { 0 };
        receipt.into_iter().for_each(|receipt| self.unacknowledged.hold(id, receipt));
        let message = Message {
            publish: self.copy_blocks.copy(&publish.field()),
            whole: whole.map(Bytes::from),
            meant_for,
            retain: is_retained(meant_for) || (publish.retain && as_published),
            qos,
            subscriptions: wanted.iter().map(|listener| listener.session.0).collect(),
            awaiting_acknowledgement: receipt.map(|_| id),
        };
        self.keep(InboxItem::Message(message));
        AckTiming::Later
    }

    fn keep(&mut self, item: InboxItem) {
        self.bytes += item.bytes();
        self.queue.push_back(item);
    }

    /// The application has taken these messages over: they are acknowledged.
    fn take_over<'a>(&mut self, messages: impl IntoIterator<Item = &'a Message>) {
        let awaiting_acknowledgement =
            messages.into_iter().filter_map(|message| message.awaiting_acknowledgement);
        self.due.extend(awaiting_acknowledgement.flat_map(|id| due(self.unacknowledged.take(id))));
    }

    fn count_abandoned(&mut self, counters: &mut Counters) {
        let abandoned = self.reassembler.abandoned();
        counters.drop_many(Drop::Incomplete, abandoned - self.abandoned);
        self.abandoned = abandoned;
    }
}

fn is_retained(meant_for: Option<MeantFor>) -> bool {
    meant_for.is_some_and(MeantFor::is_retained)
}

/// Each receipt as a range of one delivery.
fn due(receipts: impl IntoIterator<Item = Receipt>) -> impl Iterator<Item = DeliveryRange> {
    receipts.into_iter().map(DeliveryRange::from)
}

/// A client's listeners: which part of its application wants which messages. Small without a listener, because
/// most clients of a pool are idle or only publish.
pub struct Listeners {
    seed: u64,
    table: Option<Box<ListenerTable>>,
}

/// The listeners of a client that has had one.
struct ListenerTable {
    filters: SubscriptionTrie,
    /// The application gets no message whose topic has no name there.
    workspace: Workspace,
    /// The lowest and the highest id that a listener of this run has had.
    ids: (u64, u64),
    matches: MatchSet,
    /// The topic whose matches these are; empty: none. Consecutive messages often have one topic.
    matched: String,
}

impl Listeners {
    /// Without listeners. `seed` is random and secret.
    pub fn new(seed: u64) -> Self {
        Self { seed, table: None }
    }

    /// `group`: of a shared subscription; empty: it is not shared. `workspace`: whose names the application uses.
    pub fn add(&mut self, listener: Subscriber, (group, filter): (&str, &str), workspace: &Workspace) {
        let SessionKey(id) = listener.session;
        let table = self.table.get_or_insert_with(|| {
            Box::new(ListenerTable {
                filters: SubscriptionTrie::new(self.seed),
                workspace: workspace.clone(),
                ids: (id, id),
                matches: MatchSet::default(),
                matched: String::new(),
            })
        });
        table.filters.insert(filter, group, listener);
        table.ids = (table.ids.0.min(id), table.ids.1.max(id));
        table.matched.clear();
    }

    pub fn remove(&mut self, listener: u64) {
        if let Some(table) = &mut self.table {
            table.filters.remove_session(SessionKey(listener));
            table.matched.clear();
        }
    }

    /// Looks the listeners up that match a topic. Returns those that are not shared.
    pub fn find(&mut self, topic: &str) -> &[Subscriber] {
        if let Some(table) = &mut self.table
            && (topic.is_empty() || table.matched != topic)
        {
            if table.workspace.local(topic).is_some() {
                table.filters.collect_matches(topic, &mut table.matches);
            } else {
                table.matches = MatchSet::default();
            }
            table.matched.clear();
            table.matched.push_str(topic);
        }
        self.found()
    }

    /// Of the listeners that matched the topic of the last look-up, those that get a message.
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
        let members = shared.zip(self.table.as_deref());
        let members = members.into_iter().flat_map(|(id, table)| table.matches.groups().members_of(id));
        plain.iter().filter(is_meant).chain(members)
    }

    /// The listener of this run that requested a retained message, whether or not it still exists.
    pub fn requesting_listener(&self, meant_for: Option<MeantFor>) -> Option<u64> {
        let (lowest, highest) = self.table.as_ref()?.ids;
        meant_for?.retained_for().filter(|&listener| listener > 0 && (lowest..=highest).contains(&listener))
    }

    fn found(&self) -> &[Subscriber] {
        self.table.as_ref().map_or(&[], |table| table.matches.subscribers())
    }
}

/// Most messages have one.
type Receipts = SmallVec<[Receipt; 1]>;

/// Received messages that the application has not handled yet, with the deliveries to acknowledge once it has
/// (§7.3). They are found by their ids. A duplicate that arrives meanwhile over another link is acknowledged
/// together with the first, and not before: an application that is killed in between must get the message
/// again.
pub struct Unacknowledged {
    receipts: HashMap<MessageId, Receipts, KeyedHash>,
}

impl Unacknowledged {
    pub fn new(hasher: KeyedHash) -> Self {
        Self { receipts: HashMap::with_hasher(hasher) }
    }

    /// A message is for the application, which has to handle it before this delivery is acknowledged.
    pub fn hold(&mut self, id: MessageId, receipt: Receipt) {
        self.receipts.entry(id).or_default().push(receipt);
    }

    /// A message is received again. False: it is not waiting here.
    pub fn hold_again(&mut self, id: MessageId, receipt: Receipt) -> bool {
        self.receipts.get_mut(&id).is_some_and(|receipts| {
            receipts.push(receipt);
            true
        })
    }

    /// The application has handled a message. Returns the deliveries to acknowledge.
    pub fn take(&mut self, id: MessageId) -> Receipts {
        self.receipts.remove(&id).unwrap_or_default()
    }

    /// Forgets the receipts of a link that has ended: its deliveries are retransmitted under other numbers.
    pub fn forget_link(&mut self, link: LinkId) {
        for receipts in self.receipts.values_mut() {
            receipts.retain(|(from, _)| *from != link);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const LINK: LinkId = LinkId(1);
    const OTHER: LinkId = LinkId(2);

    #[test]
    fn every_delivery_of_a_message_is_acknowledged_when_it_is_handled() {
        let mut unacknowledged = Unacknowledged::new(KeyedHash::new(1));
        assert!(!unacknowledged.hold_again((7, 1), (LINK, 3)));
        unacknowledged.hold((7, 1), (LINK, 3));
        unacknowledged.hold((7, 2), (LINK, 4));
        assert!(unacknowledged.hold_again((7, 1), (OTHER, 1)));
        assert_eq!(unacknowledged.take((7, 1)).as_slice(), [(LINK, 3), (OTHER, 1)]);
        assert!(unacknowledged.take((7, 1)).is_empty());
        unacknowledged.forget_link(LINK);
        assert!(unacknowledged.hold_again((7, 2), (OTHER, 2)), "the application still has it");
        assert_eq!(unacknowledged.take((7, 2)).as_slice(), [(OTHER, 2)]);
    }
}
