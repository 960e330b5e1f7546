//! An index in memory, for tests and the simulator.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::index::{Changes, Index};

/// An index in memory. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryIndex {
    content: Arc<Mutex<Content>>,
}

#[derive(Default)]
struct Content {
    position: u64,
    totals: Vec<u8>,
    rows: BTreeMap<u64, Vec<u8>>,
    blocks: BTreeMap<(u64, u64), Vec<u8>>,
    retained: BTreeMap<u64, u64>,
}

#[cfg(test)]
impl MemoryIndex {
    /// The number of rows and of blocks.
    pub fn size(&self) -> (usize, usize) {
        let content = self.content.lock();
        (content.rows.len(), content.blocks.len())
    }
}

impl Index for MemoryIndex {
    fn position(&self) -> io::Result<u64> {
        Ok(self.content.lock().position)
    }

    fn totals(&self) -> io::Result<Vec<u8>> {
        Ok(self.content.lock().totals.clone())
    }

    fn rows(&self, each: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        self.content.lock().rows.iter().try_for_each(|(session, row)| each(*session, row))
    }

    fn retained(&self, each: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        self.content.lock().retained.iter().for_each(|(number, position)| each(*number, *position));
        Ok(())
    }

    fn block_at(&self, id: u64, number: u64) -> io::Result<Option<(u64, Vec<u8>)>> {
        let content = self.content.lock();
        let block = content.blocks.range((id, 0)..=(id, number)).next_back();
        Ok(block.map(|(&(_, first), bytes)| (first, bytes.clone())))
    }

    fn block_after(&self, id: u64, number: u64) -> io::Result<Option<(u64, Vec<u8>)>> {
        let content = self.content.lock();
        let block = content.blocks.range((id, number + 1)..=(id, u64::MAX)).next();
        Ok(block.map(|(&(_, first), bytes)| (first, bytes.clone())))
    }

    fn commit(&mut self, changes: &Changes) -> io::Result<()> {
        let mut content = self.content.lock();
        content.position = changes.position;
        content.totals.clone_from(&changes.totals);
        for &(id, from, below) in &changes.cleared {
            content.blocks.retain(|&(other, first), _| other != id || !(from..below).contains(&first));
        }
        content.blocks.extend(changes.blocks.iter().cloned());
        for (session, row) in &changes.rows {
            match row {
                Some(row) => _ = content.rows.insert(*session, row.clone()),
                None => _ = content.rows.remove(session),
            }
        }
        for &(number, position) in &changes.retained {
            match position {
                Some(position) => _ = content.retained.insert(number, position),
                None => _ = content.retained.remove(&number),
            }
        }
        Ok(())
    }
}
