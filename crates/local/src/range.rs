//! Half-open ranges of 64-bit positions.
//!
//! Inside, both ends are inclusive: so the full range, all 2^64 positions, is an ordinary value,
//! and an empty one cannot be built.

use std::fmt;
use std::ops;

/// A non-empty range of positions: bytes of a file, slots of an array, pages of an address space.
///
/// ```
/// use farlock_local::{Range, RangeError};
///
/// let header = Range::new(0, 4096)?;
/// assert!(header.contains(4095) && !header.contains(4096));
/// assert!(header.overlaps(Range::FULL));
/// assert_eq!(Range::new(7, 7), Err(RangeError::Empty { at: 7 }));
/// # Ok::<(), RangeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Range {
    start: u64,
    last: u64,
}

/// Why two numbers are no range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RangeError {
    /// Start and end are the same position.
    #[error("the range at {at} is empty")]
    Empty {
        /// Both ends.
        at: u64,
    },
    /// The end lies before the start.
    #[error("the range starts at {start} but ends before, at {end}")]
    Inverted {
        /// The first position asked for.
        start: u64,
        /// The position after the last.
        end: u64,
    },
}

impl Range {
    /// Every position there is, the last (2^64 - 1) included.
    pub const FULL: Self = Self { start: 0, last: u64::MAX };

    /// The positions from `start` up to, without, `end`.
    ///
    /// # Errors
    ///
    /// [`RangeError::Empty`] if they are equal, [`RangeError::Inverted`] if `end` is smaller.
    pub const fn new(start: u64, end: u64) -> Result<Self, RangeError> {
        if start == end {
            return Err(RangeError::Empty { at: start });
        }
        if start > end {
            return Err(RangeError::Inverted { start, end });
        }
        Ok(Self { start, last: end - 1 })
    }

    /// The one position `at`.
    #[must_use]
    pub const fn one(at: u64) -> Self {
        Self { start: at, last: at }
    }

    /// The positions from `start` to the last there is.
    #[must_use]
    pub const fn from_start(start: u64) -> Self {
        Self { start, last: u64::MAX }
    }

    /// The positions from `start` up to and with `last`.
    ///
    /// # Errors
    ///
    /// [`RangeError::Inverted`] if `last` is smaller than `start`.
    pub const fn inclusive(start: u64, last: u64) -> Result<Self, RangeError> {
        if start > last {
            return Err(RangeError::Inverted { start, end: last });
        }
        Ok(Self { start, last })
    }

    /// The first position.
    #[must_use]
    pub const fn start(self) -> u64 {
        self.start
    }

    /// The last position, inside the range.
    #[must_use]
    pub const fn last(self) -> u64 {
        self.last
    }

    /// The position after the last; none if the range reaches the end of all positions.
    #[must_use]
    pub const fn end(self) -> Option<u64> {
        self.last.checked_add(1)
    }

    /// Whether `at` lies inside.
    #[must_use]
    pub const fn contains(self, at: u64) -> bool {
        self.start <= at && at <= self.last
    }

    /// Whether some position lies in both.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    /// Whether all positions of `other` lie inside.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.start <= other.start && other.last <= self.last
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end() {
            Some(end) => write!(f, "[{}, {end})", self.start),
            None => write!(f, "[{}, 2^64)", self.start),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl TryFrom<ops::Range<u64>> for Range {
    type Error = RangeError;

    fn try_from(range: ops::Range<u64>) -> Result<Self, RangeError> {
        Self::new(range.start, range.end)
    }
}

impl TryFrom<ops::RangeInclusive<u64>> for Range {
    type Error = RangeError;

    fn try_from(range: ops::RangeInclusive<u64>) -> Result<Self, RangeError> {
        Self::inclusive(*range.start(), *range.end())
    }
}

impl From<ops::RangeFrom<u64>> for Range {
    fn from(range: ops::RangeFrom<u64>) -> Self {
        Self::from_start(range.start)
    }
}

impl From<ops::RangeFull> for Range {
    fn from(_: ops::RangeFull) -> Self {
        Self::FULL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_and_inverted_ranges_are_errors() {
        assert_eq!(Range::new(3, 3), Err(RangeError::Empty { at: 3 }));
        assert_eq!(Range::new(4, 3), Err(RangeError::Inverted { start: 4, end: 3 }));
        assert_eq!(Range::try_from(0..0), Err(RangeError::Empty { at: 0 }));
    }

    #[test]
    fn the_full_range_holds_the_last_position() {
        assert!(Range::FULL.contains(u64::MAX) && Range::FULL.contains(0));
        assert_eq!(Range::FULL.end(), None);
        assert_eq!(Range::from(..), Range::try_from(0..=u64::MAX).unwrap());
        assert!(!Range::new(0, u64::MAX).unwrap().contains(u64::MAX));
    }

    #[test]
    fn neighbours_do_not_overlap() {
        let (left, right) = (Range::new(0, 5).unwrap(), Range::new(5, 9).unwrap());
        assert!(!left.overlaps(right) && !right.overlaps(left));
        assert!(left.overlaps(Range::one(4)) && right.overlaps(Range::one(5)));
    }
}
