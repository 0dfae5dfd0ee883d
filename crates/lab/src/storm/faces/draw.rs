//! What an operation of a storm is like, by chance.

use std::time::Duration;

use rand::{Rng, RngExt};

use super::super::log::Patience;
use super::super::part::Part;

/// Operations in a hundred that ask for the first lock; the others ask for any.
const HOT: u32 = 50;
/// Of ranges: units of a table in which all of them begin.
const UNITS: u64 = 1024;
/// Operations in a hundred that share.
const SHARED: u32 = 30;
/// A limit that is longer than the bound of the judge, so that who waits for it is judged by that.
const LONG_LIMIT: Duration = Duration::from_millis(400);

/// What there is to ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Offer {
    /// How many locks, or tables of ranges.
    pub(super) locks: u64,
    /// Whether units of tables.
    pub(super) ranges: bool,
}

/// What an operation asks for, and how long it stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Draw {
    /// Which lock, or which units of a table.
    pub(super) part: Part,
    /// Where in its first unit it begins, and in its last one ends.
    pub(super) inset: (u64, u64),
    /// Whether alone.
    pub(super) alone: bool,
    /// For how long.
    pub(super) patience: Patience,
    /// Whether it is awaited.
    pub(super) awaited: bool,
    /// If it is dropped: when.
    pub(super) drop_after: Duration,
    /// How long it holds.
    pub(super) hold: Duration,
    /// How long until the next one.
    pub(super) think: Duration,
}

impl Draw {
    /// An operation of a session.
    pub(super) fn of_session(offer: Offer, chance: &mut impl Rng) -> Self {
        let mut draw = Self::somewhere(offer, chance);
        let up_to = |chance: &mut _, millis| below(chance, Duration::from_millis(millis));
        (draw.patience, draw.awaited) = match chance.random_range(0..100) {
            0..45 => (Patience::Endless, false),
            45..57 => (Patience::Endless, true),
            57..70 => (Patience::For(nanos(up_to(chance, 20))), false),
            70..75 => (Patience::For(nanos(LONG_LIMIT)), false),
            75..88 => (Patience::Try, false),
            _ => (Patience::UntilDropped, true),
        };
        draw.drop_after = up_to(chance, 5);
        draw.hold = match chance.random_range(0..100) {
            0..70 => up_to(chance, 1),
            70..97 => up_to(chance, 8),
            // Long enough for all who wait to be in line.
            _ => up_to(chance, 40),
        };
        draw.think = if chance.random() { Duration::ZERO } else { up_to(chance, 2) };
        draw
    }

    /// An operation of a command.
    pub(super) fn of_command(offer: Offer, chance: &mut impl Rng) -> Self {
        let mut draw = Self::somewhere(offer, chance);
        let up_to = |chance: &mut _, millis| below(chance, Duration::from_millis(millis));
        draw.patience = match chance.random_range(0..100) {
            0..60 => Patience::Endless,
            60..80 => Patience::For(nanos(up_to(chance, 50))),
            80..85 => Patience::For(nanos(LONG_LIMIT)),
            _ => Patience::Try,
        };
        (draw.hold, draw.think) = (up_to(chance, 6), up_to(chance, 6));
        draw
    }

    /// What one asks for that holds something already: it waits for a short while at most, for
    /// others may want what it has and have what it wants.
    pub(super) fn beside(offer: Offer, chance: &mut impl Rng) -> Self {
        let mut draw = Self::somewhere(offer, chance);
        draw.patience = match chance.random() {
            true => Patience::For(nanos(below(chance, Duration::from_millis(20)))),
            false => Patience::Try,
        };
        draw
    }

    /// A try of this.
    pub(super) fn probe(part: Part) -> Self {
        Self {
            part,
            inset: (0, 0),
            alone: true,
            patience: Patience::Try,
            awaited: false,
            drop_after: Duration::ZERO,
            hold: Duration::ZERO,
            think: Duration::ZERO,
        }
    }

    fn somewhere(offer: Offer, chance: &mut impl Rng) -> Self {
        let hot = chance.random_range(0..100) < HOT;
        let lock = if hot { 0 } else { chance.random_range(0..offer.locks) };
        let alone = chance.random_range(0..100) >= SHARED;
        if !offer.ranges {
            return Self { alone, ..Self::probe(Part::all(lock)) };
        }
        let inset = (chance.random(), chance.random());
        Self { alone, inset, ..Self::probe(Part::draw(lock, UNITS, chance)) }
    }
}

fn nanos(duration: Duration) -> u64 {
    // A limit of nothing is a try.
    (duration.as_nanos() as u64).max(1_000)
}

fn below(chance: &mut impl Rng, limit: Duration) -> Duration {
    Duration::from_nanos(chance.random_range(0..limit.as_nanos() as u64))
}
