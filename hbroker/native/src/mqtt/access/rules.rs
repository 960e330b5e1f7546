//! Which topics a client may read and write: an access list, as mosquitto's.
//!
//! The first rule for the access (read or write) whose filter matches the topic decides. If no rule matches,
//! access is denied. Patterns such as the client's name are already substituted. A client remembers its last
//! answers by the keyed hash of the topic, in a few slots, because publishers write to few topics again and
//! again.

use std::sync::Arc;

use crate::keyed_hash::KeyedHash;
use crate::topic;

/// The topics at which bridges of other brokers publish whether they are connected (`notifications` in
/// mosquitto.conf).
const BRIDGE_STATE: &str = "$SYS/broker/connection/+/state";
/// How many answers each client remembers.
const SLOTS: usize = 16;

/// One line of an access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub allow: bool,
    pub read: bool,
    pub write: bool,
    pub filter: String,
}

/// The rules of some clients.
#[derive(Clone)]
pub struct AccessList {
    rules: Arc<[Rule]>,
    keyed: KeyedHash,
}

/// The access of one client. The default allows everything.
#[derive(Clone, Default)]
pub struct Access {
    rules: Option<Box<ClientRules>>,
}

/// The rules for one client, and its last answers.
#[derive(Clone)]
struct ClientRules {
    rules: Arc<[Rule]>,
    /// The answer of the first rule for all topics that do not begin with `$`, if its filter is `#`: to read
    /// and to write.
    all: [Option<bool>; 2],
    keyed: KeyedHash,
    answers: [Answer; SLOTS],
}

/// The answers for a topic, by its hash.
#[derive(Clone, Copy, Default)]
struct Answer {
    topic: u64,
    read: Option<bool>,
    write: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Read,
    Write,
}

impl AccessList {
    /// `seed`: the secret key of the hash.
    pub fn new(rules: Vec<Rule>, seed: u64) -> Self {
        Self { rules: rules.into(), keyed: KeyedHash::new(seed) }
    }

    /// The access of one client.
    pub fn access(&self) -> Access {
        let rules = Arc::clone(&self.rules);
        let all = [Act::Read, Act::Write].map(|act| of_all(&rules, act));
        Access {
            rules: Some(Box::new(ClientRules { rules, all, keyed: self.keyed, answers: Default::default() })),
        }
    }
}

impl Access {
    /// Whether the client may receive messages of this topic.
    pub fn may_read(&mut self, topic: &str) -> bool {
        self.rules.as_mut().is_none_or(|rules| rules.may(Act::Read, topic))
    }

    /// Whether the client may publish to this topic.
    pub fn may_write(&mut self, topic: &str) -> bool {
        is_writable(topic) && self.rules.as_mut().is_none_or(|rules| rules.may(Act::Write, topic))
    }
}

impl ClientRules {
    fn may(&mut self, act: Act, topic: &str) -> bool {
        if let Some(answer) = self.all[act as usize]
            && !topic.starts_with('$')
        {
            return answer;
        }
        let hash = self.keyed.hash_bytes(topic.as_bytes());
        let answer = &mut self.answers[hash as usize % SLOTS];
        if answer.topic != hash {
            *answer = Answer { topic: hash, ..Answer::default() };
        }
        let slot = if act == Act::Read { &mut answer.read } else { &mut answer.write };
        *slot.get_or_insert_with(|| decide(&self.rules, act, topic))
    }
}

/// Whether any client may publish to this topic. Topics that begin with `$` are the network's own, except the
/// states of bridges.
fn is_writable(topic: &str) -> bool {
    !topic.starts_with('$') || topic::matches(BRIDGE_STATE, topic)
}

fn decide(rules: &[Rule], act: Act, topic: &str) -> bool {
    let first = of_act(rules, act).find(|rule| topic::matches(&rule.filter, topic));
    first.is_some_and(|rule| rule.allow)
}

/// The answer for all topics that do not begin with `$` (MQTT 5 §4.7.2), if one rule decides it.
fn of_all(rules: &[Rule], act: Act) -> Option<bool> {
    of_act(rules, act).next().filter(|rule| rule.filter == "#").map(|rule| rule.allow)
}

/// The rules for an access.
fn of_act(rules: &[Rule], act: Act) -> impl Iterator<Item = &Rule> {
    rules.iter().filter(move |rule| if act == Act::Read { rule.read } else { rule.write })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(allow: bool, access: &str, filter: &str) -> Rule {
        Rule { allow, read: access.contains('r'), write: access.contains('w'), filter: filter.to_owned() }
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_nothing_said_is_no() {
        let list = AccessList::new(
            vec![
                rule(false, "w", "a/secret/#"),
                rule(true, "rw", "a/#"),
                rule(false, "rw", "a/late"),
                rule(true, "r", "%c"),
            ],
            1,
        );
        let mut access = list.access();
        for _ in 0..2 {
            assert!(access.may_write("a/x") && access.may_read("a/x") && access.may_read("a/secret/x"));
            assert!(access.may_read("a/late") && access.may_write("a/late"), "what comes later is not asked");
            assert!(!access.may_write("a/secret/x") && !access.may_read("b"));
            assert!(access.may_read("%c") && !access.may_read("c"), "a name is what it is");
        }
        assert!(Access::default().may_write("anything") && Access::default().may_read("anything"));
        assert!(!AccessList::new(Vec::new(), 1).access().may_read("a"));
        let state = "$SYS/broker/connection/x/state";
        assert!(Access::default().may_write(state) && !Access::default().may_write("$SYS/broker/version"));
        assert!(!AccessList::new(vec![rule(true, "w", "#")], 1).access().may_write(state));
    }

    #[test]
    fn a_first_rule_about_all_topics_is_not_about_those_of_the_system() {
        let rules = vec![rule(true, "rw", "#"), rule(false, "rw", "a"), rule(true, "r", "$SYS/#")];
        let mut access = AccessList::new(rules.clone(), 1).access();
        assert!(access.may_write("a") && access.may_read("a") && access.may_write(""));
        assert!(access.may_read("$SYS/x") && !access.may_write("$SYS/x") && !access.may_read("$else"));
        let refused = vec![rule(false, "w", "#"), rule(true, "rw", "a")];
        let mut access = AccessList::new(refused, 1).access();
        assert!(!access.may_write("a") && access.may_read("a") && !access.may_read("b"));
    }

    #[test]
    fn many_topics_share_the_slots() {
        let list = AccessList::new(vec![rule(true, "w", "even/+"), rule(true, "r", "odd/+")], 7);
        let mut access = list.access();
        for round in 0..3 {
            for number in 0..200 {
                let topic = format!("{}/{number}", if number % 2 == 0 { "even" } else { "odd" });
                assert_eq!(access.may_write(&topic), number % 2 == 0, "{round}");
                assert_eq!(access.may_read(&topic), number % 2 == 1, "{round}");
            }
        }
    }
}
