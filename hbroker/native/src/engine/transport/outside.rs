//! Datagrams outside of any session: requests, their answers, and the validation of addresses (§4). A stranger
//! costs no memory: until its address is proved, it gets only a token, in no more bytes than it sent.

use std::net::SocketAddr;

use crate::Micros;
use crate::engine::metrics::counters::Drop;
use crate::engine::transport::event::{Event, Flow};
use crate::engine::{Engine, Side};
use crate::schema::reason;
use crate::token::LIFETIME_S;
use crate::wire::{self, Body, DatagramView, HeaderOut, Kind, PacketView};

/// Whether a node takes this packet outside of a session, from a proved address.
fn is_request(kind: Kind) -> bool {
    matches!(kind, Kind::PubConnect | Kind::Subscribe | Kind::Join | Kind::Order)
}

/// How many datagrams outside of any session may wait to be sent.
const MOST_WAITING: usize = 8_192;

impl Engine {
    pub(in crate::engine) fn handle_outside(
        &mut self,
        now: Micros,
        source: SocketAddr,
        view: &DatagramView<'_>,
        received: usize,
    ) {
        let proved = self.config.token_keys.verify(self.token_clock(now), source, view.header.token);
        let mut challenged = false;
        for packet in view.packets().iter() {
            match (packet.body, &self.side) {
                (Body::Control(kind), Side::Node(_)) if is_request(kind) && proved => {
                    let host = source.ip().into();
                    let is_order = matches!(kind, Kind::Join | Kind::Order);
                    let flow = if is_order { Flow::Order(host) } else { Flow::Outside(host) };
                    self.hand_up_outside(flow, source, &packet);
                }
                (Body::Control(kind), Side::Node(_)) if is_request(kind) => {
                    self.out.counters.drop(Drop::AddressUnproven);
                    if !challenged {
                        challenged = true;
                        self.answer_challenge(now, source, 0, received);
                    }
                }
                (Body::Control(Kind::JoinAck) | Body::Challenge { .. }, Side::Node(_)) => {
                    if self.strangers.take(now) {
                        self.hand_up_outside(Flow::Outside(source.ip().into()), source, &packet);
                    } else {
                        self.out.counters.drop(Drop::RateLimited);
                    }
                }
                (
                    Body::Control(
                        Kind::PubAccept | Kind::SubAck | Kind::Referral | Kind::Leave | Kind::OrderAck,
                    )
                    | Body::Challenge { .. },
                    Side::Client(_),
                ) => self.hand_up_outside(Flow::Own, source, &packet),
                (Body::None, _) => {}
                _ => self.out.counters.drop(Drop::UnexpectedPacket),
            }
        }
    }

    /// Sends one datagram outside of any session, padded to at least `pad_to` bytes. `destination`: the address, and the
    /// key of the rights of who is meant.
    pub fn send_to(
        &mut self,
        (address, rights): (SocketAddr, u64),
        packet: &[u8],
        token: &[u8],
        pad_to: usize,
    ) {
        let mut datagram = Vec::with_capacity(pad_to.max(packet.len() + 64));
        wire::put_header(
            &mut datagram,
            &HeaderOut { incarnation: self.config.incarnation, token, ..HeaderOut::default() },
        );
        wire::put_packet(&mut datagram, 0, 0, None, packet);
        let missing = pad_to.saturating_sub(datagram.len());
        if missing > 0 {
            wire::put_padding(&mut datagram, missing.max(2));
        }
        let rights = if self.config.requires_tokens { rights } else { 0 };
        self.send_outside((address, rights), datagram);
    }

    /// A token that proves `address` to this node and to those that share its keys.
    pub fn token_for(&self, now: Micros, address: SocketAddr) -> Vec<u8> {
        self.config.token_keys.issue(self.token_clock(now), address).to_vec()
    }

    /// Sends a RESET. `reason` says why no session is opened; with SUCCESS the RESET contains a token.
    pub(in crate::engine) fn answer_reset(
        &mut self,
        now: Micros,
        source: SocketAddr,
        session: u64,
        reason: i32,
        received: usize,
    ) {
        let token = if reason == reason::SUCCESS { self.token_for(now, source) } else { Vec::new() };
        let mut body = Vec::new();
        wire::put_reset_field(&mut body, session, &token, reason);
        self.answer_stranger(now, source, session, &body, received);
    }

    /// Sends a RESET to each peer that opened a link: the link is gone.
    pub fn reset_peers(&mut self, now: Micros) {
        let opened = self.out.links.iter().filter(|link| link.inbound());
        let opened: Vec<_> = opened.map(|link| (link.session(), link.address(), link.rights())).collect();
        for (session, address, rights) in opened {
            let (mut body, mut datagram) = (Vec::new(), Vec::new());
            wire::put_reset_field(&mut body, session, &self.token_for(now, address), reason::SUCCESS);
            let header = HeaderOut { session, incarnation: self.config.incarnation, ..HeaderOut::default() };
            wire::put_header(&mut datagram, &header);
            wire::put_packet(&mut datagram, 0, 0, None, &body);
            self.pending.push_back(((address, rights), datagram));
        }
    }

    /// The time for tokens, in seconds. Engines use microseconds since the Unix epoch.
    #[allow(clippy::unused_self, clippy::cast_possible_truncation)]
    pub(in crate::engine) fn token_clock(&self, now: Micros) -> u32 {
        (now / 1_000_000) as u32
    }

    /// Sends a CHALLENGE. `session` 0: for a request outside of any session; else the address of this session
    /// has changed (§4.4).
    pub(in crate::engine) fn answer_challenge(
        &mut self,
        now: Micros,
        source: SocketAddr,
        session: u64,
        received: usize,
    ) {
        let token = self.token_for(now, source);
        let mut body = Vec::new();
        wire::put_challenge_field(&mut body, &token, LIFETIME_S);
        self.answer_stranger(now, source, session, &body, received);
    }

    fn answer_stranger(
        &mut self,
        now: Micros,
        source: SocketAddr,
        session: u64,
        body: &[u8],
        received: usize,
    ) {
        let mut datagram = Vec::with_capacity(96);
        let header = HeaderOut { session, incarnation: self.config.incarnation, ..HeaderOut::default() };
        wire::put_header(&mut datagram, &header);
        wire::put_packet(&mut datagram, 0, 0, None, body);
        // §3.6, §4.1: an answer is never longer than the datagram that it answers.
        if datagram.len() > received || !self.strangers.take(now) {
            self.out.counters.drop(Drop::RateLimited);
            return;
        }
        self.send_outside((source, self.sender_key()), datagram);
    }

    pub(in crate::engine) fn send_outside(&mut self, destination: (SocketAddr, u64), datagram: Vec<u8>) {
        if self.pending.len() < MOST_WAITING {
            self.pending.push_back((destination, datagram));
        } else {
            self.out.counters.drop(Drop::EgressFull);
        }
    }

    fn hand_up_outside(&mut self, flow: Flow, source: SocketAddr, packet: &PacketView<'_>) {
        if !self.events.has_room(flow) {
            self.out.counters.drop(Drop::EventQueueFull);
            return;
        }
        let (packet, rights) = (packet.raw.to_vec(), self.sender_key());
        let event = Event::Control { link: None, source, packet, inbound: true, rights };
        self.events.push(flow, event);
    }
}
