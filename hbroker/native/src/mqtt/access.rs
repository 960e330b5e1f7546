//! Which topics a client may read and write: an access list, as mosquitto's.
//!
//! A rule that denies and matches decides; else one that allows and matches; else the answer is no. Rules name the client by `%c` and its
//! user by `%u`; they are filled in once, when it is accepted. An answer is remembered for each topic by its keyed hash, in a
//! few slots: publishers write few topics, again and again.

use std::sync::Arc;

use crate::keyed::Keyed;
use crate::topic;

/// Answers that are remembered for each client.
const SLOTS: usize = 16;

/// One line of an access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub allow: bool,
    pub read: bool,
    pub write: bool,
    /// A topic filter, in which `%c` stands for the client id and `%u` for the user name.
    pub filter: String,
}

/// The rules that concern some client, before `%c` and `%u` are filled in.
#[derive(Clone)]
pub struct AccessList {
    rules: Arc<[Rule]>,
    is_personal: bool,
    keyed: Keyed,
}

/// What one client may do. The default: everything.
#[derive(Clone, Default)]
pub struct Access {
    list: Option<Box<Known>>,
}

#[derive(Clone)]
struct Known {
    rules: Arc<[Rule]>,
    keyed: Keyed,
    answers: [Answer; SLOTS],
}

/// The answers about a topic, by its hash.
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
    /// `seed`: for the hash; secret.
    pub fn new(rules: Vec<Rule>, seed: u64) -> Self {
        let is_personal = rules.iter().any(|rule| rule.filter.contains("%c") || rule.filter.contains("%u"));
        Self { rules: rules.into(), is_personal, keyed: Keyed::new(seed) }
    }

    /// For one client. `user`: empty if it has none. A rule with `%c` or `%u` is left out where that would be empty, or would
    /// change the filter's levels or wildcards; one that denies then denies everything that it could have meant.
    pub fn compile(&self, client_id: &str, user: &str) -> Access {
        let rules = if self.is_personal {
            self.rules.iter().filter_map(|rule| filled_in(rule, client_id, user)).collect()
        } else {
            Arc::clone(&self.rules)
        };
        Access { list: Some(Box::new(Known { rules, keyed: self.keyed, answers: Default::default() })) }
    }
}

impl Access {
    /// Whether it may get messages of this topic.
    pub fn may_read(&mut self, topic: &str) -> bool {
        self.list.as_mut().is_none_or(|list| list.may(Act::Read, topic))
    }

    /// Whether it may publish to this topic.
    pub fn may_write(&mut self, topic: &str) -> bool {
        self.list.as_mut().is_none_or(|list| list.may(Act::Write, topic))
    }
}

impl Known {
    fn may(&mut self, act: Act, topic: &str) -> bool {
        let hash = self.keyed.hash_bytes(topic.as_bytes());
        let answer = &mut self.answers[hash as usize % SLOTS];
        if answer.topic != hash {
            *answer = Answer { topic: hash, ..Answer::default() };
        }
        let slot = if act == Act::Read { &mut answer.read } else { &mut answer.write };
        *slot.get_or_insert_with(|| decide(&self.rules, act, topic))
    }
}

fn decide(rules: &[Rule], act: Act, topic: &str) -> bool {
    let concerns = |rule: &&Rule| {
        (if act == Act::Read { rule.read } else { rule.write }) && topic::matches(&rule.filter, topic)
    };
    let mut allowed = false;
    for rule in rules.iter().filter(concerns) {
        if !rule.allow {
            return false;
        }
        allowed = true;
    }
    allowed
}

fn filled_in(rule: &Rule, client_id: &str, user: &str) -> Option<Rule> {
    let is_fit = |name: &str| !name.is_empty() && !name.contains(['+', '#', '/']);
    let mut filter = rule.filter.clone();
    for (mark, name) in [("%c", client_id), ("%u", user)] {
        if filter.contains(mark) && !is_fit(name) {
            if rule.allow {
                return None;
            }
            filter = widened(&filter, mark);
        }
    }
    // In one pass: a client whose id is "%u" is no user.
    let mut pieces = filter.split('%');
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match (piece.strip_prefix('c'), piece.strip_prefix('u')) {
            (Some(rest), _) => whole.extend([client_id, rest]),
            (_, Some(rest)) => whole.extend([user, rest]),
            _ => whole.extend(["%", piece]),
        }
    }
    Some(Rule { filter: whole, ..rule.clone() })
}

/// With `+` in place of every level that holds the mark.
fn widened(filter: &str, mark: &str) -> String {
    let levels: Vec<&str> =
        filter.split('/').map(|level| if level.contains(mark) { "+" } else { level }).collect();
    levels.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(allow: bool, access: &str, filter: &str) -> Rule {
        Rule { allow, read: access.contains('r'), write: access.contains('w'), filter: filter.to_owned() }
    }

    #[test]
    fn deny_goes_before_allow_and_nothing_said_is_no() {
        let list = AccessList::new(vec![rule(true, "rw", "a/#"), rule(false, "w", "a/secret/#")], 1);
        let mut access = list.compile("c", "");
        for _ in 0..2 {
            assert!(access.may_write("a/x") && access.may_read("a/x") && access.may_read("a/secret/x"));
            assert!(!access.may_write("a/secret/x") && !access.may_read("b"));
        }
        assert!(Access::default().may_write("anything") && Access::default().may_read("anything"));
        assert!(!AccessList::new(Vec::new(), 1).compile("c", "u").may_read("a"));
    }

    #[test]
    fn names_are_filled_in_and_cannot_widen_a_rule() {
        let list = AccessList::new(vec![rule(true, "w", "u/%u/%c"), rule(false, "w", "u/+/x-%c")], 1);
        assert!(list.compile("me", "ann").may_write("u/ann/me"));
        assert!(!list.compile("me", "ann").may_write("u/ann/you"));
        assert!(!list.compile("%u", "me").may_write("u/me/me"), "an id is not filled in itself");
        for (client, user) in [("me", "+"), ("#", "ann"), ("a/b", "ann"), ("me", "")] {
            let mut access = list.compile(client, user);
            assert!(!access.may_write("u/ann/me") && !access.may_write("u/+/me"), "{client} {user}");
        }
        let list = AccessList::new(vec![rule(true, "w", "#"), rule(false, "w", "u/x-%c")], 1);
        assert!(!list.compile("+", "").may_write("u/x-1"), "a denial is never lost");
        assert!(list.compile("2", "").may_write("u/x-1"));
    }

    #[test]
    fn many_topics_share_the_slots() {
        let list = AccessList::new(vec![rule(true, "w", "even/+"), rule(true, "r", "odd/+")], 7);
        let mut access = list.compile("c", "");
        for round in 0..3 {
            for number in 0..200 {
                let topic = format!("{}/{number}", if number % 2 == 0 { "even" } else { "odd" });
                assert_eq!(access.may_write(&topic), number % 2 == 0, "{round}");
                assert_eq!(access.may_read(&topic), number % 2 == 1, "{round}");
            }
        }
    }
}
