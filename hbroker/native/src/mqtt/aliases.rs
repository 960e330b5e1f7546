//! Topic aliases (MQTT 5 §3.3.2.3.4): those that the client assigns, and those that the server assigns. They
//! live as long as the connection.

use std::collections::HashMap;

use crate::mqtt::codec::reason::Reason;
use crate::mqtt::distribution::message::Alias;

/// A shorter topic gains nothing by an alias, which takes three bytes.
const SHORTEST: usize = 4;
/// A longer topic costs too much memory for each client.
const LONGEST: usize = 1_024;

/// The topics of the aliases that a client assigned. Their number is bounded by the topic alias maximum that
/// the server sent.
#[derive(Default)]
pub struct Incoming {
    topics: Vec<Option<Box<str>>>,
}

impl Incoming {
    /// Returns the topic of a PUBLISH with an alias. If the PUBLISH contains a topic, the alias stands for
    /// that topic from now on.
    ///
    /// # Errors
    /// The alias is 0, is higher than `most`, or stands for no topic.
    pub fn resolve(&mut self, most: u16, alias: u16, topic: &str) -> Result<&str, Reason> {
        if alias == 0 || alias > most {
            return Err(Reason::TOPIC_ALIAS_INVALID);
        }
        let index = usize::from(alias) - 1;
        if !topic.is_empty() {
            if self.topics.len() <= index {
                self.topics.resize(index + 1, None);
            }
            let known = &mut self.topics[index];
            if known.as_deref() != Some(topic) {
                *known = Some(topic.into());
            }
        }
        // MQTT 5 §3.3.2.3.4: an alias without a topic is a protocol error.
        self.topics.get(index).and_then(Option::as_deref).ok_or(Reason::PROTOCOL_ERROR)
    }
}

/// The aliases that the server assigns, to the first topics that it sends to a client, up to the client's
/// topic alias maximum. An alias is never reassigned: a client that gets many topics once each would only
/// receive new assignments.
#[derive(Default)]
pub struct Outgoing {
    most: u16,
    given: HashMap<Box<str>, u16>,
}

impl Outgoing {
    pub fn new(most: u16) -> Self {
        Self { most, given: HashMap::new() }
    }

    /// How to write this topic in the next PUBLISH.
    pub fn of(&self, topic: &str) -> Alias {
        if self.most == 0 || !(SHORTEST..=LONGEST).contains(&topic.len()) {
            return Alias::None;
        }
        let next = self.given.len() + 1;
        match self.given.get(topic) {
            Some(&alias) => Alias::Instead(alias),
            None if next <= usize::from(self.most) => Alias::Announce(next as u16),
            None => Alias::None,
        }
    }

    /// A PUBLISH with the topic and this alias was sent.
    pub fn announced(&mut self, topic: &str, alias: Alias) {
        if let Alias::Announce(alias) = alias {
            self.given.insert(topic.into(), alias);
        }
    }
}
