//! The names of levels (and whole topics), each stored once: all filters that end in `temperature` share
//! it.

use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::keyed::Keyed;
use crate::tables::arena::Arena;

/// Counts the users of each name and forgets it with the last.
pub struct LevelNames {
    keyed: Keyed,
    names: Arena<Name>,
    table: HashTable<u32>,
}

// One cache line: most names are short enough to lie in place.
#[derive(Default)]
#[repr(align(64))]
struct Name {
    hash: u64,
    uses: u32,
    text: SmallVec<[u8; 36]>,
}

impl LevelNames {
    /// No names. `seed`: random and secret.
    pub fn new(seed: u64) -> Self {
        Self { keyed: Keyed::new(seed), names: Arena::default(), table: HashTable::new() }
    }

    /// The hash by which a name is found.
    pub fn hash(&self, text: &str) -> u64 {
        self.keyed.hash_bytes(text.as_bytes())
    }

    /// The number of a name, which has one user more now.
    pub fn acquire(&mut self, text: &str) -> u32 {
        let hash = self.hash(text);
        if let Some(&id) = self.table.find(hash, |&id| self.is(id, text)) {
            self.names[id].uses += 1;
            return id;
        }
        let id = self.names.insert(Name { hash, uses: 1, text: SmallVec::from_slice(text.as_bytes()) });
        self.table.insert_unique(hash, id, |&id| self.names[id].hash);
        id
    }

    /// A user less.
    pub fn release(&mut self, id: u32) {
        let name = &mut self.names[id];
        name.uses -= 1;
        if name.uses == 0 {
            let hash = self.names.take(id).hash;
            if let Ok(entry) = self.table.find_entry(hash, |&other| other == id) {
                entry.remove();
            }
        }
    }

    /// Whether a number is that of this name.
    pub fn is(&self, id: u32, text: &str) -> bool {
        self.names[id].text.as_slice() == text.as_bytes()
    }

    /// The name with this number.
    pub fn text(&self, id: u32) -> &str {
        str::from_utf8(&self.names[id].text).expect("it was a string when it came")
    }

    /// The hash of the name with this number.
    pub fn hash_of(&self, id: u32) -> u64 {
        self.names[id].hash
    }

    /// Names in use.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.names.len()
    }
}
