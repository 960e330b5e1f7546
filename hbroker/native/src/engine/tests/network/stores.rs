//! The stores of nodes, each on a disk that can lose power.

use std::sync::Arc;

use super::Network;
use crate::engine::retained::journal::retain_in;
use crate::engine::sessions::stored_before::{StoredIds, stored_ids};
use crate::store::disk::fault::FaultDisk;
use crate::store::index::memory::MemoryIndex;
use crate::store::mailbox::Mailbox;
use crate::store::{Settings, Store};

/// So small that a test has many segments and checkpoints.
const SETTINGS: Settings =
    Settings { segment_bytes: 16_384, checkpoint_bytes: 20_000, step_bytes: 4_000, ..Settings::DEFAULT };

/// A node's store, and what it is on.
pub struct HostStore {
    stored_ids: StoredIds,
    pub mailbox: Arc<Mailbox>,
    pub store: Store<FaultDisk, MemoryIndex>,
    pub disk: FaultDisk,
    index: MemoryIndex,
}

impl HostStore {
    fn open(disk: FaultDisk, index: MemoryIndex, workers: u8) -> Self {
        let (store, recovered) = Store::open(disk.clone(), index.clone(), SETTINGS).unwrap();
        assert_eq!(recovered.damage, []);
        let stored_ids = stored_ids(&store).unwrap();
        Self { stored_ids, mailbox: Arc::new(Mailbox::new(workers)), store, disk, index }
    }
}

impl Network {
    /// A node gets an empty store.
    pub fn add_store(&mut self, node: usize) {
        self.set_store(node, FaultDisk::default(), MemoryIndex::default());
    }

    fn set_store(&mut self, node: usize, disk: FaultDisk, index: MemoryIndex) {
        let host = &mut self.hosts[node];
        let mut host_store = HostStore::open(disk, index, host.engines.len() as u8);
        let HostStore { mailbox, store, .. } = &mut host_store;
        let restored = retain_in(mailbox, store, &host.engines[0].shared.retained, self.now).unwrap();
        assert_eq!(restored, (Vec::new(), 0));
        host.engines.iter_mut().for_each(|engine| engine.store_in(Arc::clone(&host_store.mailbox)));
        host.store = Some(host_store);
    }

    /// A node's host loses power, and begins again with what is on its disk.
    pub fn lose_power(&mut self, node: usize) {
        let HostStore { disk, index, .. } = self.hosts[node].store.take().expect("it has a store");
        disk.lose_power(&mut self.rng);
        self.restart(node);
        self.set_store(node, disk, index);
    }

    /// What a node's engines do at the end of a turn. What they gave their store is stored a turn later.
    pub(super) fn end_turn(&mut self, index: usize) {
        let (now, host) = (self.now, &mut self.hosts[index]);
        if let Some(HostStore { mailbox, store, .. }) = &mut host.store {
            mailbox.turn(store);
        }
        host.engines.iter_mut().for_each(|engine| engine.end_turn(now));
    }

    /// A session of an earlier run gets its stored queue back.
    pub fn restore_queue(&mut self, node: usize, session: u64) {
        let host = &mut self.hosts[node];
        let HostStore { store, stored_ids, .. } = host.store.as_mut().expect("it has a store");
        let Some(state) = store.state(session) else { return };
        let home = host.engines.iter_mut().find(|engine| engine.session_key(session).is_some());
        let home = home.expect("it is open");
        let key = home.session_key(session).expect("it is open");
        home.note_stored_before(self.now, key, &stored_ids.remove(&session).unwrap_or_default());
        if home.restore(self.now, state)
            && let Some(from) = home.begin_to_load(key)
        {
            let messages = store.read(session, from, usize::MAX).unwrap();
            home.load(self.now, key, from, messages);
        }
    }
}
