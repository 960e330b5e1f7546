//! The clients that make the load. Each has a Zenoh session of its own, and so a socket of its own.
//!
//! Zenoh does not report to a subscriber when the router has its subscription. So before the measurement,
//! empty messages are published to each topic until all its subscribers have received one.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::{Session, Wait};

use crate::Result;
use crate::settings::Settings;
use crate::shared::{Batch, Shared};

const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// Which client publishes to which: the topic of each publisher, and for each subscriber its topic and the
/// publishers of that topic.
pub struct Shape {
    pub publishers: Vec<usize>,
    pub subscribers: Vec<(usize, Range<usize>)>,
}

impl Shape {
    /// The layout of that name in `hbroker bench`: `pairs`, `fanin` or `fanout`.
    ///
    /// # Errors
    /// There is no layout of that name.
    pub fn of(layout: &str, clients: usize) -> Result<Self> {
        match layout {
            "pairs" => Ok(Self {
                publishers: (0..clients).collect(),
                subscribers: (0..clients).map(|pair| (pair, pair..pair + 1)).collect(),
            }),
            "fanin" => Ok(Self { publishers: vec![0; clients], subscribers: vec![(0, 0..clients)] }),
            "fanout" => Ok(Self { publishers: vec![0], subscribers: vec![(0, 0..1); clients] }),
            _ => Err(format!("there is no layout {layout:?}").into()),
        }
    }
}

/// Connected clients, between which messages already pass.
pub struct Clients {
    publishers: Vec<Publisher<'static>>,
    _subscribers: Vec<Subscriber<()>>,
    _sessions: Vec<Session>,
}

impl Clients {
    /// Connects all clients, and waits until every subscriber receives.
    ///
    /// `is_urgent`: messages are sent at once, and not collected into batches (Zenoh's `express`).
    ///
    /// # Errors
    /// The router refused a session, or a subscriber received nothing within 20 s.
    pub fn connect(
        settings: &Settings,
        shape: &Shape,
        is_urgent: bool,
        shared: &Arc<Shared>,
    ) -> Result<Self> {
        let mut sessions = Vec::new();
        let mut subscribers = Vec::new();
        let mut seen = Vec::new();
        for (number, (topic, heard)) in shape.subscribers.iter().enumerate() {
            let session = zenoh::open(settings.client()?).wait()?;
            let is_there = Arc::new(AtomicBool::new(false));
            subscribers.push(subscriber(&session, *topic, (number, heard.clone()), &is_there, shared)?);
            seen.push(is_there);
            sessions.push(session);
        }
        let mut publishers = Vec::new();
        for topic in &shape.publishers {
            let session = zenoh::open(settings.client()?).wait()?;
            let declared =
                session.declare_publisher(name_of(*topic)).congestion_control(CongestionControl::Block);
            publishers.push(declared.express(is_urgent).wait()?);
            sessions.push(session);
        }
        introduce(&publishers, &seen)?;
        Ok(Self { publishers, _subscribers: subscribers, _sessions: sessions })
    }

    /// Publishes what the window and the rate allow, until the measurement ends.
    ///
    /// # Errors
    /// A connection has ended.
    pub fn publish(&self, shared: &Shared) -> Result<()> {
        let mut batch = Batch::new();
        while shared.next_batch(&mut batch) {
            for (stream, payload) in batch.drain(..) {
                self.publishers[stream].put(payload).wait()?;
            }
        }
        Ok(())
    }
}

fn subscriber(
    session: &Session,
    topic: usize,
    (number, heard): (usize, Range<usize>),
    is_there: &Arc<AtomicBool>,
    shared: &Arc<Shared>,
) -> Result<Subscriber<()>> {
    let (is_there, shared) = (is_there.clone(), shared.clone());
    let declared = session.declare_subscriber(name_of(topic)).callback(move |sample| {
        let payload = sample.payload().to_bytes();
        if payload.is_empty() {
            is_there.store(true, Ordering::Relaxed);
        } else {
            shared.receive(number, heard.clone(), &payload);
        }
    });
    declared.wait()
}

/// Returns when every subscriber has received a message, and every publisher knows of a matching subscriber.
fn introduce(publishers: &[Publisher<'_>], seen: &[Arc<AtomicBool>]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut are_heard = true;
        for publisher in publishers {
            publisher.put(Vec::new()).wait()?;
            are_heard &= publisher.matching_status().wait()?.matching();
        }
        thread::sleep(PAUSE);
        if are_heard && seen.iter().all(|is_there| is_there.load(Ordering::Relaxed)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err("not every subscriber is heard by the router".into());
        }
    }
}

/// A key expression as long as the topics of `hbroker bench`.
fn name_of(topic: usize) -> String {
    format!("bench/{:08x}/{topic:09}", std::process::id())
}
