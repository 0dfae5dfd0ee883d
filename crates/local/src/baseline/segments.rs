//! pNOVA's range lock: positions in equal segments, a reader-writer lock each.
//!
//! Kim et al. (APSys'19), as described by Kogan, Dice, Issa, section 2. A range takes the locks of
//! all segments it touches, lowest first, so that no threads wait in a circle. The number and the
//! size of the segments must suit the use: a full range takes every lock, and two ranges that share
//! a segment exclude each other whether they overlap or not.

use super::gate::Gate;
use crate::{Range, RawRangeLock, RawRangeRwLock};

/// Segments by default, as the paper measured.
pub const SEGMENTS: usize = 256;

/// The right to a range of [`Segments`].
#[derive(Debug)]
pub struct SegmentsToken {
    first: usize,
    last: usize,
    shared: bool,
}

/// A reader-writer lock for each segment of the positions.
pub struct Segments {
    gates: Box<[Gate]>,
    /// Positions in a segment.
    span: u64,
}

impl Default for Segments {
    /// [`SEGMENTS`] segments of one position each; the last takes in all that follow.
    fn default() -> Self {
        Self::new(SEGMENTS, 1)
    }
}

impl Segments {
    /// So many segments of so many positions. All positions beyond belong to the last segment.
    ///
    /// # Panics
    ///
    /// If either is zero.
    pub fn new(segments: usize, span: u64) -> Self {
        assert!(segments > 0 && span > 0, "a segment holds positions, and there is one at least");
        Self { gates: (0..segments).map(|_| Gate::default()).collect(), span }
    }

    fn segment(&self, position: u64) -> usize {
        let segment = usize::try_from(position / self.span).unwrap_or(usize::MAX);
        segment.min(self.gates.len() - 1)
    }

    fn token(&self, range: Range, shared: bool) -> SegmentsToken {
        let (first, last) = (self.segment(range.start()), self.segment(range.last()));
        SegmentsToken { first, last, shared }
    }

    fn take(&self, range: Range, shared: bool) -> SegmentsToken {
        let token = self.token(range, shared);
        self.gates[token.first..=token.last].iter().for_each(|gate| gate.lock(shared));
        token
    }

    fn try_take(&self, range: Range, shared: bool) -> Option<SegmentsToken> {
        let token = self.token(range, shared);
        let gates = &self.gates[token.first..=token.last];
        let taken = gates.iter().take_while(|gate| gate.try_lock(shared)).count();
        if taken == gates.len() {
            return Some(token);
        }
        gates[..taken].iter().for_each(|gate| gate.unlock(shared));
        None
    }
}

impl RawRangeLock for Segments {
    type Token = SegmentsToken;
    const NAME: &'static str = "segments";

    fn lock(&self, range: Range) -> SegmentsToken {
        self.take(range, false)
    }

    fn try_lock(&self, range: Range) -> Option<SegmentsToken> {
        self.try_take(range, false)
    }

    fn unlock(&self, token: SegmentsToken) {
        self.gates[token.first..=token.last].iter().for_each(|gate| gate.unlock(token.shared));
    }
}

impl RawRangeRwLock for Segments {
    fn lock_shared(&self, range: Range) -> SegmentsToken {
        self.take(range, true)
    }

    fn try_lock_shared(&self, range: Range) -> Option<SegmentsToken> {
        self.try_take(range, true)
    }
}

/// One reader-writer lock for all positions, whatever range is asked for.
#[derive(Default)]
pub struct Single(Gate);

impl RawRangeLock for Single {
    type Token = bool;
    const NAME: &'static str = "single";

    fn lock(&self, _: Range) -> bool {
        self.0.lock(false);
        false
    }

    fn try_lock(&self, _: Range) -> Option<bool> {
        self.0.try_lock(false).then_some(false)
    }

    fn unlock(&self, shared: bool) {
        self.0.unlock(shared);
    }
}

impl RawRangeRwLock for Single {
    fn lock_shared(&self, _: Range) -> bool {
        self.0.lock(true);
        true
    }

    fn try_lock_shared(&self, _: Range) -> Option<bool> {
        self.0.try_lock(true).then_some(true)
    }
}
