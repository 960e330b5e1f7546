//! Commands from other threads to a worker's clients: Python's answers, and items from the network.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use crate::mqtt::access::rules::AccessList;
use crate::mqtt::codec::packets::{Accept, Auth, CloseReason};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::distribution::fanout::SessionItem;
use crate::mqtt::gateway::worker_event::SessionHandle;
use crate::mqtt::io::connections::ConnectionId;
use crate::mqtt::metrics::counters::Counters;
use crate::mqtt::settings::SessionSettings;
use crate::workspace::Workspace;

pub enum Command {
    Accept(ConnectionId, Box<Admitted>),
    Refuse(ConnectionId, Box<CloseReason>),
    Challenge(ConnectionId, Box<Auth>),
    /// SUBACK or UNSUBACK, by the packet type.
    Acknowledge(ConnectionId, u8, u16, Vec<Reason>, String),
    Disconnect(ConnectionId, Box<CloseReason>),
    /// The items of one iteration of the network's thread, and their size in bytes.
    Deliver(Vec<SessionItem>, usize),
    /// All items that were posted for the session before its connection ended have been handled.
    Park(ConnectionId),
    /// The client has a subscription with No Local now: its messages carry its origin from now on.
    SendOrigin(ConnectionId),
    /// The client gets another access list.
    Assign(ConnectionId, u32, Arc<AccessList>),
    /// An access list has changed.
    Access(u32, Arc<AccessList>),
    Report(SyncSender<Vec<ConnectionStatus>>),
    Count(SyncSender<Counters>),
    /// Record in the worker's metrics how much is queued for its clients.
    MeasureQueues,
    /// Ack guards were dropped outside of an iteration: the end of this iteration acknowledges their
    /// messages.
    Settle,
}

/// The terms on which Python accepts a client.
pub struct Admitted {
    pub accept: Accept,
    /// Of a session that is parked here.
    pub session: SessionHandle,
    /// The settings of the session from now on.
    pub settings: SessionSettings,
    /// How many messages a second the client may send (0: any number), in place of the listener's limit.
    pub rate: u32,
    /// In which the client's topics are.
    pub workspace: Workspace,
    /// The number of the access list, and the list; `None` if everything is allowed.
    pub access: Option<(u32, Arc<AccessList>)>,
    /// Marks the client's messages for subscriptions with No Local, at all gateways. Not 0.
    pub origin: u64,
    /// PUBACK means that the owner has queued the message, not that it is distributed.
    pub ack_queued: bool,
}

/// The state of a client's connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionStatus {
    pub connection: ConnectionId,
    pub traffic: Traffic,
    /// Messages that are queued for the client.
    pub queued: usize,
}

/// What a connection has carried since it was accepted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// PUBLISH packets from the client, and to it.
    pub messages_in: u64,
    pub messages_out: u64,
    /// Messages for the client that were dropped.
    pub dropped: u64,
}

impl Traffic {
    /// Adds what the worker counted while it called the connection.
    pub fn add(&mut self, before: &Counters, after: &Counters) {
        self.messages_in += after.messages_in - before.messages_in;
        self.messages_out += after.messages_out - before.messages_out;
        self.dropped += after.drops.iter().sum::<u64>() - before.drops.iter().sum::<u64>();
    }
}
