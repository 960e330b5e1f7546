//! Topic names and filters (§7.1; MQTT 5 §4.7).
//!
//! A topic is a path of levels, separated by `/`; a level may be empty. A filter is a topic in which `+` may
//! stand for one level and a last `#` for any number of them, including none. Topics whose first level begins
//! with `$` are separate: no wildcard at the first level matches them.
//!
//! A subtree is a path of whole levels, and the empty string is the whole hierarchy. (The path of one empty
//! level, above `/a`, is the empty string as well: it cannot be distinguished from the whole hierarchy, so it
//! cannot be delegated.)
//!
//! All functions but the first two take valid topics, filters and subtrees. Except for `filter_within`, none
//! allocates.

/// The longest topic or filter, in bytes (MQTT 5 §1.5.4).
pub const MAX_TOPIC: usize = 65_535;

/// Whether this is a topic name that a message can be published to.
pub fn topic_is_valid(topic: &str) -> bool {
    // Looks at all bytes, even after a match: so the compiler can look at many at once.
    let is_barred = |byte| matches!(byte, 0 | b'+' | b'#');
    has_valid_length(topic) && !topic.bytes().fold(false, |found, byte| found | is_barred(byte))
}

/// Whether this is a topic filter: wildcards fill a level, and `#` is the last.
pub fn filter_is_valid(filter: &str) -> bool {
    let (above, last) = filter.rsplit_once('/').map_or((None, filter), |(above, last)| (Some(above), last));
    has_valid_length(filter)
        && !filter.bytes().any(|byte| byte == 0)
        && (last == "#" || is_name_or_plus(last))
        && above.is_none_or(|levels| levels.split('/').all(is_name_or_plus))
}

/// Whether a filter can match other topics than the one that is spelt like it.
pub fn has_wildcards(filter: &str) -> bool {
    filter.contains(['+', '#'])
}

/// Whether a topic matches a filter.
pub fn matches(filter: &str, topic: &str) -> bool {
    if is_apart(filter, topic) {
        return false;
    }
    let mut levels = topic.split('/');
    for wanted in filter.split('/') {
        if wanted == "#" {
            return true;
        }
        match levels.next() {
            Some(level) if wanted == "+" || wanted == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

/// Whether some topic at or below the subtree can match the filter.
pub fn filter_touches(filter: &str, subtree: &str) -> bool {
    if subtree.is_empty() {
        return true;
    }
    if is_apart(filter, subtree) {
        return false;
    }
    let mut wanted = filter.split('/');
    for level in subtree.split('/') {
        match wanted.next() {
            Some("#") => return true,
            Some(name) if name == "+" || name == level => {}
            _ => return false,
        }
    }
    true
}

/// The part of a filter that matches in a subtree, which the filter touches, as a filter.
pub fn filter_within(filter: &str, subtree: &str) -> String {
    if subtree.is_empty() {
        return filter.to_owned();
    }
    let mut wanted = filter.split('/');
    if subtree.split('/').any(|_| wanted.next() == Some("#")) {
        return format!("{subtree}/#");
    }
    wanted.fold(subtree.to_owned(), |path, level| format!("{path}/{level}"))
}

/// Whether a topic, or a subtree, lies at or below `subtree`.
pub fn is_within(path: &str, subtree: &str) -> bool {
    match path.as_bytes().strip_prefix(subtree.as_bytes()) {
        Some(rest) => subtree.is_empty() || rest.is_empty() || rest[0] == b'/',
        None => false,
    }
}

/// A subtree, without some subtrees below it.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    /// The subtree.
    pub subtree: &'a str,
    /// The subtrees below it that do not belong to the region.
    pub excluded: &'a [String],
}

impl Region<'_> {
    /// Whether a topic is in the region.
    pub fn holds(&self, topic: &str) -> bool {
        is_within(topic, self.subtree) && !self.excluded.iter().any(|other| is_within(topic, other))
    }
}

impl<'a> From<&'a str> for Region<'a> {
    fn from(subtree: &'a str) -> Self {
        Self { subtree, excluded: &[] }
    }
}

/// The subtrees that contain a topic, from the topic itself up to the whole hierarchy.
pub fn prefixes(topic: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(topic), |path| match path.rfind('/') {
        Some(end) => Some(&path[..end]),
        None if path.is_empty() => None,
        None => Some(""),
    })
}

/// The same, without the prefixes of more than `depth` levels: a table whose keys have at most that many
/// levels needs no others.
pub fn prefixes_to_depth(topic: &str, depth: usize) -> impl Iterator<Item = &str> {
    prefixes(prefix_to_depth(topic, depth))
}

/// The longest subtree of at most `depth` levels that contains a topic.
pub fn prefix_to_depth(topic: &str, depth: usize) -> &str {
    let end = match depth {
        0 => 0,
        _ => topic
            .bytes()
            .enumerate()
            .filter(|(_, byte)| *byte == b'/')
            .nth(depth - 1)
            .map_or(topic.len(), |(at, _)| at),
    };
    &topic[..end]
}

/// How many levels a subtree has; the whole hierarchy has none.
pub fn depth(subtree: &str) -> usize {
    if subtree.is_empty() { 0 } else { subtree.split('/').count() }
}

fn is_name_or_plus(level: &str) -> bool {
    level == "+" || !level.bytes().any(|byte| matches!(byte, b'+' | b'#'))
}

fn has_valid_length(text: &str) -> bool {
    (1..=MAX_TOPIC).contains(&text.len())
}

/// MQTT 5 §4.7.2: a wildcard at the first level matches nothing that begins with `$`.
fn is_apart(filter: &str, path: &str) -> bool {
    path.starts_with('$') && filter.starts_with(['+', '#'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity() {
        for topic in ["a", "/", "a//b", " ", "$SYS", "\u{10ffff}", &"x".repeat(MAX_TOPIC)] {
            assert!(topic_is_valid(topic) && filter_is_valid(topic), "{topic:?}");
        }
        for neither in ["", "a\0b", &"x".repeat(MAX_TOPIC + 1)] {
            assert!(!topic_is_valid(neither) && !filter_is_valid(neither), "{neither:?}");
        }
        for filter in ["#", "+", "+/+", "/#", "a/#", "+/a/#", "/+", "+//#"] {
            assert!(!topic_is_valid(filter) && filter_is_valid(filter), "{filter:?}");
        }
        for neither in ["a#", "#/", "#/a", "a+", "+a", "++", "a/+b", "##", "a/#/b", "+#", "/#/", "a/##"] {
            assert!(!topic_is_valid(neither) && !filter_is_valid(neither), "{neither:?}");
        }
    }

    #[test]
    fn matching() {
        for (filter, topic) in [
            ("#", "a/b"),
            ("#", "/"),
            ("a/#", "a"),
            ("a/#", "a/"),
            ("+", "a"),
            ("/+", "/"),
            ("+/+", "/"),
            ("$SYS/#", "$SYS"),
            ("$SYS/+", "$SYS/a"),
            ("a/+/c", "a//c"),
            ("+/#", "a"),
            ("a/$b", "a/$b"),
            ("a/+", "a/$b"),
        ] {
            assert!(matches(filter, topic), "{filter:?} {topic:?}");
        }
        for (filter, topic) in [
            ("#", "$SYS"),
            ("+/a", "$SYS/a"),
            ("+", "/"),
            ("+", "a/"),
            ("a", "A"),
            ("a/+", "a"),
            ("/", "a"),
            ("a/#", "ab"),
            ("a", "a/"),
            ("a/", "a"),
            ("+/#", "$SYS/a"),
            ("/#", "a"),
        ] {
            assert!(!matches(filter, topic), "{filter:?} {topic:?}");
        }
    }

    #[test]
    fn a_region_holds_what_lies_in_its_subtree_and_in_none_that_is_no_part_of_it() {
        let excluded = ["a/b".to_owned(), "a/c/d".to_owned()];
        let region = Region { subtree: "a", excluded: &excluded };
        let all = ["a", "a/bc", "a/c", "a/b", "a/b/c", "a/c/d", "a/c/d/e", "a/c/de", "b", "ab", ""];
        let held: Vec<&str> = all.into_iter().filter(|topic| region.holds(topic)).collect();
        assert_eq!(held, ["a", "a/bc", "a/c", "a/c/de"]);
        assert!(all.into_iter().all(|topic| Region::from("").holds(topic)));
    }

    /// All paths of up to `levels` levels of these names.
    fn paths(levels: usize, names: &[&str]) -> Vec<String> {
        let mut all: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut last = all.clone();
        for _ in 1..levels {
            last =
                last.iter().flat_map(|path| names.iter().map(move |name| format!("{path}/{name}"))).collect();
            all.extend(last.iter().cloned());
        }
        all
    }

    #[test]
    fn a_filter_touches_a_subtree_if_it_matches_a_topic_within() {
        let topics = paths(5, &["a", "", "$s"]);
        let mut touching = 0;
        for filter in paths(3, &["a", "", "$s", "+", "#"]).iter().filter(|filter| filter_is_valid(filter)) {
            let matched: Vec<&String> = topics.iter().filter(|topic| matches(filter, topic)).collect();
            for subtree in paths(3, &["a", "", "$s"]) {
                let expected =
                    matched.iter().any(|topic| topic_is_valid(topic) && is_within(topic, &subtree));
                assert_eq!(filter_touches(filter, &subtree), expected, "{filter:?} {subtree:?}");
                touching += usize::from(expected);
            }
        }
        assert!(touching > 100);
    }

    #[test]
    fn prefixes_are_the_subtrees_that_hold_a_topic() {
        let all = paths(4, &["a", "", "bb"]);
        for topic in all.iter().filter(|topic| topic_is_valid(topic)) {
            let prefixes: Vec<&str> = prefixes(topic).collect();
            let mut expected: Vec<&str> =
                all.iter().map(String::as_str).filter(|path| is_within(topic, path)).collect();
            expected.sort_by_key(|path| std::cmp::Reverse(path.len()));
            assert_eq!(prefixes, expected, "{topic:?}");
            for limit in 0..5 {
                let limited: Vec<&str> = prefixes_to_depth(topic, limit).collect();
                expected.retain(|path| prefixes.contains(path));
                let short: Vec<&str> = expected.iter().copied().filter(|path| depth(path) <= limit).collect();
                assert_eq!(limited, short, "{topic:?} {limit}");
            }
        }
    }
}
