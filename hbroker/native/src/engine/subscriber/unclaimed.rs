//! Messages that no listener wants and that must not be acknowledged yet.
//!
//! In a persistent session they wait for a listener, which may be added after they arrive (§6.4). While the
//! client leaves a shared group, they wait until its owners know that: until then such messages are for
//! another member (§6.5). The same holds for messages of the group that the application gives back unhandled;
//! only the receipts of these are kept.
//!
//! They are not acknowledged, so the credit of their owner bounds them, and a message beyond that credit is
//! not kept. Everything else that the owner has for the session waits behind that credit. So in a persistent
//! session the wait belongs to the link: it ends, for all messages of the link, some time after the first one
//! that no listener wanted. From then on a message that no listener wants is acknowledged at once. Otherwise
//! an owner with a queue for a subscription that has ended, or is not made again, would send only one
//! credit's worth in each such time. When a listener is removed, its messages may be wanted again, so the
//! links begin a new wait.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::Micros;
use crate::config::Config;
use crate::engine::fragmentation::reassembly::Receipt;
use crate::engine::metrics::counters::{Counters, Drop};
use crate::link_id::LinkId;
use crate::wire::{MeantFor, PublishView};

/// How long messages may wait for a listener.
const PATIENCE: Micros = 30_000_000;

pub struct Unclaimed {
    is_persistent: bool,
    is_leaving: bool,
    most_messages: usize,
    most_bytes: usize,
    messages: VecDeque<UnclaimedMessage>,
    bytes: usize,
    /// The end of the wait of each link, from the first message on it that no listener wanted.
    patience: BTreeMap<LinkId, Micros>,
    /// The receipts of messages that were given back.
    given_back: Vec<Receipt>,
}

/// A message that waits for a listener, or until the client has left a group.
pub struct UnclaimedMessage {
    /// Its field `publish`.
    pub field: Bytes,
    pub meant_for: Option<MeantFor>,
    pub receipt: Receipt,
    until: Micros,
}

impl Unclaimed {
    pub fn new(config: &Config) -> Self {
        Self {
            is_persistent: config.persistent,
            is_leaving: false,
            most_messages: config.receive_messages as usize,
            most_bytes: usize::try_from(config.receive_bytes).unwrap_or(usize::MAX),
            messages: VecDeque::new(),
            bytes: 0,
            patience: BTreeMap::new(),
            given_back: Vec::new(),
        }
    }

    /// Keeps a message. False: it has to be acknowledged at once, because no listener will want it, its link
    /// has waited long enough, or too many messages wait.
    pub fn keep(
        &mut self,
        now: Micros,
        publish: &PublishView<'_>,
        meant_for: Option<MeantFor>,
        receipt: Receipt,
        counters: &mut Counters,
    ) -> bool {
        if !self.is_persistent && !self.is_leaving {
            return false;
        }
        let until = self.until(now, receipt);
        let field = publish.field();
        let is_too_much =
            self.messages.len() >= self.most_messages || self.bytes + field.len() > self.most_bytes;
        if until <= now || is_too_much {
            counters.drop(Drop::Unclaimed);
            return false;
        }
        let field: Bytes = field.into_owned().into();
        self.put_back(UnclaimedMessage { field, meant_for, receipt, until });
        true
    }

    /// The application gives messages back. Returns the receipts that have to be acknowledged at once.
    pub fn give_back(&mut self, receipts: impl IntoIterator<Item = Receipt>) -> Vec<Receipt> {
        self.given_back.extend(receipts);
        self.settled()
    }

    /// Whether the client is leaving a group. At the end, returns the receipts of the messages that waited
    /// only for that.
    pub fn set_leaving(&mut self, is_leaving: bool) -> Vec<Receipt> {
        self.is_leaving = is_leaving;
        let mut settled = self.settled();
        if !is_leaving && !self.is_persistent {
            settled.extend(self.take_all().into_iter().map(|message| message.receipt));
        }
        settled
    }

    /// A listener was removed: later messages may be for one that comes back, however long the links have
    /// waited.
    pub fn wait_anew(&mut self) {
        self.patience.clear();
    }

    /// Puts a message back that was taken out.
    pub fn put_back(&mut self, message: UnclaimedMessage) {
        self.bytes += message.field.len();
        self.messages.push_back(message);
    }

    /// Takes all, in order.
    pub fn take_all(&mut self) -> VecDeque<UnclaimedMessage> {
        self.bytes = 0;
        std::mem::take(&mut self.messages)
    }

    /// Gives up the messages that have waited too long. Returns their receipts.
    pub fn expire(&mut self, now: Micros) -> Vec<Receipt> {
        let mut receipts = Vec::new();
        let bytes = &mut self.bytes;
        self.messages.retain(|message| {
            let stays = message.until > now;
            if !stays {
                *bytes -= message.field.len();
                receipts.push(message.receipt);
            }
            stays
        });
        receipts
    }

    /// A link has ended: its messages will be retransmitted.
    pub fn forget_link(&mut self, link: LinkId) {
        let bytes = &mut self.bytes;
        self.messages.retain(|message| {
            let stays = message.receipt.0 != link;
            *bytes -= if stays { 0 } else { message.field.len() };
            stays
        });
        self.given_back.retain(|(from, _)| *from != link);
        self.patience.remove(&link);
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Until when a message waits that is received now. While the client leaves a group the message may be
    /// another member's, so it waits however long its link has waited.
    fn until(&mut self, now: Micros, (link, _): Receipt) -> Micros {
        let latest = now + PATIENCE;
        let links = *self.patience.entry(link).or_insert(latest);
        if self.is_leaving { latest } else { links }
    }

    /// The owners know by now that the client has left, so its messages go to no other member.
    fn settled(&mut self) -> Vec<Receipt> {
        if self.is_leaving { Vec::new() } else { std::mem::take(&mut self.given_back) }
    }
}
