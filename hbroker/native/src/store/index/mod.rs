//! What a store knows at a checkpoint: the rows of its queues, their blocks, where the retained messages are,
//! and totals.
//!
//! The index is written in checkpoints only, each as a whole or not at all. It is never ahead of what is
//! synced in the log. [`LsmIndex`] is on disk, in an LSM tree (fjall); tests have another one,
//! in memory (`memory`).

#[cfg(any(test, feature = "python"))]
pub mod memory;

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvPair, PersistMode};

/// What has changed since the checkpoint before.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The log up to here is in the index.
    pub position: u64,
    pub totals: Vec<u8>,
    /// By session. `None`: the queue has ended.
    pub rows: Vec<(u64, Option<Vec<u8>>)>,
    /// By the queue's id, and the number of their first entry.
    pub blocks: Vec<((u64, u64), Vec<u8>)>,
    /// Of the queue with this id, the blocks that begin from one number on, and below another, are gone.
    pub cleared: Vec<(u64, u64, u64)>,
    /// The positions of retained messages, by number. `None`: it is not retained any more.
    pub retained: Vec<(u64, Option<u64>)>,
}

/// Where checkpoints go. Every method may fail as the system's calls do.
pub trait Index {
    /// Up to where the log is in the index.
    fn position(&self) -> io::Result<u64>;

    /// The totals.
    fn totals(&self) -> io::Result<Vec<u8>>;

    /// Calls `each` with the row of each session.
    fn rows(&self, each: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()>;

    /// Calls `each` with the number and the position of each retained message.
    fn retained(&self, each: &mut dyn FnMut(u64, u64)) -> io::Result<()>;

    /// The last block of a queue that begins at or below a number.
    fn block_at(&self, id: u64, number: u64) -> io::Result<Option<(u64, Vec<u8>)>>;

    /// The first block of a queue that begins above a number.
    fn block_after(&self, id: u64, number: u64) -> io::Result<Option<(u64, Vec<u8>)>>;

    /// Makes a checkpoint. It would survive a loss of power.
    fn commit(&mut self, changes: &Changes) -> io::Result<()>;
}

/// The keys of the keyspace `totals`.
const POSITION: &str = "position";
const TOTALS: &str = "totals";
/// The memory for blocks that were read.
const CACHE: u64 = 8 << 20;
/// The last block at or below a number usually begins no further below it.
const NEAR: u64 = 2_048;
/// The memory for what is not in a table yet.
const WRITE_BUFFER: u64 = 16 << 20;

/// An index in an LSM tree on disk. The tree is made with the first checkpoint: a node that stores little costs no
/// memory and no threads for it.
pub struct LsmIndex {
    folder: PathBuf,
    tree: Option<Tree>,
    /// Is locked as long as this process uses the store.
    _lock: File,
}

struct Tree {
    database: Database,
    rows: Keyspace,
    blocks: Keyspace,
    retained: Keyspace,
    totals: Keyspace,
}

impl LsmIndex {
    /// Opens the index in a folder, if there is one.
    ///
    /// # Errors
    /// The disk fails, the index is damaged, or another process uses the store.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).mode(0o600).open(folder.with_extension("lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => in_use(),
            TryLockError::Error(error) => error,
        })?;
        let tree = if folder.try_exists()? { Some(Tree::open(folder)?) } else { None };
        Ok(Self { folder: folder.into(), tree, _lock: lock })
    }

    fn tree(&mut self) -> io::Result<&mut Tree> {
        let tree = match self.tree.take() {
            Some(tree) => tree,
            None => {
                let tree = Tree::open(&self.folder)?;
                self.folder.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())?;
                tree
            }
        };
        Ok(self.tree.insert(tree))
    }

    fn total(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        self.tree.as_ref().map_or(Ok(None), |tree| tree.total(key))
    }
}

impl Tree {
    fn open(folder: &Path) -> io::Result<Self> {
        let builder =
            Database::builder(folder).cache_size(CACHE).manual_journal_persist(true).worker_threads(1);
        let database = builder.open().map_err(failed)?;
        let keyspace = |name: &str| {
            let options = || KeyspaceCreateOptions::default().max_memtable_size(WRITE_BUFFER / 2);
            database.keyspace(name, options).map_err(failed)
        };
        let (rows, blocks) = (keyspace("rows")?, keyspace("blocks")?);
        let (retained, totals) = (keyspace("retained")?, keyspace("totals")?);
        Ok(Self { database, rows, blocks, retained, totals })
    }

    fn total(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.totals.get(key).map_err(failed)?.map(|value| value.to_vec()))
    }
}

impl Index for LsmIndex {
    fn position(&self) -> io::Result<u64> {
        let position = self.total(POSITION)?.map(|value| value.try_into().map(u64::from_be_bytes));
        position.unwrap_or(Ok(0)).map_err(|_| invalid())
    }

    fn totals(&self) -> io::Result<Vec<u8>> {
        Ok(self.total(TOTALS)?.unwrap_or_default())
    }

    fn rows(&self, each: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        self.tree.iter().flat_map(|tree| tree.rows.iter()).try_for_each(|row| {
            let (key, value) = row.into_inner().map_err(failed)?;
            each(number_in(&key)?, &value)
        })
    }

    fn retained(&self, each: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        self.tree.iter().flat_map(|tree| tree.retained.iter()).try_for_each(|row| {
            let (key, value) = row.into_inner().map_err(failed)?;
            let (number, position) = (number_in(&key)?, number_in(&value)?);
            each(number, position);
            Ok(())
        })
    }

    fn block_at(&self, id: u64, number: u64) -> io::Result<Option<(u64, Vec<u8>)>> {
        let Some(tree) = &self.tree else { return Ok(None) };
        let last_from = |from| tree.blocks.range(block_key(id, from)..=block_key(id, number)).next_back();
        // A wide range would look at all tables that have a block of the queue, or a deleted one.
        let block = last_from(number.saturating_sub(NEAR)).or_else(|| last_from(0));
        block.map(|block| block_of(block.into_inner())).transpose()
    }

    fn block_after(&self, id: u64, number: u64) -> io::Result<Option<(u64, Vec<u8>)>> {
        let keys = block_key(id, number + 1)..=block_key(id, u64::MAX);
        let block = self.tree.as_ref().and_then(|tree| tree.blocks.range(keys).next());
        block.map(|block| block_of(block.into_inner())).transpose()
    }

    fn commit(&mut self, changes: &Changes) -> io::Result<()> {
        self.tree()?.commit(changes)
    }
}

impl Tree {
    fn commit(&mut self, changes: &Changes) -> io::Result<()> {
        let mut batch = self.database.batch();
        for &(id, from, below) in &changes.cleared {
            for block in self.blocks.range(block_key(id, from)..block_key(id, below)) {
                batch.remove(&self.blocks, block.key().map_err(failed)?);
            }
        }
        for ((id, first), bytes) in &changes.blocks {
            batch.insert(&self.blocks, block_key(*id, *first), bytes.as_slice());
        }
        for (session, row) in &changes.rows {
            match row {
                Some(row) => batch.insert(&self.rows, session.to_be_bytes(), row.as_slice()),
                None => batch.remove(&self.rows, session.to_be_bytes()),
            }
        }
        for (number, position) in &changes.retained {
            match position {
                Some(position) => {
                    batch.insert(&self.retained, number.to_be_bytes(), position.to_be_bytes());
                }
                None => batch.remove(&self.retained, number.to_be_bytes()),
            }
        }
        batch.insert(&self.totals, POSITION, changes.position.to_be_bytes());
        batch.insert(&self.totals, TOTALS, changes.totals.as_slice());
        batch.commit().map_err(failed)?;
        self.database.persist(PersistMode::SyncData).map_err(failed)
    }
}

fn block_key(id: u64, first: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&id.to_be_bytes());
    key[8..].copy_from_slice(&first.to_be_bytes());
    key
}

fn number_in(bytes: &[u8]) -> io::Result<u64> {
    bytes.try_into().map(u64::from_be_bytes).map_err(|_| invalid())
}

fn block_of(block: fjall::Result<KvPair>) -> io::Result<(u64, Vec<u8>)> {
    let (key, value) = block.map_err(failed)?;
    let first = key.get(8..).and_then(|first| first.try_into().ok()).ok_or_else(invalid)?;
    Ok((u64::from_be_bytes(first), value.to_vec()))
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the index of the store is not valid")
}

fn in_use() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "another process uses the store")
}

fn failed(error: fjall::Error) -> io::Error {
    match error {
        fjall::Error::Io(error) => error,
        fjall::Error::Locked => in_use(),
        other => io::Error::other(other),
    }
}
