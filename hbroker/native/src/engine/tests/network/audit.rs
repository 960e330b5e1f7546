//! Holds what nodes count by topic against their counters, all along: whatever a test does, intervals end in the midst of it.

use std::collections::BTreeMap;

use super::Network;
use crate::load::Load;
use crate::load::topics::{Columns, Traffic};

/// What was taken of each engine, by host and worker.
#[derive(Default)]
pub struct Audits(BTreeMap<(usize, usize), Audit>);

struct Audit {
    spare: Box<Load>,
    total: Traffic,
    topics: BTreeMap<String, Traffic>,
    timed: u64,
}

impl Audits {
    /// A host counts from zero again.
    pub fn forget(&mut self, host: usize) {
        self.0.retain(|(known, _), _| *known != host);
    }
}

impl Network {
    /// Ends the interval of every engine. The sums over all of them are what it counted, and no ticket came back that was not out.
    pub fn audit(&mut self) {
        for (index, host) in self.hosts.iter_mut().enumerate() {
            for (worker, engine) in host.engines.iter_mut().enumerate() {
                let audit = self.audits.0.entry((index, worker)).or_insert_with(Audit::new);
                audit.spare.topics.clear();
                let counters = engine.exchange_load(&mut audit.spare, 1);
                counters.each(|name, count| assert_ne!(name, "drop.unknown_ticket", "{count}"));
                if engine.out.load.is_none() {
                    continue;
                }
                audit.add();
                let Traffic { messages_in, messages_out, .. } = audit.total;
                assert_eq!(
                    (messages_in, messages_out),
                    (counters.messages_in, counters.messages_out),
                    "host {index}, worker {worker}"
                );
            }
        }
    }

    /// What a host counted of a topic so far, and how many messages it timed.
    pub fn counted(&mut self, host: usize, topic: &str) -> (Traffic, u64) {
        self.audit();
        let (mut sum, mut timed) = (Traffic::default(), 0);
        for (_, audit) in self.audits.0.range((host, 0)..(host + 1, 0)) {
            audit.topics.get(topic).into_iter().for_each(|traffic| sum.add(traffic));
            timed += audit.timed;
        }
        (sum, timed)
    }
}

impl Audit {
    fn new() -> Self {
        Self { spare: Box::new(Load::new()), total: Traffic::default(), topics: BTreeMap::new(), timed: 0 }
    }

    fn add(&mut self) {
        self.total.add(&self.spare.topics.total());
        self.timed += self.spare.latency.counts().iter().sum::<u64>();
        let Columns { names, offsets, numbers, rest } = self.spare.topics.columns();
        assert_eq!(rest, Traffic::default(), "no test has so many topics");
        for (row, bounds) in offsets.windows(2).enumerate() {
            let name = &names[bounds[0] as usize..bounds[1] as usize];
            let [messages_in, bytes_in, messages_out, bytes_out, whole_in, whole_out] =
                numbers.each_ref().map(|column| column[row]);
            let traffic = Traffic { messages_in, bytes_in, messages_out, bytes_out, whole_in, whole_out };
            self.topics.entry(name.to_owned()).or_default().add(&traffic);
        }
    }
}
