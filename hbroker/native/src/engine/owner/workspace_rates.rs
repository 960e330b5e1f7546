//! The messages that a node takes in a second on the topics of a workspace (docs/workspaces.md).
//!
//! All workers count in one place, because a publisher's link is at one of them. A message of `QoS` 1 or 2 beyond the
//! rate is refused before any subscriber has it, and its publisher sends it again (§7.7). One of `QoS` 0 is dropped.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Micros;
use crate::engine::transport::token_bucket::RateLimit;
use crate::workspace;

/// The rates of the workspaces that have one. Clones share them.
#[derive(Clone)]
pub struct WorkspaceRates(Option<Arc<HashMap<String, Mutex<RateLimit>>>>);

impl WorkspaceRates {
    /// `rates`: messages a second, by workspace.
    pub fn new(rates: &[(String, u32)]) -> Self {
        let limit = |(name, rate): &(String, u32)| (name.clone(), Mutex::new(RateLimit::new(*rate, *rate)));
        Self((!rates.is_empty()).then(|| Arc::new(rates.iter().map(limit).collect())))
    }

    /// Whether the workspace of a topic may have this many messages more now. If so, they count.
    pub fn take(&self, now: Micros, topic: &str, messages: usize) -> bool {
        let Some(rates) = &self.0 else {
            return true;
        };
        let rate = workspace::name_of(topic).and_then(|name| rates.get(name));
        let messages = u32::try_from(messages).unwrap_or(u32::MAX);
        rate.is_none_or(|rate| rate.lock().take_many(now, messages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_has_its_rate_and_takes_nothing_from_others() {
        let rates = WorkspaceRates::new(&[("acme".to_owned(), 3), ("other".to_owned(), 1)]);
        let taken = |topic: &str, now| (0..10).filter(|_| rates.take(now, topic, 1)).count();
        assert_eq!([taken("$workspace/acme/a", 0), taken("$workspace/acme/b", 0)], [3, 0]);
        assert_eq!(
            [taken("$workspace/other/a", 0), taken("$workspace/free/a", 0), taken("a", 0)],
            [1, 10, 10]
        );
        assert!(!rates.take(1_000_000, "$workspace/acme/a", 4), "all of them, or none");
        assert_eq!(taken("$workspace/acme/a", 1_000_000), 3);
        assert!(WorkspaceRates::new(&[]).take(0, "$workspace/acme/a", usize::MAX));
    }
}
