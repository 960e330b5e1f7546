//! Which topics a walk through all topics in order must visit.
//!
//! From a topic that is not wanted, the walk continues with the next topic that may be wanted. So its cost
//! depends on what matches, and not on what is stored. (The topics below `a` are one run, from `a/` up to
//! `a0`, because `0` is the byte after `/`; but `a-b` is between `a` and `a/`.)

use super::Cursor;
use crate::topic::{Region, is_within};

/// What a walk does with a topic.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The topic is wanted.
    Found,
    /// It is not wanted: continue with the next topic.
    Next,
    /// It is not wanted: continue with this later topic, or the next one after it.
    Seek(String),
    /// It is not wanted, and neither is any later topic.
    End,
}

/// The topics that a walk looks for.
#[derive(Clone, Copy)]
pub enum Wanted<'a> {
    /// The topics that match.
    Filter(&'a str),
    Region(Region<'a>),
}

impl Wanted<'_> {
    /// The cursor at which to begin.
    pub fn first(&self) -> Cursor {
        Cursor { topic: self.start().into(), ..Cursor::default() }
    }

    /// No topic before this one is wanted.
    pub fn start(&self) -> &str {
        match self {
            Self::Region(region) => region.subtree,
            Self::Filter(filter) => match filter.find(['+', '#']) {
                None => filter,
                // `a/#` matches `a`.
                Some(wildcard) if filter.as_bytes()[wildcard] == b'#' => {
                    filter[..wildcard].strip_suffix('/').unwrap_or_default()
                }
                Some(wildcard) => &filter[..wildcard],
            },
        }
    }

    /// What to do with a topic, which must not come before `start`.
    pub fn step(&self, topic: &str) -> Step {
        match self {
            Self::Filter(filter) => step_to_match(filter, topic),
            Self::Region(region) => step_within(*region, topic),
        }
    }
}

fn step_to_match(filter: &str, topic: &str) -> Step {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return Step::Seek("%".into()); // The byte after `$`.
    }
    let mut levels = topic.split('/');
    let mut wanted = filter.split('/').peekable();
    // The offset of the level, and the end of the last level that a `+` matched.
    let (mut start, mut free) = (0, None);
    while let Some(name) = wanted.next() {
        if name == "#" {
            return Step::Found;
        }
        let Some(level) = levels.next() else {
            return Step::Next;
        };
        let end = start + level.len();
        if name == "+" {
            free = Some(end);
        } else if name != level {
            let named = format!("{}{name}", &topic[..start]);
            let below = format!("{named}/");
            let may_end = matches!(wanted.peek(), None | Some(&"#"));
            return match () {
                () if may_end && *named > *topic => Step::Seek(named),
                () if wanted.peek().is_some() && *below > *topic => Step::Seek(below),
                () => free.map_or(Step::End, |end| Step::Seek(behind(&topic[..end]))),
            };
        }
        start = end + 1;
    }
    match levels.next() {
        None => Step::Found,
        Some(_) => Step::Seek(behind(&topic[..start - 1])),
    }
}

fn step_within(region: Region<'_>, topic: &str) -> Step {
    let Region { subtree, excluded } = region;
    if !is_within(topic, subtree) {
        let below = format!("{subtree}/");
        return if *topic < *below { Step::Seek(below) } else { Step::End };
    }
    match excluded.iter().find(|other| is_within(topic, other)) {
        None => Step::Found,
        Some(other) if *topic == **other => Step::Next,
        Some(other) => Step::Seek(behind(other)),
    }
}

/// The first topic after all topics below a subtree.
pub fn behind(subtree: &str) -> String {
    format!("{subtree}0")
}

/// The topics of a region, as runs: from the first up to but not including the second; `None`: up to the end.
pub fn ranges(region: Region<'_>) -> Vec<(String, Option<String>)> {
    let Region { subtree, excluded } = region;
    let mut left: Vec<(String, Option<String>)> = whole(subtree);
    for other in excluded {
        for (from, to) in whole(other) {
            left = left.into_iter().flat_map(|run| without(run, &from, to.as_deref())).collect();
        }
    }
    left
}

fn whole(subtree: &str) -> Vec<(String, Option<String>)> {
    if subtree.is_empty() {
        return vec![(String::new(), None)];
    }
    // No topic contains NUL, so no other topic is in this run.
    vec![(subtree.to_owned(), Some(format!("{subtree}\0"))), (format!("{subtree}/"), Some(behind(subtree)))]
}

/// The parts of a run before `from`, and from `to` on.
fn without(
    (first, last): (String, Option<String>),
    from: &str,
    to: Option<&str>,
) -> impl Iterator<Item = (String, Option<String>)> {
    let is_before = |one: &str, end: &Option<String>| end.as_deref().is_none_or(|end| one < end);
    if !is_before(from, &last) || to.is_some_and(|to| to <= &*first) {
        return [Some((first, last)), None].into_iter().flatten();
    }
    let before = (*first < *from).then(|| (first, Some(from.to_owned())));
    let after = to.filter(|to| is_before(to, &last)).map(|to| (to.to_owned(), last));
    [before, after].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::topic::matches;

    const LEVELS: [&str; 9] = ["a", "b", "", "a-", "a0", "ab", "$", "$s", "%"];

    fn path(random: &mut SmallRng, names: &[&str]) -> String {
        let depth = random.random_range(1..5);
        let levels: Vec<&str> = (0..depth).map(|_| names[random.random_range(0..names.len())]).collect();
        levels.join("/")
    }

    /// What a walk finds, and how many topics it came to.
    fn walk(wanted: Wanted<'_>, topics: &BTreeSet<String>) -> (Vec<String>, usize) {
        let (mut found, mut looks) = (Vec::new(), 0);
        let mut rest = topics.range(wanted.start().to_owned()..);
        while let Some(topic) = rest.next() {
            looks += 1;
            match wanted.step(topic) {
                Step::Found => found.push(topic.clone()),
                Step::Next => {}
                Step::Seek(target) => {
                    assert!(target > *topic, "{topic} to {target}");
                    rest = topics.range(target..);
                }
                Step::End => break,
            }
        }
        (found, looks)
    }

    #[test]
    fn a_walk_finds_what_matches_and_nothing_else() {
        let mut random = SmallRng::seed_from_u64(1);
        let names: Vec<&str> = LEVELS.iter().copied().chain(["+", "+", "+"]).collect();
        let mut hits = 0;
        for _ in 0..3_000 {
            let count = random.random_range(0..150);
            let topics: BTreeSet<String> =
                (0..count).map(|_| path(&mut random, &LEVELS)).filter(|topic| !topic.is_empty()).collect();
            let mut filter = path(&mut random, &names);
            if random.random_range(0..2) == 0 {
                filter = if filter.is_empty() { "#".into() } else { format!("{filter}/#") };
            }
            let expected: Vec<String> =
                topics.iter().filter(|topic| matches(&filter, topic)).cloned().collect();
            let (found, looks) = walk(Wanted::Filter(&filter), &topics);
            assert_eq!(found, expected, "{filter:?}");
            assert!(looks <= topics.len());
            hits += found.len();
        }
        assert!(hits > 10_000, "{hits}");
    }

    #[test]
    fn a_walk_and_the_runs_of_a_region_are_what_it_holds() {
        let mut random = SmallRng::seed_from_u64(2);
        for _ in 0..3_000 {
            let topics: BTreeSet<String> =
                (0..100).map(|_| path(&mut random, &LEVELS)).filter(|topic| !topic.is_empty()).collect();
            let subtree =
                if random.random_range(0..5) == 0 { String::new() } else { path(&mut random, &LEVELS) };
            let excluded: Vec<String> = (0..random.random_range(0..4))
                .map(|_| path(&mut random, &LEVELS))
                .filter(|other| !other.is_empty() && *other != subtree)
                .collect();
            let region = Region { subtree: &subtree, excluded: &excluded };
            let expected: Vec<String> = topics.iter().filter(|topic| region.holds(topic)).cloned().collect();
            assert_eq!(walk(Wanted::Region(region), &topics).0, expected, "{region:?}");
            let in_runs: BTreeSet<String> = ranges(region)
                .into_iter()
                .flat_map(|(from, to)| {
                    topics.range(from..).take_while(move |topic| to.as_ref().is_none_or(|to| *topic < to))
                })
                .cloned()
                .collect();
            assert_eq!(in_runs.into_iter().collect::<Vec<_>>(), expected, "{region:?}");
        }
    }

    #[test]
    fn what_cannot_match_is_passed_over() {
        let wide = (0..100).flat_map(|room| (0..100).map(move |number| format!("a/{room}/{number}/x")));
        let topics: BTreeSet<String> = wide.chain(["a/7/c/x".to_owned(), "z".to_owned()]).collect();
        for (filter, matched, most) in [
            ("a/+/c/#", 1, 310),
            ("a/+/c", 0, 310),
            ("a/+", 0, 110),
            ("+/7/c/x", 1, 10),
            ("a/7/c/x", 1, 3),
            ("b/+/x", 0, 2),
        ] {
            let (found, looks) = walk(Wanted::Filter(filter), &topics);
            assert_eq!(found.len(), matched, "{filter}");
            assert!(looks <= most, "{filter}: {looks} of {}", topics.len());
        }
    }
}
