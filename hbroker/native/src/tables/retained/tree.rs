//! An ordered map of topics from which a run of keys can be detached in logarithmic time.
//!
//! It is a treap (Seidel and Aragon, "Randomized search trees", 1996): a search tree by topic and a heap by
//! random priorities. So its depth is logarithmic whatever topics are inserted, in whatever order. No
//! operation changes more than one path. A hash table or a vector copies all its entries when it grows, and
//! the standard library's B-tree counts the entries that it splits off.

use std::cell::Cell;

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use smallvec::SmallVec;

pub struct Tree<V> {
    root: Link<V>,
    priorities: SmallRng,
    /// How many nodes were visited so far.
    looks: Cell<usize>,
}

type Link<V> = Option<Box<Node<V>>>;

pub struct Node<V> {
    pub topic: Box<str>,
    pub value: V,
    priority: u32,
    /// How many nodes are in the tree below this one, itself included.
    count: u32,
    left: Link<V>,
    right: Link<V>,
}

/// Runs that were detached from a tree. Their nodes are taken out one by one, in no order.
pub struct Detached<V>(Vec<Box<Node<V>>>);

/// Walks through a tree in order.
pub struct Walk<'a, V> {
    tree: &'a Tree<V>,
    /// The next node, and the nodes above it that come after it.
    path: SmallVec<[&'a Node<V>; 64]>,
}

impl<V> Tree<V> {
    /// An empty tree. `seed`: random and secret, so that nobody can choose topics that make it deep.
    pub fn new(seed: u64) -> Self {
        Self { root: None, priorities: SmallRng::seed_from_u64(seed), looks: Cell::new(0) }
    }

    /// Inserts a value for a topic that is not in the tree.
    pub fn insert(&mut self, topic: Box<str>, value: V) {
        let priority = self.priorities.next_u32();
        let node = Box::new(Node { topic, value, priority, count: 1, left: None, right: None });
        put(&mut self.root, node, &self.looks);
    }

    pub fn remove(&mut self, topic: &str) -> Option<Box<Node<V>>> {
        take_out(&mut self.root, topic, &self.looks)
    }

    /// Detaches the topics from `from` up to but not including `to`; `None`: up to the end.
    pub fn take_range(&mut self, from: &str, to: Option<&str>, into: &mut Detached<V>) {
        let (before, rest) = split(self.root.take(), from, &self.looks);
        let (run, after) = match to {
            Some(to) => split(rest, to, &self.looks),
            None => (rest, None),
        };
        self.root = join(before, after, &self.looks);
        into.0.extend(run);
    }

    pub fn get(&self, topic: &str) -> Option<&V> {
        let mut at = self.root.as_deref();
        while let Some(node) = at {
            self.look();
            at = match topic.cmp(&node.topic) {
                std::cmp::Ordering::Equal => return Some(&node.value),
                std::cmp::Ordering::Less => node.left.as_deref(),
                std::cmp::Ordering::Greater => node.right.as_deref(),
            };
        }
        None
    }

    /// A walk whose first topic is `from` or the next one after it.
    pub fn walk(&self, from: &str) -> Walk<'_, V> {
        let mut walk = Walk { tree: self, path: SmallVec::new() };
        walk.seek(from);
        walk
    }

    pub fn len(&self) -> usize {
        count(&self.root) as usize
    }

    /// How many nodes were visited so far, by all operations.
    pub fn looks(&self) -> usize {
        self.looks.get()
    }

    fn look(&self) {
        self.looks.set(self.looks.get() + 1);
    }
}

impl<V> Default for Detached<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V> Detached<V> {
    /// Takes one node out. It takes the same time however many there are.
    pub fn pop(&mut self) -> Option<Box<Node<V>>> {
        let mut node = self.0.pop()?;
        self.0.extend([node.left.take(), node.right.take()].into_iter().flatten());
        Some(node)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// All values, in no order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        let mut path: Vec<&Node<V>> = self.0.iter().map(Box::as_ref).collect();
        std::iter::from_fn(move || {
            let node = path.pop()?;
            path.extend([&node.left, &node.right].into_iter().filter_map(Option::as_deref));
            Some(&node.value)
        })
    }

    /// How many nodes are left. It visits one node for each run.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.iter().map(|node| node.count as usize).sum()
    }
}

impl<'a, V> Walk<'a, V> {
    /// Continues with `from`, or the next topic after it, which may be before or after the current position.
    pub fn seek(&mut self, from: &str) {
        self.path.clear();
        let mut at = self.tree.root.as_deref();
        while let Some(node) = at {
            self.tree.look();
            if *node.topic < *from {
                at = node.right.as_deref();
            } else {
                self.path.push(node);
                at = node.left.as_deref();
            }
        }
    }
}

impl<'a, V> Iterator for Walk<'a, V> {
    type Item = (&'a str, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        let node = self.path.pop()?;
        let mut at = node.right.as_deref();
        while let Some(below) = at {
            self.tree.look();
            self.path.push(below);
            at = below.left.as_deref();
        }
        Some((&node.topic, &node.value))
    }
}

impl<V> Node<V> {
    fn recount(&mut self) {
        self.count = 1 + count(&self.left) + count(&self.right);
    }

    fn side(&mut self, topic: &str) -> &mut Link<V> {
        if *topic < *self.topic { &mut self.left } else { &mut self.right }
    }
}

fn count<V>(link: &Link<V>) -> u32 {
    link.as_ref().map_or(0, |node| node.count)
}

/// Adds a node whose topic is not in the tree.
fn put<V>(link: &mut Link<V>, mut node: Box<Node<V>>, looks: &Cell<usize>) {
    looks.set(looks.get() + 1);
    match link {
        Some(above) if above.priority >= node.priority => {
            above.count += 1;
            put(above.side(&node.topic), node, looks);
        }
        _ => {
            (node.left, node.right) = split(link.take(), &node.topic, looks);
            node.recount();
            *link = Some(node);
        }
    }
}

fn take_out<V>(link: &mut Link<V>, topic: &str, looks: &Cell<usize>) -> Option<Box<Node<V>>> {
    looks.set(looks.get() + 1);
    match link {
        Some(above) if *above.topic != *topic => {
            let taken = take_out(above.side(topic), topic, looks)?;
            above.count -= 1;
            Some(taken)
        }
        _ => {
            let mut taken = link.take()?;
            *link = join(taken.left.take(), taken.right.take(), looks);
            Some(taken)
        }
    }
}

/// Splits a tree into the topics before `at`, and the others.
fn split<V>(link: Link<V>, at: &str, looks: &Cell<usize>) -> (Link<V>, Link<V>) {
    let Some(mut node) = link else {
        return (None, None);
    };
    looks.set(looks.get() + 1);
    let is_before = *node.topic < *at;
    let side = if is_before { &mut node.right } else { &mut node.left };
    let (before, after) = split(side.take(), at, looks);
    let (kept, parted) = if is_before { (before, after) } else { (after, before) };
    *side = kept;
    node.recount();
    if is_before { (Some(node), parted) } else { (parted, Some(node)) }
}

/// Joins two trees. All topics of the first come before those of the second.
fn join<V>(first: Link<V>, second: Link<V>, looks: &Cell<usize>) -> Link<V> {
    looks.set(looks.get() + 1);
    match (first, second) {
        (None, one) | (one, None) => one,
        (Some(mut first), Some(mut second)) => {
            if first.priority >= second.priority {
                first.right = join(first.right.take(), Some(second), looks);
                first.recount();
                Some(first)
            } else {
                second.left = join(Some(first), second.left.take(), looks);
                second.recount();
                Some(second)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::Rng;

    use super::*;

    fn topics<V>(walk: Walk<'_, V>) -> Vec<String> {
        walk.map(|(topic, _)| topic.to_owned()).collect()
    }

    #[test]
    fn agrees_with_an_ordered_map() {
        let mut random = SmallRng::seed_from_u64(1);
        let (mut tree, mut map) = (Tree::new(1), BTreeMap::new());
        let mut detached = Detached::default();
        for turn in 0..20_000_u32 {
            let topic = random.random_range(0..500_u32).to_string();
            match random.random_range(0..10) {
                0..6 => {
                    let replaced = tree.remove(&topic).map(|node| node.value);
                    tree.insert(topic.clone().into(), turn);
                    assert_eq!(replaced, map.insert(topic, turn));
                }
                6..9 => {
                    assert_eq!(tree.remove(&topic).map(|node| node.value), map.remove(&topic));
                }
                _ if random.random_range(0..10) == 0 => {
                    let to = random.random_range(0..500_u32).to_string();
                    let to = Some(to).filter(|to| *to >= topic);
                    tree.take_range(&topic, to.as_deref(), &mut detached);
                    let is_in = |known: &String| *known >= topic && to.as_ref().is_none_or(|to| known < to);
                    let mut taken: Vec<_> =
                        std::iter::from_fn(|| detached.pop()).map(|node| node.topic.into_string()).collect();
                    taken.sort();
                    assert_eq!(taken, map.keys().filter(|known| is_in(known)).cloned().collect::<Vec<_>>());
                    map.retain(|known, _| !is_in(known));
                }
                _ => {
                    assert_eq!(tree.get(&topic), map.get(&topic));
                    let from = map.range(topic.clone()..).map(|(topic, _)| topic.clone());
                    assert_eq!(topics(tree.walk(&topic)), from.collect::<Vec<_>>());
                }
            }
            assert_eq!(tree.len(), map.len());
        }
    }

    #[test]
    fn an_operation_looks_at_few_of_many() {
        let mut tree = Tree::new(2);
        let mut detached = Detached::default();
        // In order, which makes a tree without balance as deep as it has topics.
        for number in 0..100_000 {
            tree.insert(format!("{number:06}").into(), number);
        }
        let mut looks = tree.looks();
        let mut bounded = |tree: &Tree<u32>, what: &str| {
            assert!(tree.looks() - looks < 300, "{what}: {}", tree.looks() - looks);
            looks = tree.looks();
        };
        tree.insert("050000/".into(), 1);
        bounded(&tree, "insert");
        tree.remove("050000/");
        bounded(&tree, "remove");
        assert_eq!(tree.walk("070000").next(), Some(("070000", &70_000)));
        bounded(&tree, "walk");
        tree.take_range("020000", Some("080000"), &mut detached);
        bounded(&tree, "take_run");
        assert_eq!((tree.len(), detached.len()), (40_000, 60_000));
    }
}
