//! Carries out the commands that other threads posted to a worker's clients.

use std::iter::Peekable;
use std::sync::Arc;

use super::{ClientTurn, Leaving};
use crate::mqtt::access::rules::{Access, AccessList};
use crate::mqtt::codec::packets::{CloseReason, Version};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::distribution::fanout::{ItemContent, ResumedSession, SessionItem};
use crate::mqtt::gateway::clients::{Client, PublishOptions};
use crate::mqtt::gateway::command::{Admitted, Command, ConnectionStatus};
use crate::mqtt::gateway::worker_event::WorkerEvent;
use crate::mqtt::io::connections::{ConnectionId, Connections};
use crate::mqtt::session::QueueTotals;

impl ClientTurn<'_> {
    pub(super) fn obey(&mut self, connections: &mut Connections<Client>, command: Command) {
        match command {
            Command::Accept(id, admitted) => self.accept(connections, id, *admitted),
            Command::Refuse(id, mut close_reason) => {
                answered(connections, id);
                let version = connections.get(id).and_then(|(_, client)| client.version);
                if version.is_some_and(|version| version < Version::V5) {
                    close_reason.reason = Reason::of_return_code(close_reason.reason.0);
                }
                self.with(connections, id, |connection, turn, upstream, _| {
                    connection.refuse(turn, &close_reason, upstream);
                });
            }
            Command::Challenge(id, auth) => {
                answered(connections, id);
                self.with(connections, id, |connection, turn, upstream, _| {
                    if !connection.challenge(turn, &auth) {
                        connection.disconnect(turn, &Reason::PACKET_TOO_LARGE.into(), upstream);
                    }
                });
            }
            Command::Acknowledge(id, kind, packet, reasons, text) => {
                answered(connections, id);
                self.with(connections, id, |connection, turn, upstream, _| {
                    connection.acknowledge(turn, kind, packet, &reasons, &text, upstream);
                });
            }
            Command::Disconnect(id, close_reason) => self.disconnect(connections, id, &close_reason),
            Command::Deliver(items, bytes) => {
                self.dispatcher.arrived(self.worker, bytes);
                let mut items = items.into_iter().peekable();
                while let Some(item) = items.next() {
                    self.deliver(connections, item, &mut items);
                }
            }
            Command::Park(id) => self.park(id),
            Command::SendOrigin(id) => send_origin(connections, id),
            Command::Assign(id, number, list) => assign(connections, id, number, &list),
            Command::Access(number, list) => self.set_access(connections, number, &list),
            // The receiver may have stopped waiting.
            Command::Report(to) => _ = to.send(report(connections)),
            Command::Count(to) => _ = to.send(*self.counters),
            Command::MeasureQueues => self.measure_queues(connections),
            Command::Settle => {}
        }
    }

    fn accept(&mut self, connections: &mut Connections<Client>, id: ConnectionId, admitted: Admitted) {
        answered(connections, id);
        let Some((_, client)) = connections.get(id) else {
            return;
        };
        let Admitted { accept, session: handle, settings, rate, workspace, access, origin, ack_queued } =
            admitted;
        let gets_copies = client.version == Some(Version::V5);
        let Some(ResumedSession { mut session, has_no_local }) =
            self.dispatcher.record(handle, id, origin, gets_copies)
        else {
            return self.disconnect(connections, id, &Reason::UNSPECIFIED.into());
        };
        session.set_settings(settings);
        session.access = access.as_ref().map_or_else(Access::default, |(_, list)| list.access());
        client.session = handle;
        client.publish_options = PublishOptions { origin: if has_no_local { origin } else { 0 }, ack_queued };
        (client.access, client.origin) = (access.map(|(number, _)| number), origin);
        client.connection.set_rate(rate);
        client.connection.set_workspace(workspace);
        self.with(connections, id, |connection, turn, upstream, _| {
            connection.accept(turn, &accept, session, upstream);
        });
    }

    fn disconnect(
        &mut self,
        connections: &mut Connections<Client>,
        id: ConnectionId,
        close_reason: &CloseReason,
    ) {
        self.with(connections, id, |connection, turn, upstream, _| {
            connection.disconnect(turn, close_reason, upstream);
        });
    }

    /// Delivers an item, and the items of `rest` that follow it for the same connection.
    fn deliver(
        &mut self,
        connections: &mut Connections<Client>,
        item: SessionItem,
        rest: &mut Peekable<impl Iterator<Item = SessionItem>>,
    ) {
        let SessionItem { connection: id, mut content } = item;
        if let Some(leaving) = self.leaving.get_mut(&id) {
            return content.pass_to(self.now, &mut leaving.session, self.counters);
        }
        self.with(connections, id, |connection, turn, upstream, encoder| {
            loop {
                match content {
                    ItemContent::Message(delivery) => connection.deliver(turn, delivery, encoder),
                    ItemContent::MessageBatch(batch, delivery_options) => {
                        connection.deliver_batch(turn, &batch, &delivery_options, encoder);
                    }
                    ItemContent::Answer(key, reason) => connection.answer(turn, key, reason, upstream),
                }
                // If the connection closes, the remaining items are for its session.
                let goes_on = |item: &SessionItem| item.connection == id && !connection.is_closed();
                match rest.next_if(goes_on) {
                    Some(item) => content = item.content,
                    None => break,
                }
            }
        });
    }

    fn measure_queues(&mut self, connections: &mut Connections<Client>) {
        let Some(worker_metrics) = &mut self.worker_metrics else {
            return;
        };
        let sessions = connections.ids().into_iter().filter_map(|id| {
            let (_, client) = connections.get(id)?;
            client.connection.session().map(|session| session.load())
        });
        worker_metrics.queued = sessions.fold(QueueTotals::default(), QueueTotals::plus);
    }

    fn park(&mut self, id: ConnectionId) {
        if let Some(leaving) = self.leaving.remove(&id) {
            let Leaving { handle, session, closed } = leaving;
            self.dispatcher.park(self.now, handle, session, WorkerEvent::Closed(id, closed));
        }
    }

    fn set_access(&mut self, connections: &mut Connections<Client>, number: u32, list: &Arc<AccessList>) {
        for id in connections.ids() {
            if connections.get(id).is_some_and(|(_, client)| client.access == Some(number)) {
                assign(connections, id, number, list);
            }
        }
    }
}

/// Applies an access list to a client.
fn assign(connections: &mut Connections<Client>, id: ConnectionId, number: u32, list: &AccessList) {
    if let Some((_, client)) = connections.get(id)
        && let Some(session) = client.connection.session()
    {
        session.access = list.access();
        client.access = Some(number);
    }
}

/// Python has answered a request.
fn answered(connections: &mut Connections<Client>, id: ConnectionId) {
    if let Some((_, client)) = connections.get(id) {
        client.open_requests = client.open_requests.saturating_sub(1);
    }
}

fn send_origin(connections: &mut Connections<Client>, id: ConnectionId) {
    if let Some((_, client)) = connections.get(id) {
        client.publish_options.origin = client.origin;
    }
}

fn report(connections: &mut Connections<Client>) -> Vec<ConnectionStatus> {
    let ids = connections.ids();
    let status = |id| {
        let (_, client) = connections.get(id)?;
        let queued = client.connection.session()?.load().queued;
        Some(ConnectionStatus { connection: id, traffic: client.traffic, queued })
    };
    ids.into_iter().filter_map(status).collect()
}
