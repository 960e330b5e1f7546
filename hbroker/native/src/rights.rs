//! What a client may publish. Python reads it from the client's token, and checks itself what the client may read:
//! when it subscribes (docs/security.md).

use std::sync::Arc;

use crate::topic;

/// What one block of a token lets its holder publish.
#[derive(Clone, Debug)]
pub struct WriteRights {
    pub filters: Vec<String>,
    /// Also retained messages.
    pub retain: bool,
}

/// The rights of a client. A message needs a right in each block of the token.
#[derive(Clone, Debug)]
pub struct Rights {
    /// The same for equal rights, to read as to write; not 0.
    pub key: u64,
    pub blocks: Vec<WriteRights>,
    /// Neither to read nor to write anything: its client gets no session.
    pub is_empty: bool,
}

impl Rights {
    fn may_publish(&self, topic: &str, retain: bool) -> bool {
        self.blocks.iter().all(|block| {
            (block.retain || !retain) && block.filters.iter().any(|filter| topic::matches(filter, topic))
        })
    }
}

/// The rights of the peer of a link, as this end knows them.
#[derive(Clone, Debug, Default)]
pub struct LinkRights {
    /// Of [`Rights`]; 0: the peer is a node, or no tokens are required.
    key: u64,
    /// `None`: everything if the key is 0. Otherwise the peer has not been heard on this link.
    rights: Option<Arc<Rights>>,
}

impl LinkRights {
    /// Of a peer that has not been heard on this link. `key`: see [`Rights`].
    pub fn expected(key: u64) -> Self {
        Self { key, rights: None }
    }

    /// Of a peer that was heard.
    pub fn heard(rights: Option<Arc<Rights>>) -> Self {
        Self { key: rights.as_ref().map_or(0, |rights| rights.key), rights }
    }

    /// What [`Self::heard`] makes the same of, if the peer was heard.
    pub fn of_heard(&self) -> Option<Arc<Rights>> {
        self.rights.clone()
    }

    pub fn key(&self) -> u64 {
        self.key
    }

    /// Whether a peer with these rights is not the one that is expected, and that was not heard yet.
    pub fn expects_another(&self, sender: u64) -> bool {
        self.key != 0 && self.rights.is_none() && self.key != sender
    }

    /// A datagram of the peer came over an association with these rights. True: they are others than before.
    pub fn note(&mut self, rights: Option<&Arc<Rights>>) -> bool {
        let key = rights.map_or(0, |rights| rights.key);
        if self.key == key && self.rights.is_some() == rights.is_some() {
            return false;
        }
        let is_changed = self.key != key;
        *self = Self { key, rights: rights.cloned() };
        is_changed
    }

    /// Whether the peer may publish on a topic. `allowed`: the topic of its last message, empty at first.
    pub fn may_publish(&self, topic: &str, retain: bool, allowed: &mut String) -> bool {
        let Some(rights) = &self.rights else {
            return self.key == 0;
        };
        if !retain && allowed == topic {
            return true;
        }
        let is_allowed = rights.may_publish(topic, retain);
        if is_allowed {
            topic.clone_into(allowed);
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(key: u64, blocks: &[(&[&str], bool)]) -> Arc<Rights> {
        let block = |(filters, retain): &(&[&str], bool)| WriteRights {
            filters: filters.iter().map(ToString::to_string).collect(),
            retain: *retain,
        };
        Arc::new(Rights { key, blocks: blocks.iter().map(block).collect(), is_empty: false })
    }

    #[test]
    fn each_block_has_to_allow_a_message() {
        let rights = rights(1, &[(&["home/#", "$SYS/x"], true), (&["home/+/set", "attic"], false)]);
        for (topic, retain, is_allowed) in [
            ("home/oven/set", false, true),
            ("home/oven/set", true, false),
            ("home/oven", false, false),
            ("attic", false, false),
            ("$SYS/x", false, false),
        ] {
            assert_eq!(rights.may_publish(topic, retain), is_allowed, "{topic} {retain}");
        }
    }

    #[test]
    fn who_has_no_right_publishes_nothing() {
        for blocks in [&[(&[][..], true)][..], &[(&["#"], true), (&[], true)]] {
            assert!(!rights(1, blocks).may_publish("a", false));
        }
        assert!(!rights(1, &[(&["#"], true)]).may_publish("$SYS/x", false), "MQTT 5 4.7.2");
    }

    #[test]
    fn a_link_remembers_one_topic_and_not_that_it_was_retained() {
        let mut allowed = String::new();
        let mut link = LinkRights::default();
        assert!(link.may_publish("any", true, &mut allowed));
        assert!(link.note(Some(&rights(1, &[(&["a/#"], false)]))));
        for _ in 0..2 {
            assert!(!link.may_publish("any", false, &mut allowed));
            assert!(link.may_publish("a/b", false, &mut allowed));
            assert!(!link.may_publish("a/b", true, &mut allowed));
        }
        assert!(!link.note(Some(&rights(1, &[(&["a/#"], false)]))));
    }

    #[test]
    fn a_peer_that_was_not_heard_may_publish_nothing() {
        let mut link = LinkRights::expected(1);
        assert!(!link.may_publish("a", false, &mut String::new()));
        assert_eq!([1, 2, 0].map(|sender| link.expects_another(sender)), [false, true, true]);
        assert!(!link.note(Some(&rights(1, &[(&["a"], false)]))), "it is who was expected");
        assert!(link.may_publish("a", false, &mut String::new()));
    }
}
