//! Lists for millions of places, most of which have no element or one.
//!
//! An empty list and a list of one element are stored in place; longer lists are in an arena that all lists
//! share. A `Vec` would take 24 bytes even if empty, and an allocation for its first element.

use crate::tables::arena::Arena;

/// The elements of all longer lists.
pub type ListArena<T> = Arena<Vec<T>>;

/// A list whose elements may be in a `ListArena`, which must be the same in every call.
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
