//! How long a link has been silent, and what is due then: PING, or the end of the link (docs/protocol.md
//! §3.2, §3.5).

use super::{LinkConfig, Role};
use crate::Micros;

/// When something was last sent or received over a link.
#[derive(Debug)]
pub struct KeepAliveTimer {
    role: Role,
    keep_alive: Micros,
    idle_timeout: Micros,
    last_received: Micros,
    /// When a datagram was last received, or a numbered one sent, or a PING queued.
    last_active: Micros,
    is_over: bool,
}

impl KeepAliveTimer {
    pub fn new(config: &LinkConfig, now: Micros) -> Self {
        Self {
            role: config.role,
            keep_alive: config.keep_alive,
            idle_timeout: config.idle_timeout,
            last_received: now,
            last_active: now,
            is_over: false,
        }
    }

    /// As it was when `idle_state` was called.
    pub fn from_idle_state(config: &LinkConfig, (last_received, last_active): (Micros, Micros)) -> Self {
        Self { last_received, last_active, ..Self::new(config, last_received) }
    }

    /// When a datagram was last received, and when either end last sent something. `None`: the link has
    /// ended.
    pub fn idle_state(&self) -> Option<(Micros, Micros)> {
        (!self.is_over).then_some((self.last_received, self.last_active))
    }

    /// A datagram was received.
    pub fn on_received(&mut self, now: Micros) {
        self.last_received = now;
        self.last_active = now;
    }

    /// A numbered datagram was sent, or a packet for one was queued.
    pub fn on_active(&mut self, now: Micros) {
        self.last_active = now;
    }

    /// Ends the link if its time is over. Returns whether it has ended. `waiting_since`: as `Recovery`
    /// returns it.
    pub fn handle_timeout(&mut self, now: Micros, waiting_since: Option<Micros>) -> bool {
        let ends = [self.idle_deadline(), self.silence_deadline(waiting_since)];
        self.is_over |= ends.into_iter().flatten().any(|deadline| deadline <= now);
        self.is_over
    }

    /// Whether PING is due.
    pub fn is_ping_due(&self, now: Micros) -> bool {
        self.ping_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Whether the link has ended.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// When the next of these is due.
    pub fn deadline(&self, waiting_since: Option<Micros>) -> Option<Micros> {
        let deadlines = [self.ping_deadline(), self.idle_deadline(), self.silence_deadline(waiting_since)];
        deadlines.into_iter().flatten().min()
    }

    /// When the initiator sends PING (§3.5).
    fn ping_deadline(&self) -> Option<Micros> {
        (self.role == Role::Initiator).then(|| self.last_active + self.keep_alive)
    }

    /// When the acceptor ends a session because it receives nothing (§3.5).
    fn idle_deadline(&self) -> Option<Micros> {
        (self.role != Role::Initiator).then(|| self.last_received + self.idle_timeout)
    }

    /// When a link ends because nothing is acknowledged (§3.2).
    fn silence_deadline(&self, waiting_since: Option<Micros>) -> Option<Micros> {
        waiting_since.map(|since| since + self.idle_timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP_ALIVE: Micros = 5;
    const IDLE: Micros = 20;

    fn keep_alive_timer(role: Role) -> KeepAliveTimer {
        let config = LinkConfig {
            session: 1,
            incarnation: 1,
            past: None,
            first_number: 1,
            max_datagram: 1_200,
            queue_bytes: 0,
            keep_alive: KEEP_ALIVE,
            idle_timeout: IDLE,
            role,
        };
        KeepAliveTimer::new(&config, 100)
    }

    #[test]
    fn an_initiator_sends_ping_and_ends_only_when_nothing_is_acknowledged() {
        let mut keep_alive_timer = keep_alive_timer(Role::Initiator);
        assert!(!keep_alive_timer.is_ping_due(104) && keep_alive_timer.is_ping_due(105));
        keep_alive_timer.on_active(103);
        assert!(!keep_alive_timer.is_ping_due(107) && keep_alive_timer.is_ping_due(108));
        assert!(!keep_alive_timer.handle_timeout(1_000, None));
        assert_eq!(keep_alive_timer.deadline(Some(80)), Some(80 + IDLE));
        assert!(
            !keep_alive_timer.handle_timeout(80 + IDLE - 1, Some(80))
                && keep_alive_timer.handle_timeout(80 + IDLE, Some(80))
        );
        assert!(keep_alive_timer.is_over());
    }

    #[test]
    fn an_acceptor_ends_when_it_hears_nothing_whatever_it_sends() {
        for role in [Role::Acceptor, Role::Adopter] {
            let mut keep_alive_timer = keep_alive_timer(role);
            keep_alive_timer.on_received(110);
            keep_alive_timer.on_active(125);
            assert!(!keep_alive_timer.is_ping_due(1_000));
            assert_eq!(keep_alive_timer.deadline(None), Some(110 + IDLE));
            assert!(
                !keep_alive_timer.handle_timeout(110 + IDLE - 1, None)
                    && keep_alive_timer.handle_timeout(110 + IDLE, None)
            );
            keep_alive_timer.on_received(131);
            assert!(keep_alive_timer.handle_timeout(132, None), "what ended stays so");
        }
    }
}
