//! Lists that are nearly always empty or of one, by the million.
//!
//! An empty list and a list of one lie in place; longer ones lie in an arena shared by all lists. A `Vec` would take 24
//! bytes even if empty, and an allocation for its first element.

use crate::tables::arena::Arena;

/// The elements of the lists that have had more than one.
pub type Crowds<T> = Arena<Vec<T>>;

/// A list in the custody of its `Crowds`, which must be the same at every call.
#[derive(Default)]
pub enum Few<T> {
    /// Empty.
    #[default]
    None,
    /// One element.
    One(T),
    /// A list in the arena.
    Crowd(u32),
}

impl<T: Copy> Few<T> {
    /// Appends an element.
    pub fn push(&mut self, value: T, crowds: &mut Crowds<T>) {
        match *self {
            Few::None => *self = Few::One(value),
            Few::One(first) => *self = Few::Crowd(crowds.insert(vec![first, value])),
            Few::Crowd(crowd) => crowds[crowd].push(value),
        }
    }

    /// Takes an element out, if there is one at this index; the last takes its place.
    pub fn swap_remove(&mut self, index: u32, crowds: &mut Crowds<T>) -> Option<T> {
        let index = index as usize;
        match *self {
            Few::One(value) if index == 0 => {
                *self = Few::None;
                Some(value)
            }
            Few::Crowd(crowd) if index < crowds[crowd].len() => {
                let list = &mut crowds[crowd];
                let value = list.swap_remove(index);
                if list.is_empty() {
                    crowds.take(crowd);
                    *self = Few::None;
                } else if list.len() < list.capacity() / 8 {
                    list.shrink_to(2 * list.len());
                }
                Some(value)
            }
            _ => None,
        }
    }

    /// The elements.
    pub fn as_slice<'a>(&'a self, crowds: &'a Crowds<T>) -> &'a [T] {
        match self {
            Few::None => &[],
            Few::One(value) => std::slice::from_ref(value),
            Few::Crowd(crowd) => &crowds[*crowd],
        }
    }

    /// The elements, to change.
    pub fn as_mut_slice<'a>(&'a mut self, crowds: &'a mut Crowds<T>) -> &'a mut [T] {
        match self {
            Few::None => &mut [],
            Few::One(value) => std::slice::from_mut(value),
            Few::Crowd(crowd) => &mut crowds[*crowd],
        }
    }
}
