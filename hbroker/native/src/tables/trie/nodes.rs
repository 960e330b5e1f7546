//! The nodes of the trie: from a filter's text to its node, and back.

use super::{Child, HASH, NONE, Node, PLAIN, PLUS, ROOT, SubscriptionTrie};
use crate::tables::few::Few;
use crate::topic;

impl SubscriptionTrie {
    pub(super) fn find_node(&self, filter: &str) -> Option<u32> {
        if !topic::has_wildcards(filter) {
            return self.step(PLAIN, filter);
        }
        filter.split('/').try_fold(ROOT, |node, level| self.step(node, level))
    }

    pub(super) fn make_node(&mut self, filter: &str) -> u32 {
        if !topic::has_wildcards(filter) {
            return self.make_child(PLAIN, filter);
        }
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
            _ => self.child(node, self.names.hash(level), level),
        }
    }

    pub(super) fn child(&self, parent: u32, name_hash: u64, name: &str) -> Option<u32> {
        let is_it = |child: &Child| child.parent == parent && self.names.is(child.name, name);
        let child = self.children.find(child_hash(parent, name_hash), is_it);
        child.map(|child| child.node)
    }

    fn add_child(&mut self, parent: u32, level: &str) -> u32 {
        let name = match level {
            "+" => PLUS,
            "#" => HASH,
            _ => self.names.acquire(level),
        };
        let node = self.nodes.insert(Node { parent, name, ..Node::default() });
        match name {
            PLUS => self.nodes[parent].plus = node,
            HASH => self.nodes[parent].hash = node,
            _ => {
                self.nodes[parent].children += 1;
                let child = Child { parent, name, node };
                let hash_of = |child: &Child| child_hash(child.parent, self.names.hash_of(child.name));
                self.children.insert_unique(hash_of(&child), child, hash_of);
            }
        }
        node
    }

    /// Removes a node that serves nothing any more, and then those above it that served it alone.
    pub(super) fn prune(&mut self, mut node: u32) {
        while node != ROOT && node != PLAIN && self.nodes[node].is_bare() {
            let Node { parent, name, .. } = self.nodes.take(node);
            match name {
                PLUS => self.nodes[parent].plus = NONE,
                HASH => self.nodes[parent].hash = NONE,
                _ => {
                    self.nodes[parent].children -= 1;
                    let hash = child_hash(parent, self.names.hash_of(name));
                    if let Ok(entry) = self.children.find_entry(hash, |child| child.node == node) {
                        entry.remove();
                    }
                    self.names.release(name);
                }
            }
            node = parent;
        }
    }

    /// The filter that a node stands for.
    pub(super) fn filter_of(&self, mut node: u32) -> String {
        let mut levels = Vec::new();
        while node != ROOT && node != PLAIN {
            levels.push(match self.nodes[node].name {
                PLUS => "+",
                HASH => "#",
                name => self.names.text(name),
            });
            node = self.nodes[node].parent;
        }
        levels.reverse();
        levels.join("/")
    }
}

impl Default for Node {
    fn default() -> Self {
        Self { parent: NONE, name: NONE, plus: NONE, hash: NONE, children: 0, subscriptions: Few::None }
    }
}

impl Node {
    fn is_bare(&self) -> bool {
        self.children == 0
            && self.plus == NONE
            && self.hash == NONE
            && matches!(self.subscriptions, Few::None)
    }
}

/// The name's hash is keyed, and so is the sum; the odd factor, 2^64 over the golden ratio, spreads the
/// many parents that one name can have.
fn child_hash(parent: u32, name_hash: u64) -> u64 {
    name_hash.wrapping_add(u64::from(parent).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
