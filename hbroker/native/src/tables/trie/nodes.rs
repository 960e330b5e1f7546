//! The nodes of the trie: finds the node of a filter, and the filter of a node.

use smallvec::SmallVec;

use super::{NONE, Node, ROOT, SubscriptionTrie};
use crate::tables::arena::SmallList;

impl SubscriptionTrie {
    pub(super) fn find_node(&self, filter: &str) -> Option<u32> {
        filter.split('/').try_fold(ROOT, |node, level| self.step(node, level))
    }

    pub(super) fn make_node(&mut self, filter: &str) -> u32 {
        filter.split('/').fold(ROOT, |node, level| self.make_child(node, level))
    }

    fn make_child(&mut self, node: u32, level: &str) -> u32 {
        match self.step(node, level) {
            Some(child) => child,
            None => self.add_child(node, level),
        }
    }

    fn step(&self, node: u32, level: &str) -> Option<u32> {
        match level {
            "+" => Some(self.nodes[node].plus).filter(|&child| child != NONE),
            "#" => Some(self.nodes[node].hash).filter(|&child| child != NONE),
            _ => self.child(node, self.hasher.hash_bytes(level.as_bytes()), level.as_bytes()),
        }
    }

    pub(super) fn child(&self, parent: u32, name_hash: u64, name: &[u8]) -> Option<u32> {
        let is_it = |child: u32| {
            let child = &self.nodes[child];
            child.parent == parent && child.name[..] == *name
        };
        self.children.find(child_hash(parent, name_hash), is_it)
    }

    fn add_child(&mut self, parent: u32, level: &str) -> u32 {
        let name = SmallVec::from_slice(level.as_bytes());
        let node = self.nodes.insert(Node { parent, name, ..Node::default() });
        match level {
            "+" => self.nodes[parent].plus = node,
            "#" => self.nodes[parent].hash = node,
            _ => {
                self.nodes[parent].children += 1;
                let name_hash = self.hasher.hash_bytes(level.as_bytes());
                self.children.insert(child_hash(parent, name_hash), node);
            }
        }
        node
    }

    /// Removes a node that is not needed any more, and then its ancestors that only it needed.
    pub(super) fn prune(&mut self, mut node: u32) {
        while node != ROOT && self.nodes[node].is_bare() {
            let Node { parent, name, .. } = self.nodes.take(node);
            match &name[..] {
                b"+" => self.nodes[parent].plus = NONE,
                b"#" => self.nodes[parent].hash = NONE,
                _ => {
                    self.nodes[parent].children -= 1;
                    self.children.remove(child_hash(parent, self.hasher.hash_bytes(&name)), node);
                }
            }
            node = parent;
        }
    }

    /// The filter that a node stands for.
    pub(super) fn filter_of(&self, mut node: u32) -> String {
        let mut levels = Vec::new();
        while node != ROOT {
            levels.push(str::from_utf8(&self.nodes[node].name).expect("it was a string when it came"));
            node = self.nodes[node].parent;
        }
        levels.reverse();
        levels.join("/")
    }
}

impl Default for Node {
    fn default() -> Self {
        Self {
            parent: NONE,
            plus: NONE,
            hash: NONE,
            children: 0,
            subscriptions: SmallList::None,
            name: SmallVec::new(),
        }
    }
}

impl Node {
    /// Whether the node has no children and no subscriptions.
    pub(super) fn is_bare(&self) -> bool {
        self.children == 0
            && self.plus == NONE
            && self.hash == NONE
            && matches!(self.subscriptions, SmallList::None)
    }
}

/// The hash of the name is keyed, so the sum is, too. The odd factor, 2^64 divided by the golden ratio,
/// spreads the many parents of the same name.
fn child_hash(parent: u32, name_hash: u64) -> u64 {
    name_hash.wrapping_add(u64::from(parent).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
