//! The rights of who sent a datagram, and of the links that its datagrams belong to (§4.6).

use std::sync::Arc;

use crate::association::admission::Request;
use crate::engine::Engine;
use crate::engine::metrics::counters::Drop;
use crate::engine::transport::event::{Event, Flow};
use crate::link_id::LinkId;
use crate::rights::Rights;

impl Engine {
    /// The next datagrams are of somebody with these rights; `None`: he may do everything.
    pub fn note_rights(&mut self, rights: Option<&Arc<Rights>>) {
        let is_same = match (&self.sender_rights, rights) {
            (None, None) => true,
            (Some(known), Some(rights)) => Arc::ptr_eq(known, rights),
            _ => false,
        };
        if !is_same {
            self.sender_rights = rights.cloned();
        }
    }

    /// Asks Python what a client may do. False: there is no room for the question.
    pub fn ask_for_rights(&mut self, request: &Request) -> bool {
        let Request { association, source, token } = request;
        let flow = Flow::Outside(source.ip().into());
        if !self.events.has_room(flow) {
            self.out.counters.drop(Drop::EventQueueFull);
            return false;
        }
        let (association, source, token) = (*association, *source, token.clone());
        self.events.push(flow, Event::RightsRequested { association, source, token });
        true
    }

    /// Whether who sent the datagram that is handled now may have no session.
    pub(in crate::engine) fn is_shut_out(&self) -> bool {
        self.sender_rights.as_ref().is_some_and(|rights| rights.is_empty)
    }

    /// The key of the rights of who sent the datagram that is handled now.
    pub(in crate::engine) fn sender_key(&self) -> u64 {
        self.sender_rights.as_ref().map_or(0, |rights| rights.key)
    }

    /// The peer of a link has the rights of who sent its latest datagram.
    pub(in crate::engine) fn note_link_rights(&mut self, id: LinkId) {
        if let Some(entry) = self.out.links.get_mut(id)
            && entry.note_rights(self.sender_rights.as_ref())
        {
            let (peer, announced, session) = (entry.peer(), entry.announced, entry.subscriber);
            if session.is_some() {
                self.out.claims.note(peer.session, peer.rights);
            }
            if announced {
                self.events.push(self.flow_of(peer.session), Event::RightsChanged(peer));
            }
        }
    }
}
