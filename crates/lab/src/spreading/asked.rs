//! What clients ask for, and how many units that makes of the table so far: its *step*.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use farlock_locks::Mode;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Units that are asked for at first and at last, as powers of two, and by how many times more each
/// time.
const SPACES: [u32; 2] = [10, 28];
const SPACE_STEP: u32 = 2;
/// How many steps that makes.
pub(super) const STEPS: usize = ((SPACES[1] - SPACES[0]) / SPACE_STEP) as usize + 1;
/// How long a range is.
const LENGTHS: [u32; 3] = [1, 16, 256];
/// Of the ranges one in so many begins where many do.
const CROWDED_ONE_IN: u32 = 4;
/// Where they begin, in parts of the space.
const CROWDS: u32 = 3;

/// How many units are asked for at this step.
pub(super) const fn units(step: usize) -> u32 {
    1 << (SPACES[0] + SPACE_STEP * step as u32)
}

/// What a client asks for next, and at which step.
pub(super) type Asked = (usize, Mode, Range<u32>);

/// Which step it is, as long as all take one at the same time.
#[derive(Debug, Default)]
pub(super) struct Phase(AtomicUsize);

impl Phase {
    pub(super) fn is_next(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn step(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&step| step < STEPS)
    }
}

/// Ranges anywhere in a space.
pub(super) struct Drawn<P> {
    phase: P,
    chance: Xoshiro256PlusPlus,
}

impl<P: AsRef<Phase>> Drawn<P> {
    /// Those of the client with this number.
    pub(super) fn new(phase: P, seed: u64, number: usize) -> Self {
        let chance = Xoshiro256PlusPlus::seed_from_u64(seed ^ (number as u64) << 32);
        Self { phase, chance }
    }

    fn draw(&mut self, units: u32) -> (Mode, Range<u32>) {
        let length = LENGTHS[self.chance.random_range(0..LENGTHS.len())];
        let last = units - length;
        let start = match self.chance.random_range(0..CROWDED_ONE_IN) {
            0 => (units / CROWDS * self.chance.random_range(0..CROWDS)).min(last),
            _ => self.chance.random_range(0..=last),
        };
        let mode = if self.chance.random() { Mode::Shared } else { Mode::Exclusive };
        (mode, start..start + length)
    }
}

impl<P: AsRef<Phase>> Iterator for Drawn<P> {
    type Item = Asked;

    fn next(&mut self) -> Option<Asked> {
        let step = self.phase.as_ref().step()?;
        let (mode, range) = self.draw(units(step));
        Some((step, mode, range))
    }
}

/// The writes of one of several writers of a file, as IO500's `ior-hard-write` has them: all
/// writers in turn, each behind the one before, most not at the start of a page.
#[derive(Clone, Debug)]
pub(super) struct Written {
    next: u64,
    writers: u64,
    end: u64,
}

impl Written {
    /// How many the paper's trace has.
    pub(super) const WRITES: u64 = 12_800_000;
    /// How long each is, and how long a unit, in bytes.
    const BYTES: u64 = 47_008;
    const UNIT_BYTES: u64 = 4096;
    /// How many there is room for in all units.
    pub(super) const WRITES_MAX: u64 = ((1 << SPACES[1]) * Self::UNIT_BYTES) / Self::BYTES;

    /// Those of the writer with this number, of so many that all write together.
    pub(super) const fn new(number: usize, writers: u16, writes: u64) -> Self {
        Self { next: number as u64, writers: writers as u64, end: writes }
    }

    /// The step of this unit: the first that has it.
    fn step_of(unit: u32) -> usize {
        (0..STEPS).find(|&step| unit < units(step)).expect("a write lies in the table")
    }
}

impl Iterator for Written {
    type Item = Asked;

    fn next(&mut self) -> Option<Asked> {
        let begins = Some(self.next).filter(|&next| next < self.end)? * Self::BYTES;
        self.next += self.writers;
        let first = (begins / Self::UNIT_BYTES) as u32;
        let end = (begins + Self::BYTES).div_ceil(Self::UNIT_BYTES) as u32;
        Some((Self::step_of(end - 1), Mode::Exclusive, first..end))
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn writers_take_turns_and_neighbours_meet() {
        let [first, second] = [0, 1].map(|number| Written::new(number, 2, 5).collect::<Vec<_>>());
        let ranges = |asked: &[Asked]| asked.iter().map(|(.., units)| units.clone()).collect();
        let (first, second): (Vec<_>, Vec<_>) = (ranges(&first), ranges(&second));
        assert_eq!(first, [0..12, 22..35, 45..58]);
        assert_eq!(second, [11..23, 34..46]);
    }

    #[test]
    fn the_papers_trace_lies_in_all_units_and_ends_in_the_last_step() {
        const { assert!(Written::WRITES < Written::WRITES_MAX) };
        assert_eq!((units(0), units(STEPS - 1)), (1 << 10, 1 << 28));
        assert_eq!([0, 1023, 1024, (1 << 28) - 1].map(Written::step_of), [0, 0, 1, STEPS - 1]);
    }

    #[test]
    fn ranges_lie_in_the_space_of_their_phase() {
        let phase = Rc::new(Phase::default());
        let mut drawn = Drawn::new(Rc::clone(&phase), 1, 0);
        for step in 0..STEPS {
            for (at, _, range) in drawn.by_ref().take(100) {
                assert!(at == step && range.end <= units(step), "{range:?}");
            }
            phase.is_next();
        }
        assert_eq!(drawn.next(), None);
    }
}
