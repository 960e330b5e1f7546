//! The names that a client of a workspace uses, and those that its topics have in the network (docs/workspaces.md).
//!
//! The topic `home/oven` of the workspace `acme` is `$workspace/acme/home/oven` in the network. Only the edge maps
//! one name to the other: the API of a client, and the connection of an MQTT client. All that lies below knows the
//! names of the network alone.
//!
//! A topic of a workspace is not empty and does not begin with `$`. So within a workspace, too, no wildcard at the
//! first level matches a topic that begins with `$` (MQTT 5 §4.7.2), because there is none. A client that may write
//! in its workspace can publish on such a topic all the same, with datagrams of its own making. No edge delivers that.

use std::sync::Arc;

/// The subtree of all workspaces, with the separator behind it.
const ALL: &str = "$workspace/";

/// The workspace of a client. The default is that of all topics outside of workspaces, where both names are the same.
/// Small, because every client of a pool has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workspace {
    /// What the names in the network begin with, up to and with the separator.
    prefix: Option<Arc<Box<str>>>,
}

impl Workspace {
    /// The workspace of this name; empty: the default one.
    pub fn named(name: &str) -> Self {
        Self { prefix: (!name.is_empty()).then(|| Arc::new(format!("{ALL}{name}/").into())) }
    }

    /// The name in the network of a client's topic. `buffer`: where it is put together.
    /// `None`: no topic of a workspace has this name.
    pub fn absolute<'a>(&self, topic: &'a str, buffer: &'a mut String) -> Option<&'a str> {
        let Some(prefix) = &self.prefix else {
            return Some(topic);
        };
        if !is_local(topic) {
            return None;
        }
        buffer.clear();
        buffer.push_str(prefix);
        buffer.push_str(topic);
        Some(buffer)
    }

    /// The client's name of a topic of the network; `None`: its client knows no such topic.
    pub fn local<'a>(&self, topic: &'a str) -> Option<&'a str> {
        match &self.prefix {
            None => Some(topic),
            Some(prefix) => topic.strip_prefix(&***prefix).filter(|name| is_local(name)),
        }
    }
}

/// Where the name begins by which the clients of its workspace know a topic of the network: 0 if it is in no
/// workspace. `None`: no client knows it.
pub fn local_at(topic: &str) -> Option<usize> {
    let Some(rest) = topic.strip_prefix(ALL) else {
        return Some(0);
    };
    let (_, name) = rest.split_once('/').filter(|(_, name)| is_local(name))?;
    Some(topic.len() - name.len())
}

/// The name of the workspace in which a topic of the network is; `None`: it is in none.
pub fn name_of(topic: &str) -> Option<&str> {
    let rest = topic.strip_prefix(ALL)?;
    Some(rest.split_once('/').map_or(rest, |(name, _)| name))
}

fn is_local(topic: &str) -> bool {
    !topic.is_empty() && !topic.starts_with('$')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_as_it_was() {
        let (acme, mut buffer) = (Workspace::named("acme"), String::new());
        for topic in ["a", "a/b", "/", "//", "a//b/", "a/$b", " ", "workspace/acme/a", "+"] {
            let absolute = acme.absolute(topic, &mut buffer).expect("it is a name").to_owned();
            assert_eq!(absolute, format!("$workspace/acme/{topic}"));
            assert_eq!(acme.local(&absolute), Some(topic));
            assert_eq!(local_at(&absolute).map(|at| &absolute[at..]), Some(topic));
            assert_eq!(name_of(&absolute), Some("acme"));
            assert_eq!(Workspace::named("acm").local(&absolute), None);
            assert_eq!(Workspace::default().absolute(topic, &mut buffer), Some(topic));
            assert_eq!((local_at(topic), name_of(topic)), (Some(0), None));
        }
    }

    #[test]
    fn what_is_no_topic_of_a_workspace_is_neither_sent_nor_delivered() {
        let (acme, mut buffer) = (Workspace::named("acme"), String::new());
        for topic in ["", "$SYS/a", "$workspace/other/a", "$"] {
            assert_eq!(acme.absolute(topic, &mut buffer), None, "{topic}");
            let raw = format!("$workspace/acme/{topic}");
            assert_eq!((acme.local(&raw), local_at(&raw)), (None, None), "{raw}");
        }
        for raw in ["$workspace/acme", "$workspace/", "$workspace/acme/"] {
            assert_eq!((acme.local(raw), local_at(raw)), (None, None), "{raw}");
        }
        assert_eq!(name_of("$workspace/acme"), Some("acme"));
        for topic in ["$workspace", "$workspaces/acme/a", "$SYS/a"] {
            assert_eq!((local_at(topic), name_of(topic)), (Some(0), None), "{topic}");
        }
    }
}
