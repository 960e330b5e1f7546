//! What a worker does for other threads.

use std::iter::Peekable;
use std::sync::Arc;

use super::{ClientTurn, Leaving};
use crate::mqtt::access::rules::{Access, AccessList};
use crate::mqtt::client::{Client, Marks, Name};
use crate::mqtt::client_counters::Weight;
use crate::mqtt::codec::packets::{Farewell, Version};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::command::{Admitted, Command, ConnectionStatus, Traffic};
use crate::mqtt::distribution::fanout::{Parcel, Seated, What};
use crate::mqtt::distribution::network::Network;
use crate::mqtt::io::connections::{ConnectionId, Connections};
use crate::mqtt::session::Delivery;
use crate::mqtt::worker_event::News;

impl<N: Network> ClientTurn<'_, N> {
    pub(super) fn obey(&mut self, connections: &mut Connections<Client>, command: Command) {
        match command {
            Command::Accept(id, admitted) => self.accept(connections, id, *admitted),
            Command::Refuse(id, mut farewell) => {
                answered(connections, id);
                let version = connections.get(id).and_then(|(_, client)| client.version);
                if version.is_some_and(|version| version < Version::V5) {
                    farewell.reason = Reason::of_return_code(farewell.reason.0);
                }
                self.with(connections, id, |connection, hand, above, _| {
                    connection.refuse(hand, &farewell, above);
                });
            }
            Command::Challenge(id, auth) => {
                answered(connections, id);
                self.with(connections, id, |connection, hand, above, _| {
                    if !connection.challenge(hand, &auth) {
                        connection.disconnect(hand, &Reason::PACKET_TOO_LARGE.into(), above);
                    }
                });
            }
            Command::Suback(id, packet, reasons, text) => {
                answered(connections, id);
                self.with(connections, id, |connection, hand, above, _| {
                    connection.suback(hand, packet, &reasons, &text, above);
                });
            }
            Command::Unsuback(id, packet, reasons, text) => {
                answered(connections, id);
                self.with(connections, id, |connection, hand, above, _| {
                    connection.unsuback(hand, packet, &reasons, &text, above);
                });
            }
            Command::Disconnect(id, farewell) => self.disconnect(connections, id, &farewell),
            Command::DisconnectAll(farewell) => {
                connections.ids().into_iter().for_each(|id| self.disconnect(connections, id, &farewell));
            }
            Command::Deliver(parcels, bytes) => {
                self.office.arrived(self.worker, bytes);
                let mut parcels = parcels.into_iter().peekable();
                while let Some(parcel) = parcels.next() {
                    self.deliver(connections, parcel, &mut parcels);
                }
            }
            Command::Park(id) => self.park(id),
            Command::Mark(id) => mark(connections, id),
            Command::Assign(id, number, list) => assign(connections, id, number, &list),
            Command::Access(number, list) => self.set_access(connections, number, &list),
            // Who asked may have stopped waiting.
            Command::Report(to) => _ = to.send(report(connections)),
            Command::Count(to) => _ = to.send(*self.counters),
            Command::Weigh => self.weigh(connections),
            Command::Settle => {}
        }
    }

    fn accept(&mut self, connections: &mut Connections<Client>, id: ConnectionId, admitted: Admitted) {
        answered(connections, id);
        let Some((_, client)) = connections.get(id) else {
            return;
        };
        let Admitted { accept, session: handle, settings, rate, client_id, user, access, origin, ack_queued } =
            admitted;
        let gets_copies = client.version == Some(Version::V5);
        let Some(seated) = self.office.seat(handle, id, origin, gets_copies) else {
            return self.disconnect(connections, id, &Reason::UNSPECIFIED.into());
        };
        let Seated { mut session, has_no_local } = seated;
        session.set_settings(settings);
        session.set_access(access.as_ref().map_or_else(Access::default, |(_, list)| list.access()));
        client.session = handle;
        client.marks = Marks { origin: if has_no_local { origin } else { 0 }, ack_queued };
        let access = access.map(|(number, _)| number);
        client.name = Some(Box::new(Name { client_id, user, access, origin }));
        if let Some(rate) = rate {
            client.connection.set_rate(self.now, rate);
        }
        self.with(connections, id, |connection, hand, above, _| {
            connection.accept(hand, &accept, session, above);
        });
    }

    fn disconnect(&mut self, connections: &mut Connections<Client>, id: ConnectionId, farewell: &Farewell) {
        self.with(connections, id, |connection, hand, above, _| connection.disconnect(hand, farewell, above));
    }

    /// Delivers a parcel, and of the `rest` what follows it to the same connection.
    fn deliver(
        &mut self,
        connections: &mut Connections<Client>,
        parcel: Parcel,
        rest: &mut Peekable<impl Iterator<Item = Parcel>>,
    ) {
        let Parcel { connection: id, mut what } = parcel;
        if self.leaving.contains_key(&id) {
            return self.deliver_leaving(id, what);
        }
        self.with(connections, id, |connection, hand, above, encoder| {
            loop {
                match what {
                    What::Message(delivery) => connection.deliver(hand, delivery, encoder, above),
                    What::Series(series, terms) => {
                        connection.deliver_series(hand, &series, &terms, encoder, above);
                    }
                    What::Answer(key, reason) => connection.answer(hand, key, reason, above),
                }
                // What a connection leaves when it ends is for its session.
                let goes_on = |parcel: &Parcel| parcel.connection == id && !connection.is_closed();
                match rest.next_if(goes_on) {
                    Some(parcel) => what = parcel.what,
                    None => break,
                }
            }
        });
    }

    fn deliver_leaving(&mut self, id: ConnectionId, what: What) {
        let Some(leaving) = self.leaving.get_mut(&id) else {
            return;
        };
        let mut deliver = |delivery| {
            if !leaving.session.deliver(self.now, delivery, self.counters) {
                self.news.push(News::Overflow(leaving.handle));
            }
        };
        match what {
            What::Message(delivery) => deliver(delivery),
            What::Series(series, terms) => {
                series
                    .messages()
                    .for_each(|message| deliver(Delivery { message, terms: terms.clone(), claim: None }));
            }
            What::Answer(key, reason) => leaving.session.answer(key, reason),
        }
    }

    fn weigh(&mut self, connections: &mut Connections<Client>) {
        let Some(slate) = &mut self.slate else {
            return;
        };
        let sessions = connections.ids().into_iter().filter_map(|id| {
            let (_, client) = connections.get(id)?;
            client.connection.session().map(|session| session.load())
        });
        slate.weight = sessions.fold(Weight::default(), Weight::with);
    }

    fn park(&mut self, id: ConnectionId) {
        if let Some(leaving) = self.leaving.remove(&id) {
            let Leaving { handle, session, closed } = leaving;
            self.office.park(self.now, handle, session, News::Closed(id, handle, closed));
        }
    }

    fn set_access(&mut self, connections: &mut Connections<Client>, number: u32, list: &Arc<AccessList>) {
        for id in connections.ids() {
            let holds = |name: &Name| name.access == Some(number);
            if connections.get(id).is_some_and(|(_, client)| client.name.as_deref().is_some_and(holds)) {
                assign(connections, id, number, list);
            }
        }
    }
}

/// A client is held to a list of rules from now on.
fn assign(connections: &mut Connections<Client>, id: ConnectionId, number: u32, list: &AccessList) {
    if let Some((_, client)) = connections.get(id)
        && let Some(name) = &mut client.name
        && let Some(session) = client.connection.session()
    {
        name.access = Some(number);
        session.set_access(list.access());
    }
}

/// Python has answered a question.
fn answered(connections: &mut Connections<Client>, id: ConnectionId) {
    if let Some((_, client)) = connections.get(id) {
        client.asked = client.asked.saturating_sub(1);
    }
}

fn mark(connections: &mut Connections<Client>, id: ConnectionId) {
    if let Some((_, client)) = connections.get(id) {
        client.marks.origin = client.name.as_ref().map_or(0, |name| name.origin);
    }
}

fn report(connections: &mut Connections<Client>) -> Vec<ConnectionStatus> {
    let ids = connections.ids();
    let status = |id| {
        let (connection, client) = connections.get(id)?;
        let name = client.name.as_ref()?;
        Some(ConnectionStatus {
            connection: id,
            session: client.session,
            client_id: name.client_id.clone(),
            user: name.user.clone(),
            version: client.version?,
            listener: connection.listener(),
            source: connection.source(),
            traffic: Traffic { bytes_out: connection.bytes_out(), ..client.traffic },
            load: client.connection.session().map(|session| session.load()).unwrap_or_default(),
        })
    };
    ids.into_iter().filter_map(status).collect()
}
