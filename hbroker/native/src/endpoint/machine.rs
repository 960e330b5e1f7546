//! What a worker drives.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::Micros;
use crate::association::admission::Request;
use crate::rights::Rights;
use crate::sink::DatagramSink;

/// What a worker drives. Its inputs are datagrams and time, its outputs datagrams, events or messages, and a
/// deadline.
pub trait Machine: Send + 'static {
    /// What the machine of one worker passes to that of another.
    type Handoff: Send + 'static;

    fn handle_datagram(&mut self, now: Micros, source: SocketAddr, datagram: &[u8]);
    /// The next datagrams are of somebody with these rights; `None`: he may do everything.
    fn note_rights(&mut self, _rights: Option<&Arc<Rights>>) {}
    /// Somebody has to say what a client may do. False: there is no room for the question.
    fn ask_for_rights(&mut self, _request: &Request) -> bool {
        true
    }
    fn handle_timeout(&mut self, now: Micros);
    fn handle_handoff(&mut self, now: Micros, handoff: Self::Handoff);
    /// A batch of input has been handled, or a caller has called the machine.
    fn end_turn(&mut self, _now: Micros) {}

    /// Builds the datagrams that may leave now. It should stop when the sink is full; the call is then
    /// repeated.
    fn poll_transmit(&mut self, now: Micros, sink: &mut impl DatagramSink);
    /// The datagrams that were built are on their way. The time is a function, because it is not always
    /// needed.
    fn note_departure(&mut self, _now: impl FnOnce() -> Micros) {}
    /// The next handoff, and the worker that it is for.
    fn poll_handoff(&mut self) -> Option<(u8, Self::Handoff)> {
        None
    }
    /// Whether `poll_handoff` has something.
    fn has_handoff(&self) -> bool {
        false
    }
    /// When `handle_timeout` is due.
    fn poll_timeout(&self) -> Option<Micros>;
    /// Whether events or messages wait for the reader.
    fn has_output(&self) -> bool;
    /// Tells the peers whose links it has accepted that it knows them no more: another machine takes over.
    fn reset_peers(&mut self, _now: Micros) {}
    /// Whether nothing is queued, and everything is acknowledged.
    fn is_drained(&self) -> bool;
    /// What to run after each iteration, without the machine's lock. It is asked for once.
    fn turn_hook(&self) -> Option<Arc<dyn TurnHook>> {
        None
    }
}

/// What an iteration of a machine causes elsewhere.
pub trait TurnHook: Send + Sync {
    /// Called without a lock. `is_worker`: by the worker's own thread, which has time for it; a caller's
    /// thread has not.
    fn run(&self, is_worker: bool);
}
