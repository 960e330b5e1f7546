//! The store of a node: opened before the node's sessions are made again, then run by a thread of its own.
//!
//! 1. [`Core::open_store`] reads what an earlier run has stored, and restores the retained messages. Engines may
//!    give the store messages from then on.
//! 2. Python makes the sessions of the earlier run again. [`Core::restore_queue`] gives each its messages.
//! 3. [`Core::run_store`] drops what is stored for other sessions, and starts the thread. In virtual time there is
//!    no thread: [`Core::turn_store`] runs a turn.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Core, Driver};
use crate::broken::Defect;
use crate::endpoint::store_thread::StoreThread;
use crate::engine::retained::journal::retain_in;
use crate::engine::sessions::stored_before::{StoredIds, stored_ids};
use crate::store::disk::{Disk, Folder};
use crate::store::index::{Index, LsmIndex};
use crate::store::log::opening::Recovered;
use crate::store::log::segment::Damage;
use crate::store::mailbox::{Health, Mailbox};
use crate::store::queues::queue::QueueState;
use crate::store::record::Batch;
use crate::store::{Messages, Settings, Store};

/// A node's store.
pub struct NodeStore {
    mailbox: Arc<Mailbox>,
    stage: Mutex<Stage>,
}

/// What a store does.
enum Stage {
    Opened(Box<Opened>),
    Running(StoreThread),
    /// Without a thread, in virtual time.
    Stepped(Box<dyn AnyStore>),
    Ended,
}

/// A store, whatever it is on.
trait AnyStore: Send {
    fn sessions(&self) -> Vec<u64>;
    fn state(&self, session: u64) -> Option<QueueState>;
    fn read(&mut self, session: u64, from: u64) -> io::Result<Messages>;
    fn apply(&mut self, records: &[u8]);
    fn turn(&mut self, mailbox: &Mailbox);
    fn start(self: Box<Self>, mailbox: Arc<Mailbox>) -> io::Result<StoreThread>;
}

impl<D: Disk + Send + 'static, I: Index + Send + 'static> AnyStore for Store<D, I> {
    fn sessions(&self) -> Vec<u64> {
        self.states().map(|state| state.session).collect()
    }

    fn state(&self, session: u64) -> Option<QueueState> {
        self.state(session)
    }

    fn read(&mut self, session: u64, from: u64) -> io::Result<Messages> {
        self.read(session, from, usize::MAX)
    }

    fn apply(&mut self, records: &[u8]) {
        self.apply(records);
    }

    fn turn(&mut self, mailbox: &Mailbox) {
        mailbox.turn(self);
    }

    fn start(self: Box<Self>, mailbox: Arc<Mailbox>) -> io::Result<StoreThread> {
        StoreThread::start(mailbox, *self)
    }
}

/// A store while the sessions of the earlier run are made again.
struct Opened {
    store: Box<dyn AnyStore>,
    /// The sessions that have got their messages.
    restored: BTreeSet<u64>,
    stored_ids: StoredIds,
}

impl Core {
    /// Opens the store in a folder, or makes it. `most_bytes`: the bytes that its log should have.
    ///
    /// # Errors
    /// The disk fails, the index is damaged or does not belong to the log, another process uses the store, or this core
    /// has a store already.
    pub fn open_store(&self, folder: &Path, syncs: bool, most_bytes: u64) -> io::Result<Recovered> {
        let disk = Folder::open(&folder.join("log"))?;
        let index = LsmIndex::open(&folder.join("index"))?;
        self.open_store_on(disk, index, Settings { syncs, ..Settings::within(most_bytes) })
    }

    /// The same, on any disk.
    ///
    /// # Errors
    /// As [`Self::open_store`].
    pub fn open_store_on<D, I>(&self, disk: D, index: I, settings: Settings) -> io::Result<Recovered>
    where
        D: Disk + Send + 'static,
        I: Index + Send + 'static,
    {
        let (mut store, mut recovered) = Store::open(disk, index, settings)?;
        let mailbox = Arc::new(Mailbox::new(self.workers()));
        if let Driver::Threads(endpoint) = &self.driver {
            for worker in 0..self.workers() {
                mailbox.set_waker(worker, Box::new(endpoint.waker_of(worker.into())));
            }
        }
        let (unread, refused) = retain_in(&mailbox, &mut store, &self.shared.retained, self.now())?;
        self.on(0, |engine, _| engine.count_retained_full(refused));
        let stored_ids = stored_ids(&store)?;
        let opened = Opened { store: Box::new(store), restored: BTreeSet::new(), stored_ids };
        let stage = Mutex::new(Stage::Opened(Box::new(opened)));
        let is_first = self.store.set(NodeStore { mailbox: Arc::clone(&mailbox), stage }).is_ok();
        if !is_first {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.each(|engine, _| engine.store_in(Arc::clone(&mailbox)));
        recovered.damage.extend(unread);
        if Defect::HidesDamage.is_present() {
            recovered = Recovered::default();
        }
        Ok(recovered)
    }

    /// Gives a session, which must be open, the messages that an earlier run has stored for it. Returns how
    /// many they are. Only those for members of shared groups are read now.
    ///
    /// # Errors
    /// The disk fails.
    pub fn restore_queue(&self, session: u64) -> io::Result<usize> {
        let Some(key) = self.session_key(session) else {
            return Ok(0);
        };
        let Some(node_store) = self.store.get() else {
            return Ok(0);
        };
        let mut stage = node_store.stage.lock();
        let Stage::Opened(opened) = &mut *stage else {
            return Ok(0);
        };
        let Opened { store, restored, stored_ids } = &mut **opened;
        if let Some(ids) = stored_ids.remove(&session) {
            self.on(key.worker(), |engine, now| engine.note_stored_before(now, key, &ids));
        }
        let Some(state) = store.state(session).filter(|_| restored.insert(session)) else {
            return Ok(0);
        };
        if self.on(key.worker(), |engine, now| engine.restore(now, state))
            && let Some(from) = self.on(key.worker(), |engine, _| engine.begin_to_load(key))
        {
            let messages = store.read(session, from)?;
            node_store.mailbox.note_damage(&messages.damage);
            self.on(key.worker(), |engine, now| engine.load(now, key, from, messages));
        }
        Ok(state.live as usize)
    }

    /// Drops what is stored for sessions that were not restored, and starts the store's thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn run_store(&self) -> io::Result<()> {
        let Some(NodeStore { mailbox, stage }) = self.store.get() else {
            return Ok(());
        };
        let mut stage = stage.lock();
        if let Stage::Opened(opened) = std::mem::replace(&mut *stage, Stage::Ended) {
            let Opened { mut store, restored, .. } = *opened;
            let mut batch = Batch::default();
            let others = store.sessions().into_iter().filter(|session| !restored.contains(session));
            others.for_each(|session| batch.add_ended(session));
            store.apply(batch.bytes());
            *stage = match self.driver {
                Driver::Threads(_) => Stage::Running(store.start(Arc::clone(mailbox))?),
                _ => Stage::Stepped(store),
            };
        }
        Ok(())
    }

    /// In virtual time: stores what was submitted until now, and reads what was requested.
    pub fn turn_store(&self) {
        if let Some(NodeStore { mailbox, stage }) = self.store.get()
            && let Stage::Stepped(store) = &mut *stage.lock()
        {
            store.turn(mailbox);
        }
        self.each(|engine, now| engine.end_turn(now));
    }

    /// Whether something waits for the store.
    pub fn awaits_store(&self) -> bool {
        self.store.get().is_some_and(|node_store| !node_store.mailbox.is_idle_now())
    }

    /// Stores what waits for persistent sessions, and ends the store's thread.
    pub fn close_store(&self) {
        if let Some(NodeStore { mailbox, stage }) = self.store.get() {
            self.each(|engine, _| engine.store_queues());
            mailbox.close();
            if let Stage::Running(thread) = std::mem::replace(&mut *stage.lock(), Stage::Ended) {
                thread.join();
            }
        }
    }

    /// Gives the store all records that have gathered. Returns the number of the last submission; 0: there is no
    /// store.
    pub fn submit_stored(&self) -> u64 {
        self.store.get().map_or(0, |node_store| {
            self.each(|engine, now| engine.end_turn(now));
            node_store.mailbox.submitted()
        })
    }

    /// The number of the last submission that is stored; 0: there is none.
    pub fn stored(&self) -> u64 {
        self.store.get().map_or(0, |node_store| node_store.mailbox.stored())
    }

    /// What engines and moves give the store; `None`: there is no store.
    pub(super) fn mailbox(&self) -> Option<&Mailbox> {
        self.store.get().map(|node_store| &*node_store.mailbox)
    }

    /// How the store's disk does; `None`: there is no store.
    pub fn store_health(&self) -> Option<Health> {
        self.store.get().map(|node_store| node_store.mailbox.health())
    }

    /// The damage that was found in the store since the last call.
    pub fn take_store_damage(&self) -> Vec<Damage> {
        self.store.get().map(|node_store| node_store.mailbox.take_damage()).unwrap_or_default()
    }
}

impl Drop for NodeStore {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}
