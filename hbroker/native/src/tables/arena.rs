//! Values in numbered slots. A freed slot is used again.
//!
//! A slot number takes four bytes where a pointer takes eight, and the values lie side by side.

use std::ops::{Index, IndexMut};

/// Slots of `T`. A slot number is valid from `insert` until `take`; afterwards it may refer to another value.
pub struct Arena<T> {
    slots: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Arena<T> {
    /// Stores a value. Returns its slot.
    pub fn insert(&mut self, value: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            self[slot] = value;
            return slot;
        }
        let slot = u32::try_from(self.slots.len()).expect("2^32 values do not fit into memory");
        self.slots.push(value);
        slot
    }

    /// Frees a slot. Returns its value.
    pub fn take(&mut self, slot: u32) -> T {
        self.free.push(slot);
        std::mem::take(&mut self[slot])
    }
}

impl<T> Arena<T> {
    /// One more than the highest slot number that was assigned.
    pub fn end(&self) -> usize {
        self.slots.len()
    }

    /// Slots in use.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;

    fn index(&self, slot: u32) -> &T {
        &self.slots[slot as usize]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    fn index_mut(&mut self, slot: u32) -> &mut T {
        &mut self.slots[slot as usize]
    }
}
