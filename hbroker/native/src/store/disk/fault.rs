//! A disk in memory that loses power: what was not synced may be lost, in pieces and out of order. It can
//! also be full, flip bits, and fail.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;

use crate::store::disk::Disk;

/// A write is lost in pieces of this size.
const PIECE: usize = 512;

/// The disk. Clones share it.
#[derive(Clone, Default)]
pub struct FaultDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<String, u64>,
    synced_names: BTreeMap<String, u64>,
    /// Changes of names that are not synced, in order.
    changes: Vec<Change>,
    last: u64,
    /// The bytes that all files may have; `None`: as many as they like.
    space: Option<usize>,
    /// All syncs fail.
    fails_to_sync: bool,
    /// All reads fail with this number of the system.
    read_error: Option<i32>,
    syncs: u64,
    written: u64,
}

#[derive(Default)]
struct Inode {
    content: Vec<u8>,
    synced: Vec<u8>,
    /// The pieces that were written since the last sync.
    dirty: Vec<usize>,
}

enum Change {
    Create(String, u64),
    Rename(String, String),
    Remove(String),
}

impl FaultDisk {
    /// Loses power: for each change that was not synced, the dice say whether it is on the disk.
    pub fn lose_power(&self, rng: &mut SmallRng) {
        let state = &mut *self.state.lock();
        let kept = rng.random_range(0..=state.changes.len());
        state.names = std::mem::take(&mut state.synced_names);
        let changes: Vec<Change> = state.changes.drain(..).take(kept).collect();
        changes.iter().for_each(|change| change.apply(&mut state.names));
        state.synced_names = state.names.clone();
        for inode in state.inodes.values_mut() {
            let mut content = std::mem::take(&mut inode.synced);
            inode.dirty.sort_unstable();
            inode.dirty.dedup();
            let all = rng.random_bool(0.2);
            for piece in inode.dirty.drain(..) {
                let (start, end) = (piece * PIECE, ((piece + 1) * PIECE).min(inode.content.len()));
                if start < end && (all || rng.random_bool(0.5)) {
                    let end = if rng.random_bool(0.1) { rng.random_range(start..=end) } else { end };
                    content.resize(content.len().max(end), 0);
                    content[start..end].copy_from_slice(&inode.content[start..end]);
                }
            }
            inode.content.clone_from(&content);
            inode.synced = content;
        }
        let used: Vec<u64> = state.names.values().copied().collect();
        state.inodes.retain(|id, _| used.contains(id));
        state.fails_to_sync = false;
    }

    /// Flips a bit that was synced. Returns the file and the offset; `None`: nothing was written.
    pub fn flip(&self, rng: &mut SmallRng) -> Option<(String, u64)> {
        let state = &mut *self.state.lock();
        let State { inodes, synced_names, .. } = state;
        let files: Vec<(&String, &u64)> =
            synced_names.iter().filter(|(_, id)| !inodes[id].synced.is_empty()).collect();
        let &(name, id) = files.get(rng.random_range(0..files.len().max(1)))?;
        let inode = inodes.get_mut(id)?;
        let offset = rng.random_range(0..inode.synced.len());
        let bit = 1 << rng.random_range(0..8);
        inode.synced[offset] ^= bit;
        inode.content[offset] ^= bit;
        Some((name.clone(), offset as u64))
    }

    /// From now on all files together may have this many bytes.
    pub fn set_space(&self, space: Option<usize>) {
        self.state.lock().space = space;
    }

    /// All syncs fail from now on, or until power is lost; or none does.
    pub fn fail_to_sync(&self, fails: bool) {
        self.state.lock().fails_to_sync = fails;
    }

    /// From now on all reads fail with this number of the system, or work.
    #[cfg(test)]
    pub fn set_read_error(&self, number: Option<i32>) {
        self.state.lock().read_error = number;
    }

    /// The number of syncs, and of written bytes.
    #[cfg(test)]
    pub fn work(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.syncs, state.written)
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Create(name, id) => _ = names.insert(name.clone(), *id),
            Self::Remove(name) => _ = names.remove(name),
            Self::Rename(from, to) => {
                if let Some(id) = names.remove(from) {
                    names.insert(to.clone(), id);
                }
            }
        }
    }
}

impl State {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    fn inode(&mut self, name: &str) -> io::Result<&mut Inode> {
        let id = self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.inodes.get_mut(id).expect("a name has an inode"))
    }
}

impl Disk for FaultDisk {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let state = self.state.lock();
        Ok(state
            .names
            .iter()
            .map(|(name, id)| (name.clone(), state.inodes[id].content.len() as u64))
            .collect())
    }

    fn create(&mut self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.last += 1;
        let id = state.last;
        state.inodes.insert(id, Inode::default());
        state.change(Change::Create(name.to_owned(), id));
        Ok(())
    }

    fn write(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        let used: usize = state.names.values().map(|id| state.inodes[id].content.len()).sum();
        let space = state.space;
        let inode = state.inode(name)?;
        let (start, mut end) = (offset as usize, offset as usize + bytes.len());
        let grows = end.saturating_sub(inode.content.len());
        let lacks = space.map_or(0, |space| (used + grows).saturating_sub(space)).min(grows);
        end -= lacks;
        if start < end {
            inode.content.resize(inode.content.len().max(end), 0);
            inode.content[start..end].copy_from_slice(&bytes[..end - start]);
            inode.dirty.extend(start / PIECE..=(end - 1) / PIECE);
            state.written += (end - start) as u64;
        }
        if lacks > 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn read(&self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state.lock();
        if let Some(number) = state.read_error {
            return Err(io::Error::from_raw_os_error(number));
        }
        let content = &state.inode(name)?.content;
        let start = content.len().min(offset as usize);
        let count = bytes.len().min(content.len() - start);
        bytes[..count].copy_from_slice(&content[start..start + count]);
        Ok(count)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.syncs += 1;
        let fails = state.fails_to_sync;
        let inode = state.inode(name)?;
        if fails {
            inode.dirty.clear(); // As in Linux: the pages count as clean, and are on no disk.
            return Err(io::Error::other("input/output error"));
        }
        // Only what was written since: after a failed sync, pages count as clean that are on no disk.
        inode.synced.resize(inode.content.len(), 0);
        for piece in inode.dirty.drain(..) {
            let (start, end) = (piece * PIECE, ((piece + 1) * PIECE).min(inode.content.len()));
            if start < end {
                inode.synced[start..end].copy_from_slice(&inode.content[start..end]);
            }
        }
        Ok(())
    }

    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let inode = state.inode(name)?;
        inode.content.truncate(length as usize);
        inode.synced.truncate(length as usize);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.state.lock().change(Change::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.inode(name)?;
        state.change(Change::Remove(name.to_owned()));
        Ok(())
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.changes.clear();
        state.synced_names = state.names.clone();
        Ok(())
    }
}
