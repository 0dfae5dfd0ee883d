//! Why ranges that are held are not divided, and not merged.

use thiserror::Error;

use crate::error::{AcquireError, LostReason};
use crate::text::shown;

/// What keeps a held range from being divided.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum DivideReason {
    /// There is no part on one of its sides, or a unit lies on both.
    #[error("{position} is not between two units of it, which have {unit} positions each")]
    NotBetween {
        /// Where it was to be divided.
        position: u64,
        /// How many positions a unit has.
        unit: u64,
    },
    /// What was to be let go of has no first position before its end.
    #[error("{start}..{end} ends before it begins")]
    Backwards {
        /// Its first position.
        start: u64,
        /// The one behind its last.
        end: u64,
    },
    /// A process that was just about to ask for some of it has not gone on: it is stopped.
    #[error("a process that was about to ask for some of it is stopped")]
    InTheWay,
    /// There is no place left by which to hold one part more.
    #[error("there is no place by which to hold a part of it")]
    NoPlace(#[source] Box<AcquireError>),
    /// It is lost.
    #[error("it is not held any more")]
    Lost(#[source] LostReason),
}

impl DivideReason {
    /// A stable name of what happened.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotBetween { .. } => "not-between",
            Self::Backwards { .. } => "backwards",
            Self::InTheWay => "in-the-way",
            Self::NoPlace(_) => "no-place",
            Self::Lost(_) => "lost",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NotBetween { unit, .. } => format!("name a multiple of {unit} within the range"),
            Self::Backwards { .. } => "its end is the position behind its last one".to_owned(),
            Self::InTheWay => "try again later, or have that process go on".to_owned(),
            Self::NoPlace(_) => "release another range first".to_owned(),
            Self::Lost(_) => "open a new session".to_owned(),
        }
    }
}

/// What keeps two held ranges from being merged.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum MergeReason {
    /// Two sessions are lost at different times.
    #[error("they are held by two sessions")]
    OtherSession,
    /// Tables have nothing to do with each other.
    #[error("the other is of the table '{}'", shown(.other))]
    OtherTable {
        /// Its name.
        other: String,
    },
    /// One is shared, and the other exclusive.
    #[error("one is shared and the other exclusive")]
    OtherMode,
    /// There are units between them.
    #[error("{start}..{end} lies between them")]
    Apart {
        /// The first position between them.
        start: u64,
        /// The first one behind these.
        end: u64,
    },
    /// Both are shared and have some positions, which neither let go of.
    #[error("what both have could not be let go of by one of them")]
    Overlap(#[source] DivideReason),
}

impl MergeReason {
    /// A stable name of what happened.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::OtherSession => "other-session",
            Self::OtherTable { .. } => "other-table",
            Self::OtherMode => "other-mode",
            Self::Apart { .. } => "apart",
            Self::Overlap(reason) => reason.code(),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        let hint = match self {
            Self::OtherSession => "acquire both by the same session",
            Self::OtherTable { .. } => "keep two guards: ranges of one table alone are one",
            Self::OtherMode => "turn one of them first, by `downgrade` or `try_upgrade`",
            Self::Apart { start, end } => {
                return format!("acquire {start}..{end} too, and merge it with one of them");
            }
            Self::Overlap(reason) => return reason.hint(),
        };
        hint.to_owned()
    }
}
