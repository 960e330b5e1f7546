//! A machine whose datagrams are sealed (docs/adr/0035-sealed-associations.md), or, with security off, are not.
//!
//! ```text
//!     socket ── opened ──> machine ── sealed ──> egress
//!                  ^                     ^
//!                  └──  associations  ───┘   their own datagrams come from and go to the socket directly
//! ```

use std::net::SocketAddr;
use std::sync::Arc;

use crate::Micros;
use crate::association::counters::Counters;
use crate::association::packet::{AssociationId, SEALED_HEADER};
use crate::association::table::{Destination, Shared};
use crate::association::worker::Associations;
use crate::endpoint::machine::Machine;
use crate::rights::Rights;
use crate::sink::DatagramSink;

/// The machine of one worker, and the worker's associations.
pub struct Sealed<M> {
    pub machine: M,
    /// `None`: security is off.
    associations: Option<Box<Associations>>,
}

impl<M: Machine> Sealed<M> {
    /// `shared`: the associations of the address; `None`: security is off. `worker`: its number.
    pub fn new(machine: M, shared: Option<&Arc<Shared>>, worker: usize) -> Self {
        let associations = shared.map(|shared| Box::new(Associations::new(Arc::clone(shared), worker)));
        Self { machine, associations }
    }

    /// Gives the machine what was sealed. The datagram is opened where it lies.
    pub fn handle_datagram(&mut self, now: Micros, source: SocketAddr, datagram: &mut [u8]) {
        match &mut self.associations {
            None => self.machine.handle_datagram(now, source, datagram),
            Some(associations) => {
                if let Some(opened) = associations.handle_datagram(now, source, datagram) {
                    self.machine.note_rights(associations.rights());
                    self.machine.handle_datagram(now, source, opened);
                }
                ask_for_rights(associations, &mut self.machine);
            }
        }
    }

    /// Runs what is due, of the machine and of the associations.
    pub fn handle_timeout(&mut self, now: Micros) {
        if self.machine.poll_timeout().is_some_and(|due| due <= now) {
            self.machine.handle_timeout(now);
        }
        if let Some(associations) = &mut self.associations {
            associations.handle_timeout(now);
            while let Some((source, opened)) = associations.poll_admitted() {
                self.machine.note_rights(associations.rights());
                self.machine.handle_datagram(now, source, &opened);
            }
            ask_for_rights(associations, &mut self.machine);
        }
    }

    /// Tells all peers that the keys of their associations are gone.
    pub fn reset_associations(&mut self) {
        if let Some(associations) = &mut self.associations {
            associations.reset_peers();
        }
    }

    /// Builds the datagrams that may leave now, and seals those of the machine.
    pub fn poll_transmit(&mut self, now: Micros, sink: &mut impl DatagramSink) {
        let Some(associations) = &mut self.associations else {
            return self.machine.poll_transmit(now, sink);
        };
        send_own(associations, sink); // The peer needs the end of a handshake before it can open what follows.
        self.machine.poll_transmit(now, &mut AssociationSink { sink, associations, rights: 0, now });
        send_own(associations, sink);
    }

    /// When `handle_timeout` is due.
    pub fn poll_timeout(&self) -> Option<Micros> {
        let of_machine = self.machine.poll_timeout();
        let Some(associations) = &self.associations else {
            return of_machine;
        };
        let due = associations.poll_timeout().min(of_machine.unwrap_or(Micros::MAX));
        (due != Micros::MAX).then_some(due)
    }

    /// Whether nothing is queued, everything is acknowledged, and nothing waits for keys.
    pub fn is_drained(&self) -> bool {
        self.machine.is_drained() && self.associations.as_ref().is_none_or(|own| own.is_drained())
    }

    /// The certificate with which the peer at an address proved itself, as DER; `None`: it has not.
    pub fn certificate(&self, peer: SocketAddr) -> Option<Vec<u8>> {
        self.associations.as_ref()?.certificate(peer)
    }

    /// As [`Shared::has`].
    pub fn has_association(&self, association: AssociationId) -> bool {
        self.associations.as_ref().is_some_and(|own| own.has(association))
    }

    /// As [`Shared::set_rights`].
    pub fn set_rights(&self, association: AssociationId, rights: Arc<Rights>) -> bool {
        self.associations.as_ref().is_some_and(|own| own.set_rights(association, rights))
    }

    /// The counters of the associations; `None`: security is off.
    pub fn counters(&self) -> Option<Counters> {
        self.associations.as_ref().map(|associations| associations.counters())
    }
}

/// Passes on of whom somebody has to say what they may do.
fn ask_for_rights(associations: &mut Associations, machine: &mut impl Machine) {
    while let Some(request) = associations.poll_request() {
        if !machine.ask_for_rights(&request) {
            associations.refuse(&request);
        }
    }
}

/// Sends the datagrams of the associations themselves.
fn send_own(associations: &mut Associations, sink: &mut impl DatagramSink) {
    while !sink.is_full()
        && let Some((destination, datagram)) = associations.poll_transmit()
    {
        let start = sink.begin();
        sink.buffer().extend_from_slice(&datagram);
        sink.commit(&destination, start);
    }
}

/// Seals datagrams in the buffer that they leave from.
struct AssociationSink<'a, S> {
    sink: &'a mut S,
    associations: &'a mut Associations,
    /// Of who is meant.
    rights: u64,
    now: Micros,
}

impl<S: DatagramSink> DatagramSink for AssociationSink<'_, S> {
    fn begin(&mut self) -> usize {
        let start = self.sink.begin() + SEALED_HEADER;
        self.sink.buffer().resize(start, 0);
        start
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        self.sink.buffer()
    }

    fn commit(&mut self, destination: &SocketAddr, start: usize) {
        let begin = start - SEALED_HEADER;
        let destination = &Destination { address: *destination, rights: self.rights };
        if self.associations.seal(self.now, destination, self.sink.buffer(), begin) {
            self.sink.commit(&destination.address, begin);
        }
    }

    fn set_rights(&mut self, key: u64) {
        self.rights = key;
    }

    fn is_full(&self) -> bool {
        self.sink.is_full()
    }
}
