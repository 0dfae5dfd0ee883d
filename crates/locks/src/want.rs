//! What is wanted of a lock: a mode, of all of it or of a part.

use std::fmt;
use std::ops::Range;

/// How a lock is held.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Mode {
    /// Together with other shared holders.
    Shared = 0,
    /// Alone.
    Exclusive = 1,
}

/// What a client can want of a kind of lock. Of locks that are had as a whole that is a [`Mode`];
/// of any lock a mode means all of it.
pub trait Want: From<Mode> + Copy + Eq + fmt::Debug + Unpin + 'static {
    /// What a slot wants that was never used.
    const NONE: Self;

    /// How it is wanted.
    fn mode(self) -> Mode;

    /// The same in another mode.
    #[must_use]
    fn in_mode(self, mode: Mode) -> Self;

    /// These of the lock's units; `None` where a lock is had as a whole alone.
    fn part(mode: Mode, units: Range<u32>) -> Option<Self>;

    /// The units that are wanted, of a lock that has so many.
    fn units(self, count: u32) -> Range<u32>;

    /// The same without any that are not wanted, where the lock would take more to take it quicker:
    /// as a client should want it that holds other units. It costs more verbs.
    #[must_use]
    fn refined(self) -> Self {
        self
    }

    /// The same for a client that holds units before these already, of which the last range ends at
    /// `held_to`, and the last exclusive one at `written_to`; 0 for none. It waits for nobody who
    /// waits for those: neither would ever go on.
    ///
    /// They must have been taken with no others beside them ([`Want::refined`]), and the client
    /// must not let go of them before it was granted these.
    #[must_use]
    fn behind(self, _held_to: u32, _written_to: u32) -> Self {
        self
    }
}

impl Want for Mode {
    const NONE: Self = Self::Shared;

    #[inline(always)]
    fn mode(self) -> Self {
        self
    }

    #[inline(always)]
    fn in_mode(self, mode: Mode) -> Self {
        mode
    }

    fn part(_: Mode, _: Range<u32>) -> Option<Self> {
        None
    }

    fn units(self, count: u32) -> Range<u32> {
        0..count
    }
}

/// Some units of a lock, one after the other, in a mode.
///
/// ```
/// use farlock_locks::{Extent, Mode, Want};
///
/// let rows = Extent::new(Mode::Shared, 3..5);
/// assert_eq!((rows.mode(), rows.units(64)), (Mode::Shared, 3..5));
/// assert_eq!(Extent::from(Mode::Exclusive).units(64), 0..64);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Extent {
    mode: Mode,
    first: u32,
    end: u32,
    is_refined: bool,
    held_to: u32,
    written_to: u32,
    blocks: BlockNumbers,
}

/// In which of its memory's blocks a lock has the subtrees in which an extent begins and ends,
/// where these are not the first one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockNumbers {
    /// The subtrees; 0 for none.
    subtrees: [u16; 2],
    numbers: [u16; 2],
}

impl BlockNumbers {
    /// Of an extent that needs none.
    pub const NONE: Self = Self { subtrees: [0; 2], numbers: [0; 2] };

    /// These subtrees, where an extent has something of them at its two ends, have these blocks.
    pub fn of_ends(subtrees: [Option<u32>; 2], numbers: [u16; 2]) -> Self {
        Self { subtrees: subtrees.map(|subtree| subtree.unwrap_or(0) as u16), numbers }
    }

    /// The blocks at its two ends.
    pub(crate) const fn numbers(self) -> [u16; 2] {
        self.numbers
    }

    /// The block of this subtree.
    pub(crate) fn of(self, subtree: u32) -> Option<u16> {
        let ends = self.subtrees.into_iter().zip(self.numbers);
        ends.filter(|&(own, _)| u32::from(own) == subtree).map(|(_, number)| number).next()
    }
}

impl Extent {
    /// These units.
    ///
    /// # Panics
    /// If they are none.
    pub fn new(mode: Mode, units: Range<u32>) -> Self {
        assert!(!units.is_empty(), "an extent has units");
        let (first, end) = (units.start, units.end);
        Self { mode, first, end, ..Self::NONE }
    }

    /// The same of a lock whose subtrees lie apart, in these blocks.
    #[must_use]
    pub fn lying_in(self, blocks: BlockNumbers) -> Self {
        Self { blocks, ..self }
    }

    /// In which blocks it lies.
    pub const fn blocks(self) -> BlockNumbers {
        self.blocks
    }

    /// Where units end that its client holds before these, and those that it holds exclusively.
    pub const fn held_before(self) -> [u32; 2] {
        [self.held_to, self.written_to]
    }

    /// Whether no other units are to be taken with them.
    pub const fn is_refined(self) -> bool {
        self.is_refined
    }
}

impl From<Mode> for Extent {
    fn from(mode: Mode) -> Self {
        Self::new(mode, 0..u32::MAX)
    }
}

impl Want for Extent {
    const NONE: Self = Self {
        mode: Mode::Shared,
        first: 0,
        end: 0,
        is_refined: false,
        held_to: 0,
        written_to: 0,
        blocks: BlockNumbers::NONE,
    };

    #[inline]
    fn mode(self) -> Mode {
        self.mode
    }

    #[inline]
    fn in_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    fn part(mode: Mode, units: Range<u32>) -> Option<Self> {
        Some(Self::new(mode, units))
    }

    fn units(self, count: u32) -> Range<u32> {
        self.first.min(count)..self.end.min(count)
    }

    fn refined(self) -> Self {
        Self { is_refined: true, ..self }
    }

    fn behind(self, held_to: u32, written_to: u32) -> Self {
        assert!(held_to <= self.first && written_to <= held_to, "what is held lies before");
        Self { held_to, written_to, ..self }
    }
}
