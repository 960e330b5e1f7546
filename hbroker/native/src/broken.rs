//! Defects that a test build can be given, to prove that the soak test finds them.
//!
//! They exist under the feature `broken` alone, which no release has; there `HBROKER_BROKEN` names the one that a process
//! has. Without the feature `Defect::is_present` is false when it is compiled, and nothing of it is left.

/// A safeguard taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// An owner acknowledges a message before its subscribers have (§7.3).
    AcknowledgesEarly,
    /// Nobody recognises a message that comes again (§7.4).
    ForgetsMessageIds,
    /// What is lost is not sent again (§3.2).
    SendsOnce,
    /// No delivery waits for the one before it (§3.3).
    KeepsNoOrder,
    /// A client does not learn from NOT_RESPONSIBLE (§5.3).
    LearnsNothing,
    /// A link goes on with whatever incarnation its peer has (§3.6).
    IgnoresIncarnation,
    /// A message in parts is whole when its last one has come (§7.5).
    EndsWithLastPart,
    /// What a subscriber answers after it stalled is not counted (§7.8).
    ForgetsLateAnswers,
    /// What expired while it waited is sent all the same (§7.8).
    SendsTheDead,
    /// A queue that is full drops its oldest, and acknowledges the rest (§7.8).
    DropsWhatWaits,
    /// A subscriber is waited for as long as it answers anything (§7.3).
    TakesAnyAnswer,
    /// An owner takes messages under whatever publisher id they come (§7.9).
    TakesAnyPublisher,
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
    const ALL: [Self; 12] = [
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
    ];
}
