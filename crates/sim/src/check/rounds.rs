//! How often others pass one that waits.

use super::Access;

/// The writers that wait for some parts of a lock, and the readers that come to the same parts; or
/// all that wait, and all that come. Clients are below 64, and so are parts.
///
/// A writer is in line from the first doorbell on with which it posts what may change something of
/// the lock. A *round* of readers has passed it when one that has asked since the last round has
/// been granted, and the writer has posted something of the kind again after. So it is one round
/// however many pass between two doorbells of a writer, which may be slow: that is not the lock's
/// doing.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    /// Whether all that wait count, and all that pass them: writers among writers.
    of_all: bool,
    waiters: Vec<Waiter>,
    rounds_max: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    who: u16,
    is_writer: bool,
    /// A bit for each part that it wants.
    parts: u64,
    /// Of a writer: whether it is in line.
    in_line: bool,
    /// A bit for each reader that has asked for some of that since the last round, or since it is
    /// in line.
    newcomers: u64,
    /// Whether one of them was granted.
    is_passed: bool,
    rounds: u32,
}

impl Rounds {
    /// One that counts all that pass, not readers that pass writers.
    pub fn of_all() -> Self {
        Self { of_all: true, ..Self::default() }
    }

    /// `who` asks for these parts.
    pub fn opens(&mut self, who: u16, access: Access, parts: u64) {
        self.leaves(who);
        let is_writer = access != Access::Shared;
        if !is_writer || self.of_all {
            for waiter in self.in_line(parts).filter(|waiter| waiter.is_writer || is_writer) {
                waiter.newcomers |= 1 << who;
            }
        }
        let (in_line, newcomers, is_passed, rounds) = (false, 0, false, 0);
        self.waiters.push(Waiter { who, is_writer, parts, in_line, newcomers, is_passed, rounds });
    }

    /// `who` posts what may change something of the lock. How many rounds have passed it now, if
    /// that is one more.
    pub fn acts(&mut self, who: u16) -> Option<u32> {
        let of_all = self.of_all;
        let waits = |waiter: &&mut Waiter| waiter.who == who && (of_all || waiter.is_writer);
        let writer = self.waiters.iter_mut().find(waits)?;
        writer.in_line = true;
        if !writer.is_passed {
            return None;
        }
        (writer.newcomers, writer.is_passed) = (0, false);
        writer.rounds += 1;
        self.rounds_max = self.rounds_max.max(writer.rounds);
        Some(writer.rounds)
    }

    /// `who` is granted what it has asked for. Behind a writer others begin to count anew.
    pub fn enters(&mut self, who: u16) {
        let Some(place) = self.waiters.iter().position(|waiter| waiter.who == who) else { return };
        let granted = self.waiters.remove(place);
        let of_all = self.of_all;
        for writer in self.in_line(u64::MAX) {
            if granted.is_writer && !of_all {
                (writer.newcomers, writer.is_passed, writer.rounds) = (0, false, 0);
            } else {
                writer.is_passed |= writer.newcomers >> who & 1 != 0;
            }
        }
    }

    /// `who` does not wait any more: it gave up, or was refused.
    pub fn leaves(&mut self, who: u16) {
        self.waiters.retain(|waiter| waiter.who != who);
        self.waiters.iter_mut().for_each(|waiter| waiter.newcomers &= !(1 << who));
    }

    /// How many rounds have passed one writer, at most.
    pub fn rounds_max(&self) -> u32 {
        self.rounds_max
    }

    /// Those in line for some of these parts.
    fn in_line(&mut self, parts: u64) -> impl Iterator<Item = &mut Waiter> {
        self.waiters.iter_mut().filter(move |waiter| waiter.in_line && waiter.parts & parts != 0)
    }

    /// What this judge adds to the state of a world: nobody is before another one.
    pub fn ghost(&self) -> u64 {
        self.waiters.iter().fold(0, |hash: u64, waiter| {
            let flags = u64::from(waiter.is_writer) | u64::from(waiter.in_line) << 1;
            let flags = flags | u64::from(waiter.is_passed) << 2 | u64::from(waiter.rounds) << 3;
            let known = (waiter.parts ^ waiter.newcomers.rotate_left(24) ^ flags.rotate_left(48))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash.wrapping_add(known.rotate_left(u32::from(waiter.who)) ^ u64::from(waiter.who))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Access::{Exclusive, Shared};

    const ALL: u64 = u64::MAX;

    fn passes(rounds: &mut Rounds, reader: u16) {
        rounds.opens(reader, Shared, ALL);
        rounds.enters(reader);
    }

    #[test]
    fn however_many_pass_between_two_doorbells_of_a_writer_are_one_round() {
        let mut rounds = Rounds::default();
        rounds.opens(0, Exclusive, ALL);
        passes(&mut rounds, 1);
        assert_eq!(rounds.acts(0), None, "it was not in line");
        passes(&mut rounds, 1);
        passes(&mut rounds, 2);
        assert_eq!([rounds.acts(0), rounds.acts(0)], [Some(1), None]);
        passes(&mut rounds, 1);
        assert_eq!((rounds.acts(0), rounds.rounds_max()), (Some(2), 2));
    }

    #[test]
    fn a_reader_that_came_before_passes_nobody() {
        let mut rounds = Rounds::default();
        rounds.opens(1, Shared, ALL);
        rounds.opens(0, Exclusive, ALL);
        rounds.acts(0);
        rounds.enters(1);
        assert_eq!(rounds.acts(0), None);
        rounds.opens(1, Shared, ALL);
        rounds.opens(2, Shared, ALL);
        rounds.enters(2);
        assert_eq!(rounds.acts(0), Some(1));
        rounds.enters(1);
        assert_eq!(rounds.acts(0), None, "it came before the round was over");
    }

    #[test]
    fn a_reader_of_other_parts_or_one_that_left_passes_nobody() {
        let mut rounds = Rounds::default();
        rounds.opens(0, Exclusive, 0b01);
        rounds.acts(0);
        rounds.opens(1, Shared, 0b10);
        rounds.enters(1);
        rounds.opens(2, Shared, 0b01);
        rounds.leaves(2);
        rounds.enters(2);
        assert_eq!(rounds.acts(0), None);
    }

    #[test]
    fn where_all_count_writers_pass_writers_and_readers_no_readers() {
        let mut rounds = Rounds::of_all();
        rounds.opens(0, Exclusive, ALL);
        rounds.opens(1, Shared, ALL);
        assert_eq!([rounds.acts(0), rounds.acts(1)], [None, None]);
        for (who, access) in [(2, Exclusive), (3, Shared)] {
            rounds.opens(who, access, ALL);
            rounds.enters(who);
        }
        assert_eq!([rounds.acts(0), rounds.acts(1)], [Some(1), Some(1)]);
        passes(&mut rounds, 3);
        assert_eq!([rounds.acts(0), rounds.acts(1)], [Some(2), None]);
    }

    #[test]
    fn behind_a_writer_rounds_are_counted_anew() {
        let mut rounds = Rounds::default();
        for writer in [0, 3] {
            rounds.opens(writer, Exclusive, ALL);
            rounds.acts(writer);
        }
        passes(&mut rounds, 1);
        assert_eq!(rounds.acts(0), Some(1));
        rounds.enters(3);
        passes(&mut rounds, 1);
        assert_eq!(rounds.acts(0), Some(1));
    }
}
