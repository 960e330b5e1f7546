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

/// The elements of all longer lists.
pub type ListArena<T> = Arena<Vec<T>>;

/// A list for millions of places, most of which have no element or one: these are stored in place, and longer
/// lists in a `ListArena`, which must be the same in every call. A `Vec` would take 24 bytes even if empty,
/// and an allocation for its first element.
#[derive(Default)]
pub enum SmallList<T> {
    /// Empty.
    #[default]
    None,
    /// One element.
    One(T),
    /// A list in the arena.
    Many(u32),
}

impl<T: Copy> SmallList<T> {
    /// Appends an element.
    pub fn push(&mut self, value: T, list_arena: &mut ListArena<T>) {
        match *self {
            SmallList::None => *self = SmallList::One(value),
            SmallList::One(first) => *self = SmallList::Many(list_arena.insert(vec![first, value])),
            SmallList::Many(crowd) => list_arena[crowd].push(value),
        }
    }

    /// Removes the element at this index, if there is one. The last element takes its place.
    pub fn swap_remove(&mut self, index: u32, list_arena: &mut ListArena<T>) -> Option<T> {
        let index = index as usize;
        match *self {
            SmallList::One(value) if index == 0 => {
                *self = SmallList::None;
                Some(value)
            }
            SmallList::Many(crowd) if index < list_arena[crowd].len() => {
                let list = &mut list_arena[crowd];
                let value = list.swap_remove(index);
                if list.is_empty() {
                    list_arena.take(crowd);
                    *self = SmallList::None;
                } else if list.len() < list.capacity() / 8 {
                    list.shrink_to(2 * list.len());
                }
                Some(value)
            }
            _ => None,
        }
    }

    /// The elements.
    pub fn as_slice<'a>(&'a self, list_arena: &'a ListArena<T>) -> &'a [T] {
        match self {
            SmallList::None => &[],
            SmallList::One(value) => std::slice::from_ref(value),
            SmallList::Many(crowd) => &list_arena[*crowd],
        }
    }

    /// The elements, to change.
    pub fn as_mut_slice<'a>(&'a mut self, list_arena: &'a mut ListArena<T>) -> &'a mut [T] {
        match self {
            SmallList::None => &mut [],
            SmallList::One(value) => std::slice::from_mut(value),
            SmallList::Many(crowd) => &mut list_arena[*crowd],
        }
    }
}
