//! Subscribers of a load that share a socket: the members of a hive, with the load as their application.
//!
//! Each is a client of its own, with its session, its links, and its copy of every message; what they have in common is the socket, of
//! which a process may have fewer than there are subscribers. What is for their controls to decide goes on to Python, as
//! with the members of any hive.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;

use mio::{Registry, Token};
use parking_lot::Mutex;

use super::port::{Bench, Part, Port, Shared, Turn, register_worker};
use crate::Micros;
use crate::client_pool::Hive;
use crate::client_pool::core::HiveCore;
use crate::client_pool::messages::MessageSink;
use crate::config::Config;
use crate::endpoint::worker::{Step, Worker};
use crate::engine::subscriber::batch::Letter;
use crate::engine::subscriber::unacknowledged::MessageId;
use crate::link_id::MemberId;

/// Which of a load's subscribers each member is. Clones are the same.
#[derive(Clone, Default)]
pub struct Roll(Arc<Mutex<Vec<Option<usize>>>>);

impl Roll {
    /// A member is this subscriber.
    pub fn enter(&self, member: MemberId, subscriber: usize) {
        let mut roll = self.0.lock();
        if roll.len() <= member.slot() {
            roll.resize(member.slot() + 1, None);
        }
        roll[member.slot()] = Some(subscriber);
    }

    fn subscriber(&self, member: MemberId) -> Option<usize> {
        self.0.lock().get(member.slot()).copied().flatten()
    }
}

/// What members have taken, and is still to be answered for.
type Taken = Arc<Mutex<Vec<(MemberId, MessageId)>>>;

/// Takes what members receive to the load.
struct Ears {
    shared: Shared,
    roll: Roll,
    taken: Taken,
}

impl MessageSink for Ears {
    fn take(&mut self, _now: Micros, member: MemberId, letters: Vec<Letter>) {
        let Some(subscriber) = self.roll.subscriber(member) else { return };
        let received_at = self.shared.now();
        let mut load = self.shared.load.lock();
        for letter in &letters {
            letter.tell_payloads(|payload| load.note_received(subscriber, payload, received_at));
        }
        let owed = letters.iter().filter_map(|letter| Some((member, letter.alone()?.owed?)));
        self.taken.lock().extend(owed);
    }
}

/// A hive's socket and worker, as the thread drives them.
pub struct Crowd {
    worker: Worker<Hive>,
    core: Arc<HiveCore>,
    taken: Taken,
}

impl Crowd {
    /// Binds a socket; returns what drives the hive, the verbs of its members, and who of them is which subscriber.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn open(
        config: Config,
        listen: SocketAddr,
        shared: Shared,
    ) -> io::Result<(Self, Arc<HiveCore>, Roll)> {
        let (roll, taken) = (Roll::default(), Taken::default());
        let ears = Ears { shared, roll: roll.clone(), taken: Arc::clone(&taken) };
        let (core, worker) = HiveCore::without_thread(config, listen, Box::new(ears))?;
        let core = Arc::new(core);
        Ok((Self { worker, core: Arc::clone(&core), taken }, core, roll))
    }
}

impl Port for Crowd {
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        register_worker(&self.worker, registry, token)
    }

    fn turn(&mut self, bench: &mut Bench) -> io::Result<Turn> {
        let Step { again, due } = self.worker.step(&mut bench.arrivals)?;
        let taken = mem::take(&mut *self.taken.lock());
        if !taken.is_empty() {
            self.core.handled(&taken);
        }
        Ok(Turn { again: again || !taken.is_empty(), is_blocked: false, due: bench.due_in(due) })
    }

    fn part(&self) -> Part {
        Part::default()
    }
}
