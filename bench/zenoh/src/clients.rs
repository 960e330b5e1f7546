//! The load's clients: a session, and so a socket, for each.
//!
//! Zenoh does not tell a subscriber when the router has its subscription. So before anything counts each topic gets empty messages until
//! all its subscribers have had one.

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

/// Who publishes to whom: of each publisher the topic; of each subscriber the topic, and the publishers that it hears.
pub struct Shape {
    pub publishers: Vec<usize>,
    pub subscribers: Vec<(usize, Range<usize>)>,
}

impl Shape {
    /// As `hbroker bench` calls them.
    ///
    /// # Errors
    /// There is no such layout.
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

/// Clients that are connected, and know of each other.
pub struct Clients {
    publishers: Vec<Publisher<'static>>,
    _subscribers: Vec<Subscriber<()>>,
    _sessions: Vec<Session>,
}

impl Clients {
    /// `is_urgent`: no message waits for others to leave with it.
    ///
    /// # Errors
    /// One was not let in, or did not get its subscription in time.
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

    /// Publishes whatever may be sent, until it is over.
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

/// Returns once every subscriber has heard a publisher, and every publisher knows that somebody hears it.
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

/// As long as those of `hbroker bench`.
fn name_of(topic: usize) -> String {
    format!("bench/{:08x}/{topic:09}", std::process::id())
}
