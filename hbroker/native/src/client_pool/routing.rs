//! Finds the pool client of a datagram, on whichever worker it is.

use std::net::SocketAddr;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::Micros;
use crate::client_pool::ClientPool;
use crate::engine::metrics::counters::Drop;
use crate::link_id::PoolClientId;
use crate::wire::{self, Body, DatagramView, Malformed};

/// A datagram that another worker received.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// The client that it is for; `None`: the client that has its session.
    pool_client: Option<PoolClientId>,
    source: SocketAddr,
    datagram: Bytes,
}

/// Where a datagram has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Home {
    PoolClient(PoolClientId),
    /// The worker that has the client of this session.
    Worker(u8),
}

impl ClientPool {
    /// Takes a datagram in. It reaches its clients, or is dropped and counted; no datagram is an error.
    pub(super) fn take_datagram(&mut self, now: Micros, source: SocketAddr, datagram: &[u8]) {
        let mut view = DatagramView::unread(datagram, self.view_buffers.take());
        match view.read(&mut self.view_buffers.mask) {
            Err(Malformed) => self.counters.drop(Drop::Malformed),
            Ok(()) if view.header.session == 0 => self.take_outside(now, source, &view, datagram),
            Ok(()) => match self.home_of(view.header.session) {
                Some(home) => self.pass(now, home, source, &view, datagram),
                None => self.counters.drop(Drop::UnknownSession),
            },
        }
        self.view_buffers.put_back(view.into_buffer());
    }

    /// §4.1, §6.1: passes answers to the clients that sent the requests.
    fn take_outside(&mut self, now: Micros, source: SocketAddr, view: &DatagramView<'_>, datagram: &[u8]) {
        let mut homes: SmallVec<[Home; 2]> = SmallVec::new();
        for packet in view.packets().iter() {
            if matches!(packet.body, Body::Challenge { .. }) {
                let challenged = self.common.requests.lock().take_challenged(source);
                homes.extend(challenged.into_iter().map(Home::PoolClient));
            } else if let Some(session) = wire::session_of(&packet) {
                homes.extend(self.home_of(session));
            } else if let Some(request) = wire::request_of(&packet) {
                homes.extend(self.common.requests.lock().requester(request).map(Home::PoolClient));
            }
        }
        if homes.is_empty() {
            self.counters.drop(Drop::UnexpectedPacket);
        }
        homes.sort_unstable();
        homes.dedup();
        for home in homes {
            self.pass(now, home, source, view, datagram);
        }
    }

    fn home_of(&self, session: u64) -> Option<Home> {
        if let Some(id) = self.by_session.get(&session) {
            return Some(Home::PoolClient(*id));
        }
        let worker = self.common.homes.worker_of(session)?;
        (worker != self.worker).then_some(Home::Worker(worker))
    }

    fn pass(
        &mut self,
        now: Micros,
        home: Home,
        source: SocketAddr,
        view: &DatagramView<'_>,
        datagram: &[u8],
    ) {
        let (worker, pool_client) = match home {
            Home::PoolClient(id) => (id.worker(), Some(id)),
            Home::Worker(worker) => (worker, None),
        };
        if worker != self.worker {
            let datagram = Bytes::copy_from_slice(datagram);
            return self.handoffs.push_back((worker, Forwarded { pool_client, source, datagram }));
        }
        match pool_client.and_then(|id| self.engine(id)) {
            Some(engine) => engine.handle_view(now, source, view, datagram),
            None => self.counters.drop(Drop::UnknownSession),
        }
    }

    /// Takes in a datagram that another worker received.
    pub(super) fn take_forwarded(&mut self, now: Micros, forwarded: Forwarded) {
        let Forwarded { pool_client, source, datagram } = forwarded;
        match (pool_client, DatagramView::parse(&datagram)) {
            (Some(id), Ok(view)) => self.pass(now, Home::PoolClient(id), source, &view, &datagram),
            _ => self.take_datagram(now, source, &datagram),
        }
    }
}
