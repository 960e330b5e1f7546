//! Datagrams of sessions: from the header to each packet (§3).

use std::net::SocketAddr;

use bytes::Bytes;

use crate::Micros;
use crate::broken::Defect;
use crate::engine::metrics::counters::Drop;
use crate::engine::transport::event::{DownReason, Event};
use crate::engine::transport::outbound::Handoff;
use crate::engine::{Engine, Side};
use crate::link::{Arrival, ReceiveOutcome, Role};
use crate::link_id::LinkId;
use crate::publisher_id::publisher_id;
use crate::rights::LinkRights;
use crate::schema::reason;
use crate::wire::{Body, DatagramView, Header, Kind, Malformed, PacketView};

/// How often an opening link takes a new token before it waits for its timer.
const TOKEN_RENEWALS: u8 = 4;
/// The shortest time between two CHALLENGEs for a session whose address has changed: one answers all
/// datagrams in flight.
const CHALLENGE_INTERVAL: Micros = 20_000;

impl Engine {
    /// Takes a datagram in. It is handled, or dropped and counted; no datagram is an error.
    pub fn handle_datagram(&mut self, now: Micros, source: SocketAddr, datagram: &[u8]) {
        self.out.counters.datagrams_in += 1;
        self.out.counters.bytes_in += datagram.len() as u64;
        self.take_datagram(now, source, datagram);
    }

    /// Takes in a datagram that was parsed: `view` is its contents. It is not counted.
    pub fn handle_view(&mut self, now: Micros, source: SocketAddr, view: &DatagramView<'_>, datagram: &[u8]) {
        match view.header.session {
            0 => self.handle_outside(now, source, view, datagram.len()),
            session => match self.find_link(session, source) {
                Some(id) => self.handle_inside(now, id, source, view, datagram.len()),
                None => self.handle_first_contact(now, source, view, datagram),
            },
        }
    }

    /// Takes in a datagram that this worker or another one received.
    pub(in crate::engine) fn take_datagram(&mut self, now: Micros, source: SocketAddr, datagram: &[u8]) {
        let mut buffers = self.view_buffers.take().unwrap_or_default();
        let mut view = DatagramView::unread(datagram, buffers.take());
        match view.read(&mut buffers.mask) {
            Ok(()) => self.handle_view(now, source, &view, datagram),
            Err(Malformed) => self.out.counters.drop(Drop::Malformed),
        }
        buffers.put_back(view.into_buffer());
        self.view_buffers = Some(buffers);
    }

    fn find_link(&self, session: u64, source: SocketAddr) -> Option<LinkId> {
        if session == self.config.session {
            self.out.links.by_address(source)
        } else {
            self.out.links.by_session(session)
        }
    }

    fn handle_inside(
        &mut self,
        now: Micros,
        id: LinkId,
        source: SocketAddr,
        view: &DatagramView<'_>,
        received: usize,
    ) {
        if view.header.number == 0 && (self.handle_reset(now, id, view) || self.handle_challenge(id, view)) {
            return;
        }
        let (clock, sender) = (self.token_clock(now), self.sender_key());
        let Some(entry) = self.out.links.get_mut(id) else {
            return;
        };
        if entry.rights.expects_another(sender) {
            return self.out.counters.drop(Drop::NotAuthorized);
        }
        let is_unproved = entry.link.awaits_token() || entry.link.is_unproved();
        let proves = is_unproved && self.config.token_keys.verify(clock, source, view.header.token);
        if entry.link.awaits_token() && !proves {
            return self.turn_away(now, source, view, received);
        }
        match entry.link.handle_header(now, &view.header, source) {
            Arrival::Fresh if proves && source == entry.link.peer() => entry.link.prove(),
            Arrival::Fresh => {}
            Arrival::Moved => {
                if self.config.token_keys.verify(clock, source, view.header.token) {
                    self.move_link(now, id, source, received);
                } else {
                    self.challenge_moved(now, id, source, received);
                }
            }
            Arrival::Duplicate => {
                self.out.counters.drop(Drop::DuplicateDatagram);
                self.out.links.mark_dirty(id);
                return;
            }
            Arrival::Past => return self.out.counters.drop(Drop::UnknownSession),
            Arrival::Unsent => return self.out.counters.drop(Drop::UnsentAcknowledged),
            Arrival::Restarted => return self.handle_restart(now, id, source, view, received),
        }
        self.handle_packets(now, id, source, view, received);
    }

    fn handle_packets(
        &mut self,
        now: Micros,
        id: LinkId,
        source: SocketAddr,
        view: &DatagramView<'_>,
        received: usize,
    ) {
        self.note_link_rights(id);
        self.announce(id);
        if view.header.number == 0 {
            self.out.counters.drop_many(Drop::UnexpectedPacket, view.packets().len() as u64);
            self.out.links.mark_dirty(id);
            return self.use_room(now, id);
        }
        if let Side::Node(forwarder) = &self.side {
            forwarder.routes.expect(topics(view));
        }
        // The reliable packets are handled first. If one of them cannot be kept, the whole datagram is sent
        // again under another number, and an unreliable packet must not be handled twice.
        let mut kept = true;
        let mut rest = view.packets();
        while let Some(section) = rest.sections().next() {
            let count = if section.is_reliable() {
                self.take_deliveries(now, id, rest).unwrap_or_else(|alone| {
                    rest.take(alone).for_each(|packet| kept &= self.handle_reliable(now, id, source, packet));
                    alone
                })
            } else {
                section.len()
            };
            rest = rest.skip(count);
        }
        if kept {
            self.handle_unreliable(now, id, source, view);
        } else {
            let lost = view.packets().sections().filter(|section| !section.is_reliable());
            self.out.counters.drop_many(Drop::NoRoom, lost.map(|section| section.len() as u64).sum());
        }
        if let Some(entry) = self.out.links.get_mut(id) {
            entry.link.finish_datagram(now, view.header.number, received, view.has_packets(), kept);
            self.out.links.mark_dirty(id);
        }
        self.use_room(now, id);
    }

    /// Handles the unreliable packets.
    fn handle_unreliable(&mut self, now: Micros, id: LinkId, source: SocketAddr, view: &DatagramView<'_>) {
        let mut rest = view.packets();
        while let Some(section) = rest.sections().next() {
            let count = if section.is_reliable() {
                section.len()
            } else {
                self.take_batch(now, id, rest).unwrap_or_else(|alone| {
                    rest.take(alone).for_each(|packet| self.handle_body(now, id, source, packet));
                    alone
                })
            };
            rest = rest.skip(count);
        }
    }

    /// Handles one reliable packet. False (and counted): it cannot be kept, so its datagram must not be
    /// acknowledged (§3.3).
    fn handle_reliable(
        &mut self,
        now: Micros,
        id: LinkId,
        source: SocketAddr,
        packet: &PacketView<'_>,
    ) -> bool {
        let has_room = self.has_room(id, packet);
        let receipt = if has_room { self.out.links.receive(id, packet) } else { None };
        let refused = match receipt {
            Some(ReceiveOutcome::Deliver) => {
                self.handle_body(now, id, source, packet);
                self.release(now, id);
                return true;
            }
            Some(ReceiveOutcome::Buffered) => return true,
            Some(ReceiveOutcome::Duplicate) => {
                self.out.counters.drop(Drop::DuplicateDelivery);
                return true;
            }
            Some(ReceiveOutcome::NoRoom) => Drop::EarlyFull,
            Some(ReceiveOutcome::Refused) | None => Drop::NoRoom,
        };
        self.out.counters.drop(refused);
        false
    }

    /// Handles the packets that waited for the one before them, as far as there is room.
    pub(in crate::engine) fn release(&mut self, now: Micros, id: LinkId) {
        while let Some(entry) = self.out.links.awake(id)
            && let Some(raw) = entry.link.peek_released()
        {
            let source = entry.link.peer();
            // It was parsed when it was buffered.
            let has_room = PacketView::from_raw(raw).is_ok_and(|packet| self.has_room(id, &packet));
            if !has_room {
                if let Some(entry) = self.out.links.get_mut(id)
                    && !std::mem::replace(&mut entry.stalled, true)
                {
                    self.stalled.push(id);
                }
                return;
            }
            if let Some(raw) = self.out.links.next_released(id)
                && let Ok(packet) = PacketView::from_raw(&raw)
            {
                self.handle_body(now, id, source, &packet);
            }
        }
    }

    /// Handles the packets that had no room until Python took events or messages.
    pub(in crate::engine) fn release_stalled(&mut self, now: Micros) {
        for id in std::mem::take(&mut self.stalled) {
            if let Some(entry) = self.out.links.get_mut(id) {
                entry.stalled = false;
                self.release(now, id);
            }
        }
    }

    fn has_room(&self, id: LinkId, packet: &PacketView<'_>) -> bool {
        match (&packet.body, &self.side) {
            (Body::Publish(_), Side::Client(client)) => !client.inbox.is_full(),
            (Body::Control(_), _) => {
                let entry = self.out.links.awake(id);
                entry.is_some_and(|entry| self.events.has_room(self.flow_of(entry.session)))
            }
            _ => true,
        }
    }

    fn handle_body(&mut self, now: Micros, id: LinkId, source: SocketAddr, packet: &PacketView<'_>) {
        match &packet.body {
            Body::Publish(publish) => match self.side {
                Side::Node(_) => self.forward(now, id, packet, publish),
                Side::Client(_) => self.read(now, id, packet, publish),
            },
            Body::PubAck(puback) => match self.side {
                Side::Node(_) => self.settle(now, id, puback),
                Side::Client(_) => self.complete(now, id, puback),
            },
            Body::Ping { sent_at_us } => {
                if let Some(entry) = self.out.links.get_mut(id) {
                    entry.link.answer_ping(*sent_at_us);
                }
            }
            Body::Control(kind) => self.hand_up(id, source, *kind, packet.raw),
            Body::Delta(_) | Body::Reset { .. } | Body::Challenge { .. } => {
                self.out.counters.drop(Drop::UnexpectedPacket);
            }
            Body::Credit { messages, bytes, for_many } => match self.side {
                Side::Node(_) => self.grant_credit(now, id, (*messages, *bytes), *for_many),
                Side::Client(_) => self.take_credit(now, id, *messages, *bytes),
            },
            Body::Pong { .. } | Body::None => {}
        }
    }

    fn hand_up(&mut self, id: LinkId, source: SocketAddr, kind: Kind, packet: &[u8]) {
        let Some(entry) = self.out.links.awake(id) else {
            return;
        };
        let (flow, inbound, rights) = (self.flow_of(entry.session), entry.inbound, entry.rights.key());
        if !self.events.has_room(flow) {
            self.out.counters.drop(Drop::EventQueueFull);
            return;
        }
        let event = Event::Control { link: Some(id), source, packet: packet.to_vec(), inbound, rights };
        match kind {
            Kind::Join | Kind::Authenticated => self.events.push_join(flow, event),
            _ => self.events.push(flow, event),
        }
    }

    /// The first datagram of a session that this worker does not have (§3.1).
    fn handle_first_contact(
        &mut self,
        now: Micros,
        source: SocketAddr,
        view: &DatagramView<'_>,
        datagram: &[u8],
    ) {
        let session = view.header.session;
        // No link begins with an acknowledgement or a RESET. Those are not answered, so that no two nodes
        // answer each other for ever.
        if view.header.number == 0 {
            return match self.home_of(&view.header) {
                Some(worker) => self.hand_over(worker, source, datagram),
                None => self.out.counters.drop(Drop::UnknownSession),
            };
        }
        if let Some(worker) = self.home_of(&view.header) {
            return self.hand_over(worker, source, datagram);
        }
        if matches!(self.side, Side::Client(_)) && session == self.config.session {
            // A node to which our session was handed over opens its link (§5.4). A datagram of a link that
            // has ended here does not open one.
            if is_of_link_before(view) {
                return self.out.counters.drop(Drop::UnknownSession);
            }
            return self.accept(now, Role::Initiator, source, view, datagram.len());
        }
        if matches!(self.side, Side::Client(_)) || session == self.config.session {
            return self.out.counters.drop(Drop::UnknownSession);
        }
        let is_proved = self.config.token_keys.verify(self.token_clock(now), source, view.header.token);
        if self.is_shut_out() {
            self.out.counters.drop(Drop::NotAuthorized);
            self.answer_reset(now, source, session, reason::NOT_AUTHORIZED, datagram.len());
        } else if is_proved {
            if self.may_go_on(session, source) {
                self.accept(now, Role::Acceptor, source, view, datagram.len());
            }
        } else {
            self.out.counters.drop(Drop::UnknownSession);
            self.answer_reset(now, source, session, reason::SUCCESS, datagram.len());
        }
    }

    /// The other worker that is the home of a session. Links that this node opened belong to the first
    /// worker.
    fn home_of(&self, header: &Header<'_>) -> Option<u8> {
        if self.workers == 1 {
            return None;
        }
        let &Header { session, incarnation, .. } = header;
        let is_publisher = |id| id == publisher_id(session, incarnation);
        let home = match session == self.config.session {
            true => Some(0),
            false => self.shared.home_workers.home_of(session, is_publisher),
        };
        home.filter(|&worker| worker != self.worker)
    }

    fn hand_over(&mut self, worker: u8, source: SocketAddr, datagram: &[u8]) {
        let (rights, datagram) = (self.sender_rights.clone(), Bytes::copy_from_slice(datagram));
        self.out.handoffs.push_back((worker, Handoff::Datagram { source, rights, datagram }));
    }

    fn accept(
        &mut self,
        now: Micros,
        role: Role,
        source: SocketAddr,
        view: &DatagramView<'_>,
        received: usize,
    ) {
        // A link causes two events that Python must get (§3.5).
        if self.events.is_full() {
            return self.out.counters.drop(Drop::NoRoom);
        }
        // A link that a node opens carries the token that proves its answers (§3.1).
        let token = if role == Role::Initiator { view.header.token.to_vec() } else { Vec::new() };
        let Header { session, number, .. } = view.header;
        let mut rights = LinkRights::default();
        rights.note(self.sender_rights.as_ref().filter(|_| role == Role::Acceptor));
        match self.open_link(now, role, session, source, token, rights) {
            Ok(id) => {
                if let Some(entry) = self.out.links.get_mut(id) {
                    match role {
                        Role::Initiator => entry.link.begun_by_peer(),
                        _ if acknowledges(view) => entry.link.mismatch(),
                        _ => {}
                    }
                }
                self.handle_inside(now, id, source, view, received);
            }
            // So the peer learns it at once, and not after an idle timeout.
            Err(Drop::TooManyLinks | Drop::TooManyOfHost) if role == Role::Acceptor && number != 0 => {
                self.answer_reset(now, source, session, reason::QUOTA_EXCEEDED, received);
            }
            Err(_) => {}
        }
    }

    /// Handles a RESET (§3.6). False: the datagram holds none for this link.
    fn handle_reset(&mut self, now: Micros, id: LinkId, view: &DatagramView<'_>) -> bool {
        let Some(entry) = self.out.links.get_mut(id).filter(|entry| !entry.inbound) else {
            return false;
        };
        let reset = view.packets().iter().find_map(|packet| match packet.body {
            Body::Reset { session, token, reason } if session == entry.session => Some((token, reason)),
            _ => None,
        });
        let Some((token, reason)) = reset else { return false };
        if reason != reason::SUCCESS {
            self.end_link(now, id, DownReason::Refused);
        } else if entry.link.is_established() {
            self.end_link(now, id, DownReason::Reset);
        } else if entry.token_renewals < TOKEN_RENEWALS {
            entry.token_renewals += 1;
            entry.link.renew_token(token.to_vec());
            self.out.links.mark_dirty(id);
        }
        true
    }

    /// Handles a CHALLENGE in a session: the address of this end has changed (§4.4). False: the datagram
    /// holds none for this link.
    fn handle_challenge(&mut self, id: LinkId, view: &DatagramView<'_>) -> bool {
        let Some(entry) = self.out.links.get_mut(id).filter(|entry| !entry.inbound) else {
            return false;
        };
        let token = view.packets().iter().find_map(|packet| match packet.body {
            Body::Challenge { token, .. } => Some(token),
            _ => None,
        });
        let Some(token) = token else { return false };
        if entry.link.prove_address(token.to_vec()) {
            self.out.links.mark_dirty(id);
        }
        true
    }

    /// The newest datagram of a session came from an unproved address: sends a CHALLENGE (§4.4).
    fn challenge_moved(&mut self, now: Micros, id: LinkId, source: SocketAddr, received: usize) {
        if let Some(session) = self.moved_session(now, id) {
            self.answer_challenge(now, source, session, received);
        }
    }

    /// The session of a link whose peer has moved, if that may be answered now: once per
    /// `CHALLENGE_INTERVAL`.
    fn moved_session(&mut self, now: Micros, id: LinkId) -> Option<u64> {
        let entry = self.out.links.get_mut(id)?;
        if !entry.inbound || now < entry.challenge_from {
            return None;
        }
        entry.challenge_from = now + CHALLENGE_INTERVAL;
        Some(entry.session)
    }

    /// The peer runs under another incarnation: as an initiator it begins a new link; as an acceptor it is
    /// another process (§3.6).
    fn handle_restart(
        &mut self,
        now: Micros,
        id: LinkId,
        source: SocketAddr,
        view: &DatagramView<'_>,
        received: usize,
    ) {
        let Some(entry) = self.out.links.awake(id) else {
            return;
        };
        let inbound = entry.inbound;
        if inbound && self.is_shut_out() {
            return self.out.counters.drop(Drop::NotAuthorized);
        }
        let is_same_run = !inbound || entry.link.is_continued_by(view.header.incarnation);
        if self.events.is_full() {
            return self.out.counters.drop(Drop::NoRoom);
        }
        if inbound && !self.config.token_keys.verify(self.token_clock(now), source, view.header.token) {
            return self.turn_away(now, source, view, received);
        }
        if inbound && !self.may_go_on(view.header.session, source) {
            return;
        }
        let Some(entry) = self.out.links.awake(id) else {
            return;
        };
        let reason = if is_same_run { DownReason::Restarted } else { DownReason::TakenOver };
        let peer = entry.link.peer();
        self.end_link(now, id, reason);
        if inbound {
            self.accept(now, Role::Acceptor, source, view, received);
        } else if is_of_link_before(view) {
            // The peer's new link belongs to the one that ends here, not to the next: an answer on it would
            // only end the next one, too.
            self.out.links.note_past(peer, view.header.incarnation);
        } else if matches!(self.side, Side::Client(_)) && !Defect::IgnoresNextRun.is_present() {
            // The node's next run was handed our session, and opens its link (§5.4). It sends this datagram
            // once, so the link begins with it.
            self.accept(now, Role::Initiator, source, view, received);
        }
    }

    /// A datagram of a session, but of no link that is known here (§3.6).
    fn turn_away(&mut self, now: Micros, source: SocketAddr, view: &DatagramView<'_>, received: usize) {
        self.out.counters.drop(Drop::UnknownSession);
        if view.header.number != 0 {
            self.answer_reset(now, source, view.header.session, reason::SUCCESS, received);
        }
    }

    /// The peer has proved this address. If its new host has too many links, the link stays here, and only
    /// the peer ends it (§3.6).
    fn move_link(&mut self, now: Micros, id: LinkId, address: SocketAddr, received: usize) {
        let Some(entry) = self.out.links.get_mut(id).filter(|entry| entry.inbound) else {
            return;
        };
        let (from, to) = (entry.link.peer().ip().into(), address.ip().into());
        match self.shared.hosts.move_to(Some(from), to, true) {
            Ok(()) => entry.link.move_to(address),
            Err(_) => {
                self.out.counters.drop(Drop::TooManyOfHost);
                if let Some(session) = self.moved_session(now, id) {
                    self.answer_reset(now, address, session, reason::QUOTA_EXCEEDED, received);
                }
            }
        }
    }
}

/// The topics of a datagram's messages, without consecutive duplicates.
fn topics<'a>(view: &DatagramView<'a>) -> impl Iterator<Item = &'a str> {
    let mut last = "";
    view.packets().sections().filter_map(move |section| match section.body() {
        Body::Publish(publish) if publish.topic != last => {
            last = publish.topic;
            Some(last)
        }
        _ => None,
    })
}

/// Whether a datagram acknowledges or answers anything: then its sender has a link already, and does not
/// begin one (§3.6).
fn acknowledges(view: &DatagramView<'_>) -> bool {
    view.header.ack.is_some()
        || view.packets().sections().any(|section| matches!(section.body(), Body::PubAck(_)))
}

/// Whether a node's datagram belongs to a link that a client opened, or answered, before. A datagram that
/// begins a link has a token (§3.1), and acknowledges nothing.
fn is_of_link_before(view: &DatagramView<'_>) -> bool {
    view.header.token.is_empty() || acknowledges(view)
}
