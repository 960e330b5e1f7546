//! What other threads have for a worker's clients: Python's answers, and what the network brings.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use crate::mqtt::access::rules::AccessList;
use crate::mqtt::codec::packets::{Accept, Auth, CloseReason, Version};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::counters::Counters;
use crate::mqtt::distribution::fanout::SessionItem;
use crate::mqtt::io::connections::ConnectionId;
use crate::mqtt::session::Load;
use crate::mqtt::settings::SessionSettings;
use crate::mqtt::worker_event::SessionHandle;

pub enum Command {
    Accept(ConnectionId, Box<Admitted>),
    Refuse(ConnectionId, Box<CloseReason>),
    Challenge(ConnectionId, Box<Auth>),
    Suback(ConnectionId, u16, Vec<Reason>, String),
    Unsuback(ConnectionId, u16, Vec<Reason>, String),
    Disconnect(ConnectionId, Box<CloseReason>),
    /// For every connection.
    DisconnectAll(Box<CloseReason>),
    /// What the network brought in one of its turns, and what that counts for.
    Deliver(Vec<SessionItem>, usize),
    /// All that was posted for a session before its connection ended has been worked through.
    Park(ConnectionId),
    /// The client has a subscription without its own messages: those are marked from now on.
    Mark(ConnectionId),
    /// A client has another list of rules.
    Assign(ConnectionId, u32, Arc<AccessList>),
    /// A list of rules has changed.
    Access(u32, Arc<AccessList>),
    Report(SyncSender<Vec<ConnectionStatus>>),
    Count(SyncSender<Counters>),
    /// What waits for clients is to be noted.
    Weigh,
    /// Claims were released elsewhere: the turn's end sees to them.
    Settle,
}

/// A client that may come in, and on what terms.
pub struct Admitted {
    pub accept: Accept,
    /// Of a session that is parked here.
    pub session: SessionHandle,
    /// The session's, from now on.
    pub settings: SessionSettings,
    /// Messages a second that are taken from it (0: any number), in place of the listener's limit.
    pub rate: Option<u32>,
    /// Its own or the assigned one.
    pub client_id: Box<str>,
    /// As the access list has it.
    pub user: Box<str>,
    /// The number of the access list, and the list; `None`: everything is allowed.
    pub access: Option<(u32, Arc<AccessList>)>,
    /// Marks its messages, for subscriptions without local ones over all gateways; not 0.
    pub origin: u64,
    /// A PUBACK tells that the owner has queued the message, not that it is distributed.
    pub ack_queued: bool,
}

/// How a client's connection is.
#[derive(Clone, Debug)]
pub struct ConnectionStatus {
    pub connection: ConnectionId,
    pub session: SessionHandle,
    pub client_id: Box<str>,
    pub user: Box<str>,
    pub version: Version,
    pub listener: u32,
    pub source: SocketAddr,
    pub load: Load,
    pub traffic: Traffic,
}

/// What went over a connection since it was accepted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// PUBLISH packets from the client, and to it.
    pub messages_in: u64,
    pub messages_out: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Messages that did not go to it.
    pub dropped: u64,
}

impl Traffic {
    /// Adds what a worker counted while it acted on the connection.
    pub fn add(&mut self, before: &Counters, after: &Counters) {
        self.messages_in += after.messages_in - before.messages_in;
        self.messages_out += after.messages_out - before.messages_out;
        self.dropped += after.drops.iter().sum::<u64>() - before.drops.iter().sum::<u64>();
    }
}
