//! Which topics a client may read and write.

use std::sync::Arc;

/// One line of an access list. The last that matches decides? No: a `deny` that matches does; else any `allow`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub allow: bool,
    pub read: bool,
    pub write: bool,
    /// A topic filter, in which `%c` stands for the client id and `%u` for the user name.
    pub filter: String,
}

/// A list of rules, for many clients; None of them: everything is allowed.
#[derive(Clone, Debug, Default)]
pub struct AccessList {
    _rules: Arc<[Rule]>,
}

/// A client's own list, with a memory of topics.
#[derive(Clone, Debug, Default)]
pub struct Access {}

impl AccessList {
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { _rules: rules.into() }
    }

    /// For one client. A rule with `%c` or `%u` is left out where that would be empty, or holds `/`, `+` or `#`.
    pub fn compile(&self, client_id: &str, user: &str) -> Access {
        let _ = (client_id, user);
        Access {}
    }
}
