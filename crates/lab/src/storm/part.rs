//! What an operation of a storm is about: a lock, or some positions of one. Nothing here knows a
//! lock's text.

use rand::{Rng, RngExt};

/// Behind all positions.
pub const END: u64 = u64::MAX;

/// How long a range is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Length {
    /// So many positions.
    Of(u64),
    /// From somewhere on, without an end.
    Open,
    /// All positions.
    Whole,
}

/// How many ranges in a hundred have which length. One that is longer than a lock is whole.
const LENGTHS: [(u32, Length); 5] = [
    (40, Length::Of(1)),
    (25, Length::Of(16)),
    (20, Length::Of(256)),
    (8, Length::Open),
    (7, Length::Whole),
];

/// Positions of a lock, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Which lock.
    pub lock: u64,
    /// The first position.
    pub start: u64,
    /// The one behind the last.
    pub end: u64,
}

impl Part {
    /// A whole lock.
    pub const fn all(lock: u64) -> Self {
        Self { lock, start: 0, end: END }
    }

    /// Some positions of a lock, of chance's choice. Those that are not open at their end lie below
    /// `positions`.
    pub fn draw(lock: u64, positions: u64, chance: &mut impl Rng) -> Self {
        let mut left = chance.random_range(0..100);
        let length = LENGTHS.into_iter().find_map(|(share, length)| {
            let is_drawn = left < share;
            left = left.saturating_sub(share);
            is_drawn.then_some(length)
        });
        match length.expect("the lengths are those of all in a hundred") {
            Length::Of(length) if length < positions => {
                let start = chance.random_range(0..=positions - length);
                Self { lock, start, end: start + length }
            }
            Length::Open => Self { lock, start: chance.random_range(0..positions), end: END },
            Length::Of(_) | Length::Whole => Self::all(lock),
        }
    }

    /// Whether the two have a position in common.
    pub const fn meets(self, other: Self) -> bool {
        self.lock == other.lock && self.start < other.end && other.start < self.end
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { lock, start, end } = self;
        match (*start, *end) {
            (0, END) => write!(f, "lock {lock}"),
            (_, END) => write!(f, "lock {lock} from {start} on"),
            _ => write!(f, "lock {lock} from {start} to {end}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn the_lengths_are_those_of_all_in_a_hundred_and_all_are_drawn() {
        assert_eq!(LENGTHS.iter().map(|(share, _)| share).sum::<u32>(), 100);
        let chance = &mut Xoshiro256PlusPlus::seed_from_u64(1);
        let parts: Vec<Part> = (0..1000).map(|_| Part::draw(3, 1024, chance)).collect();
        for length in [1, 16, 256] {
            let drawn = parts.iter().filter(|part| part.end - part.start == length);
            assert!(drawn.clone().count() > 100, "{length}");
            assert!({ drawn }.all(|part| part.end <= 1024), "{length}");
        }
        assert!(parts.iter().any(|part| part.start > 0 && part.end == END));
        assert!(parts.contains(&Part::all(3)));
        let few = (0..1000).map(|_| Part::draw(0, 8, chance));
        assert!(few.into_iter().all(|part| part.end == END || part.end - part.start == 1));
    }

    #[test]
    fn parts_that_have_a_position_in_common_meet() {
        let part = |start, end| Part { lock: 1, start, end };
        assert!(part(0, 5).meets(part(4, 9)) && part(4, 9).meets(part(0, 5)));
        assert!(part(0, END).meets(part(7, 8)));
        assert!(!part(0, 5).meets(part(5, 9)) && !part(5, 9).meets(part(0, 5)));
        assert!(!Part::all(0).meets(Part::all(1)));
    }
}
