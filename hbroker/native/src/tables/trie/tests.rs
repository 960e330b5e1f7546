//! The trie against a search through all filters.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::plain::PlainFilter;
use super::*;
use crate::topic;

fn subscriber(session: u64, qos: u8) -> Subscriber {
    Subscriber::new(SessionKey(session), qos)
}

fn random_path(random: &mut SmallRng, names: &[&str]) -> String {
    let levels = random.random_range(1..=4);
    (0..levels).map(|_| names[random.random_range(0..names.len())]).collect::<Vec<_>>().join("/")
}

fn random_filter(random: &mut SmallRng) -> String {
    loop {
        let filter = random_path(random, &["a", "b", "", "$s", "+", "+", "#"]);
        if topic::filter_is_valid(&filter) {
            return filter;
        }
    }
}

fn random_topic(random: &mut SmallRng) -> String {
    loop {
        let topic = random_path(random, &["a", "b", "", "$s", "c"]);
        if topic::topic_is_valid(&topic) {
            return topic;
        }
    }
}

/// By filter, group and session.
type Model = BTreeMap<(String, String, u64), Subscriber>;

const GROUPS: [&str; 5] = ["", "", "", "g", "h"];

fn expected(model: &Model, topic: &str) -> BTreeMap<u64, Subscriber> {
    let mut found = BTreeMap::<u64, Subscriber>::new();
    for ((filter, group, session), subscriber) in model {
        if group.is_empty() && topic::matches(filter, topic) {
            let merged = found.entry(*session).or_insert(*subscriber);
            merged.qos = merged.qos.max(subscriber.qos);
            merged.no_local &= subscriber.no_local;
            merged.retain_as_published |= subscriber.retain_as_published;
            merged.overflow = merged.overflow.max(subscriber.overflow);
        }
    }
    found
}

/// The members of each group and filter that match, in order.
fn expected_groups(model: &Model, topic: &str) -> Vec<(String, Vec<Subscriber>)> {
    let mut found = BTreeMap::<(&str, &str), Vec<Subscriber>>::new();
    for ((filter, group, _), subscriber) in model {
        if !group.is_empty() && topic::matches(filter, topic) {
            found.entry((filter, group)).or_default().push(*subscriber);
        }
    }
    in_order(found.into_iter().map(|((_, group), members)| (group.to_owned(), members)))
}

fn in_order(groups: impl Iterator<Item = (String, Vec<Subscriber>)>) -> Vec<(String, Vec<Subscriber>)> {
    let mut groups: Vec<_> = groups.collect();
    groups.iter_mut().for_each(|(_, members)| members.sort_by_key(|member| member.session));
    let key = |(name, members): &(String, Vec<Subscriber>)| {
        (name.clone(), members.iter().map(|member| (member.session, member.qos)).collect::<Vec<_>>())
    };
    groups.sort_by_key(key);
    groups
}

fn assert_agrees(trie: &SubscriptionTrie, model: &Model, topic: &str, found: &mut MatchSet) -> usize {
    trie.collect_matches(topic, found);
    let got: BTreeMap<u64, Subscriber> =
        found.subscribers().iter().map(|each| (each.session.0, *each)).collect();
    assert_eq!(got.len(), found.subscribers().len(), "a session twice for {topic:?}");
    assert_eq!(got, expected(model, topic), "for {topic:?}");
    for group in found.groups().iter() {
        let is_its = |filter: &str| group.id == shared_id(group.name, filter);
        let is_known = |(filter, name, _): &(String, String, u64)| **name == **group.name && is_its(filter);
        assert!(model.keys().any(is_known), "for {topic:?}");
    }
    let groups = found.groups().iter().map(|group| (group.name.to_string(), group.members.to_vec()));
    let mut expected = expected_groups(model, topic);
    let mut groups = in_order(groups);
    // Of groups that differ in their filters alone the order is nobody's business.
    let flags = |list: &mut Vec<(String, Vec<Subscriber>)>| list.sort_by_key(|entry| format!("{entry:?}"));
    flags(&mut expected);
    flags(&mut groups);
    assert_eq!(groups, expected, "for {topic:?}");
    assert_eq!(
        found.subscriptions(),
        model.keys().filter(|(filter, ..)| topic::matches(filter, topic)).count()
    );
    found.subscriptions()
}

#[test]
fn agrees_with_brute_force_under_random_change() {
    let mut random = SmallRng::seed_from_u64(1);
    let (mut trie, mut model, mut found) = (SubscriptionTrie::new(7), Model::new(), MatchSet::default());
    let mut matched = 0;
    for step in 0..20_000 {
        let (filter, session) = (random_filter(&mut random), random.random_range(0..12));
        let group = GROUPS[random.random_range(0..GROUPS.len())];
        match random.random_range(0..100) {
            0..55 => {
                let subscriber = Subscriber {
                    session: SessionKey(session),
                    qos: random.random_range(0..3),
                    no_local: random.random(),
                    retain_as_published: random.random(),
                    overflow: Overflow::from_wire(random.random_range(0..3)),
                };
                let replaced = trie.insert(&filter, group, subscriber);
                assert_eq!(replaced, model.insert((filter, group.into(), session), subscriber).is_some());
            }
            55..96 => {
                let removed = trie.remove(&filter, group, SessionKey(session));
                assert_eq!(removed, model.remove(&(filter, group.into(), session)).is_some());
            }
            _ => {
                let before = model.len();
                model.retain(|(.., other), _| *other != session);
                assert_eq!(trie.remove_session(SessionKey(session)), before - model.len());
            }
        }
        assert_eq!(trie.len(), model.len());
        if step % 4 == 0 {
            matched += assert_agrees(&trie, &model, &random_topic(&mut random), &mut found);
        }
    }
    assert!(matched > 10_000, "only {matched} matches: the test shows little");
}

#[test]
fn removal_frees_everything() {
    let mut random = SmallRng::seed_from_u64(2);
    let mut trie = SubscriptionTrie::new(7);
    trie.insert("stays", "", subscriber(99, 0));
    for _ in 0..50 {
        for session in 0..40 {
            let group = GROUPS[random.random_range(0..GROUPS.len())];
            trie.insert(&random_filter(&mut random), group, subscriber(session, 1));
        }
        for session in 0..40 {
            trie.remove_session(SessionKey(session));
        }
    }
    assert_eq!((trie.len(), trie.sessions(), trie.plain.len(), trie.nodes.len()), (1, 1, 1, 1));
    assert!(trie.children.is_empty() && trie.list_arena.len() + trie.session_lists.len() == 0);
    assert_eq!((trie.groups.len(), trie.memberships.len()), (0, 0));
    assert!(trie.nodes.end() < 500, "slots are used again");
}

#[test]
fn a_session_is_found_once_at_its_highest_qos() {
    let mut trie = SubscriptionTrie::new(7);
    let mut found = MatchSet::default();
    let local = |qos| Subscriber { no_local: true, ..subscriber(1, qos) };
    trie.insert("a/+", "", local(0));
    trie.insert("a/#", "", local(2));
    trie.insert("a/b", "", local(1));
    trie.collect_matches("a/b", &mut found);
    assert_eq!(found.subscribers(), [local(2)]);
    assert_eq!(found.subscriptions(), 3);
    trie.insert("+/b", "", Subscriber { retain_as_published: true, ..local(0) });
    trie.insert("#", "", subscriber(1, 0));
    trie.collect_matches("a/b", &mut found);
    assert_eq!(found.subscribers(), [Subscriber { retain_as_published: true, ..subscriber(1, 2) }]);
}

#[test]
fn takes_the_deepest_filter_and_topic_there_can_be() {
    let mut trie = SubscriptionTrie::new(7);
    let mut found = MatchSet::default();
    let deep = "/".repeat(topic::MAX_TOPIC);
    let wild = vec!["+"; topic::MAX_TOPIC / 2].join("/");
    trie.insert(&deep, "", subscriber(1, 0));
    trie.insert(&wild, "", subscriber(2, 0));
    trie.insert(&format!("{}#", &deep[1..]), "", subscriber(3, 0));
    trie.collect_matches(&deep, &mut found);
    let sessions: Vec<u64> = found.subscribers().iter().map(|each| each.session.0).collect();
    assert_eq!(sessions, [1, 3]);
    trie.collect_matches(&deep[..topic::MAX_TOPIC / 2 - 1], &mut found);
    assert_eq!(found.subscribers(), [subscriber(2, 0)]);
    for session in 1..=3 {
        assert_eq!(trie.remove_session(SessionKey(session)), 1);
    }
    assert_eq!((trie.nodes.len(), trie.plain.len()), (1, 0));
}

#[test]
fn a_node_is_small() {
    assert_eq!((size_of::<Node>(), size_of::<PlainFilter>(), size_of::<Session>()), (64, 64, 24));
}

#[test]
fn a_session_in_a_group_is_found_for_itself_and_for_the_group() {
    let mut trie = SubscriptionTrie::new(7);
    let mut found = MatchSet::default();
    trie.insert("a/+", "", subscriber(1, 0));
    trie.insert("a/+", "g", subscriber(1, 2));
    trie.insert("a/#", "g", subscriber(1, 1));
    trie.insert("a/#", "g", subscriber(2, 1));
    assert!(trie.insert("a/#", "g", subscriber(2, 0)));
    trie.collect_matches("a/b", &mut found);
    assert_eq!(found.subscribers(), [subscriber(1, 0)]);
    let groups =
        in_order(found.groups().iter().map(|group| (group.name.to_string(), group.members.to_vec())));
    let of = |members: &[Subscriber]| ("g".to_owned(), members.to_vec());
    assert_eq!(groups, [of(&[subscriber(1, 1), subscriber(2, 0)]), of(&[subscriber(1, 2)])]);
    let mut ids: Vec<u64> = found.groups().iter().map(|group| group.id).collect();
    let mut expected = ["a/#", "a/+"].map(|filter| shared_id("g", filter));
    ids.sort_unstable();
    expected.sort_unstable();
    assert_eq!(ids, expected);
    assert!(!trie.remove("a/+", "h", SessionKey(1)) && trie.remove("a/+", "g", SessionKey(1)));
    assert_eq!((trie.remove_session(SessionKey(1)), trie.remove_session(SessionKey(2))), (2, 1));
    assert_eq!((trie.groups.len(), trie.shared_ids.len()), (0, 0));
}

#[test]
fn what_a_crowd_needed_is_given_back_while_some_stay() {
    given_back(|session, random| format!("f/{session}/+/{}", random_filter(random)));
    given_back(|session, random| format!("f/{session}/{}", random_topic(random)));
}

fn given_back(draw: impl Fn(u64, &mut SmallRng) -> String) {
    let mut random = SmallRng::seed_from_u64(6);
    let mut trie = SubscriptionTrie::new(7);
    let mut stay = BTreeMap::new();
    for session in 0..20_000_u64 {
        let (filter, group) = (draw(session, &mut random), GROUPS[session as usize % 5]);
        trie.insert(&filter, group, subscriber(session, (session % 3) as u8));
        if session % 10 == 0 {
            stay.insert(session, (filter, group));
        }
    }
    let slots = |trie: &SubscriptionTrie| trie.nodes.end() + trie.plain.end();
    let most = slots(&trie);
    for session in (0..20_000).filter(|session| !stay.contains_key(session)) {
        assert_eq!(trie.remove_session(SessionKey(session)), 1);
    }
    assert!(
        slots(&trie) <= (most / 4).max(FEW_SLOTS) && trie.sessions.end() <= FEW_SLOTS,
        "{} of {most}",
        slots(&trie)
    );
    assert_eq!(trie.len(), stay.len());
    let mut kept = BTreeMap::new();
    trie.each_subscription(|filter, group, each| {
        assert_eq!(u64::from(each.qos), each.session.0 % 3);
        kept.insert(each.session.0, (filter.to_owned(), group.to_owned()));
    });
    assert!(stay.iter().all(|(session, (filter, group))| kept[session] == (filter.clone(), (*group).into())));
}

/// Which of a filter's levels are `+`, a bit for each.
fn filter_of(shape: u32, levels: u32, end: &str) -> String {
    let names: Vec<&str> = (0..levels).map(|at| if shape >> at & 1 == 1 { "+" } else { "a" }).collect();
    format!("{}/{end}", names.join("/"))
}

#[test]
fn a_look_up_follows_at_most_one_filter_of_each_shape() {
    let mut random = SmallRng::seed_from_u64(1);
    let mut found = MatchSet::default();
    let mut followed = 0;
    for _ in 0..200 {
        let mut trie = SubscriptionTrie::new(7);
        let (levels, mut used) = (random.random_range(1..=8), BTreeSet::new());
        for session in 0..random.random_range(1..200) {
            let shape = random.random_range(0..1 << levels);
            used.insert(shape);
            let end = ["#", "a", "b", "c/d", "+"][random.random_range(0..4)];
            trie.insert(&filter_of(shape, levels, end), "", Subscriber::new(SessionKey(session), 0));
        }
        for end in ["a", "b", "c/d", "e/f/g"] {
            let topic = format!("{}/{end}", vec!["a"; levels as usize].join("/"));
            trie.collect_matches(&topic, &mut found);
            let most = used.len() * (topic.split('/').count() + 1);
            assert!(found.visited <= most, "{} of {most}", found.visited);
            followed += found.visited;
        }
    }
    assert!(followed > 10_000, "{followed}");
}
