//! Defects that a test build can have, which prove that the soak test finds them.
//!
//! They exist only with the feature `broken`, which no release has. Then `HBROKER_BROKEN` names the defect of
//! the process. Without the feature `Defect::is_present` is false at compile time, and nothing of the defects
//! is in the build.

/// A safeguard that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// An owner acknowledges a message before its subscribers have (§7.3).
    AcknowledgesEarly,
    /// A repeated message is not recognised (§7.4).
    ForgetsMessageIds,
    /// Lost datagrams are not retransmitted (§3.2).
    SendsOnce,
    /// A delivery does not wait for the one before it (§3.3).
    KeepsNoOrder,
    /// A client does not learn from NOT_RESPONSIBLE (§5.3).
    LearnsNothing,
    /// A link continues with any incarnation of its peer (§3.6).
    IgnoresIncarnation,
    /// A message in fragments is complete when its last fragment has arrived (§7.5).
    EndsWithLastPart,
    /// The acknowledgements of a subscriber after a stall are not counted (§7.8).
    ForgetsLateAnswers,
    /// Messages that expired in a queue are sent (§7.8).
    SendsTheDead,
    /// A full queue drops its oldest message, and acknowledges the rest (§7.8).
    DropsWhatWaits,
    /// An owner waits for a subscriber as long as it acknowledges anything (§7.3).
    TakesAnyAnswer,
    /// An owner accepts messages with any publisher id (§7.9).
    TakesAnyPublisher,
    /// A client does not answer the link that a node's next run opens, and a node hands a session over on a
    /// link that was never answered (§3.6, §5.4).
    IgnoresNextRun,
    /// An owner acknowledges a message before its store has it (§7.3).
    AcknowledgesUnstored,
    /// A store takes what it has written for stored.
    SyncsNothing,
    /// A store goes on after a sync that failed, as if it had succeeded.
    IgnoresSyncErrors,
    /// A store passes over damaged records, and reports none.
    HidesDamage,
}

impl Defect {
    /// Whether this process has it.
    #[cfg(not(feature = "broken"))]
    #[inline(always)]
    pub const fn is_present(self) -> bool {
        false
    }

    /// Whether this process has it.
    #[cfg(feature = "broken")]
    pub fn is_present(self) -> bool {
        use std::sync::LazyLock;

        static PRESENT: LazyLock<Option<Defect>> = LazyLock::new(|| {
            let name = std::env::var("HBROKER_BROKEN").ok()?;
            Defect::ALL.into_iter().find(|defect| format!("{defect:?}") == name)
        });
        *PRESENT == Some(self)
    }

    #[cfg(feature = "broken")]
    const ALL: [Self; 17] = [
        Self::AcknowledgesEarly,
        Self::ForgetsMessageIds,
        Self::SendsOnce,
        Self::KeepsNoOrder,
        Self::LearnsNothing,
        Self::IgnoresIncarnation,
        Self::EndsWithLastPart,
        Self::ForgetsLateAnswers,
        Self::SendsTheDead,
        Self::DropsWhatWaits,
        Self::TakesAnyAnswer,
        Self::TakesAnyPublisher,
        Self::IgnoresNextRun,
        Self::AcknowledgesUnstored,
        Self::SyncsNothing,
        Self::IgnoresSyncErrors,
        Self::HidesDamage,
    ];
}
