//! Who came before whom: first come, first served, or how often a waiter was passed.

use super::Access;

/// The line before one lock, as its clients' first verbs took effect. Clients are below 64.
///
/// A client opens before its first verb, enters when it has been granted the lock, and closes when
/// its release is over.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// Those about to get in line, shared and exclusive; they are in line when their first atomic
    /// takes effect.
    readers_opening: u64,
    writers_opening: u64,
    line: Vec<Waiter>,
    /// Exclusive clients that have entered and not closed.
    writers_inside: u64,
    /// How many exclusive ones have passed the first of them in line since it is the first.
    in_a_row: u32,
    bypass_max: u32,
    /// Shared clients stand among the exclusive ones, in whose order all are granted.
    one_line: bool,
    /// A shared client may learn of its grant after others that were granted later.
    told_late: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    who: u16,
    access: Access,
    /// How many exclusive ones that came later (before a shared waiter: any) were served before it.
    passed: u32,
    /// Of a shared waiter: the exclusive one for which the lock was being kept when it came.
    barred_by: Option<u16>,
}

/// Whom a client passed as it was granted the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// By an exclusive client: exclusive ones in line that came earlier.
    pub writers: u32,
    /// An exclusive client by so many exclusive ones that came later.
    pub by: u32,
    /// By an exclusive client: how many exclusive ones have now been served, one after another,
    /// before the one that is the first in line.
    pub in_a_row: u32,
    /// By an exclusive client: of the shared ones in line, who has seen the most exclusive ones
    /// enter, and how many that are.
    pub reader: Option<(u16, u32)>,
    /// By a shared client: the exclusive one that was the first in line when it came, with nobody
    /// exclusive inside, and that still waits: for earlier readers, while later ones come in.
    pub writer_kept_out: Option<u16>,
}

impl Turns {
    /// Where shared clients stand in one line with exclusive ones. That a shared one enters before
    /// another is no passing: they hold together, and either may be told first. Where they are
    /// `told_late`, nobody knows whom a shared one has passed.
    pub fn of_one_line(one_line: bool, told_late: bool) -> Self {
        Self { one_line, told_late, ..Self::default() }
    }

    /// `who` is about to get in line.
    pub fn opens(&mut self, who: u16, access: Access) {
        match access {
            Access::Shared => self.readers_opening |= 1 << who,
            Access::Update | Access::Exclusive => self.writers_opening |= 1 << who,
        }
    }

    /// An atomic of `who` took effect on the lock's word.
    pub fn acts(&mut self, who: u16) {
        let bit = 1 << who;
        if (self.readers_opening | self.writers_opening) & bit == 0 {
            return;
        }
        let access =
            if self.readers_opening & bit != 0 { Access::Shared } else { Access::Exclusive };
        self.readers_opening &= !bit;
        self.writers_opening &= !bit;
        let bars = access == Access::Shared && self.writers_inside == 0;
        let mut writers = self.line.iter().filter(|waiter| waiter.access == Access::Exclusive);
        let barred_by = writers.next().filter(|_| bars).map(|waiter| waiter.who);
        self.line.push(Waiter { who, access, passed: 0, barred_by });
    }

    /// `who` is granted the lock.
    pub fn enters(&mut self, who: u16) -> Passed {
        let Some(place) = self.line.iter().position(|waiter| waiter.who == who) else {
            return Passed::default();
        };
        let waiter = self.line.remove(place);
        if self.one_line {
            return self.enters_one_line(waiter, place);
        }
        if waiter.access == Access::Shared {
            return Passed { writer_kept_out: waiter.barred_by, ..Passed::default() };
        }
        self.admits(who);
        self.writers_inside |= 1 << who;
        let mut passed = Passed { by: waiter.passed, ..Passed::default() };
        for (index, other) in self.line.iter_mut().enumerate() {
            match other.access {
                Access::Exclusive if index < place => {
                    passed.writers += 1;
                    other.passed += 1;
                    self.bypass_max = self.bypass_max.max(other.passed);
                }
                Access::Update | Access::Exclusive => {}
                Access::Shared => {
                    other.passed += 1;
                    let most = passed.reader.map_or(0, |(_, most)| most);
                    if other.passed > most {
                        passed.reader = Some((other.who, other.passed));
                    }
                }
            }
        }
        self.in_a_row = if passed.writers == 0 { 0 } else { self.in_a_row + 1 };
        passed.in_a_row = self.in_a_row;
        passed
    }

    fn enters_one_line(&mut self, waiter: Waiter, place: usize) -> Passed {
        let mut passed = Passed { by: waiter.passed, ..Passed::default() };
        if waiter.access == Access::Shared && self.told_late && place > 0 {
            return passed;
        }
        for other in &mut self.line[..place] {
            if waiter.access != Access::Shared || other.access != Access::Shared {
                passed.writers += 1;
                other.passed += 1;
                self.bypass_max = self.bypass_max.max(other.passed);
            }
        }
        self.in_a_row = if passed.writers == 0 { 0 } else { self.in_a_row + 1 };
        passed.in_a_row = self.in_a_row;
        passed
    }

    /// Nobody is kept out for `who` any longer.
    fn admits(&mut self, who: u16) {
        for waiter in self.line.iter_mut().filter(|waiter| waiter.barred_by == Some(who)) {
            waiter.barred_by = None;
        }
    }

    /// The release of `who` is over.
    pub fn closes(&mut self, who: u16) {
        self.writers_inside &= !(1 << who);
    }

    /// `who` no longer waits or holds: it gave up, died, or began again.
    pub fn leaves(&mut self, who: u16) {
        self.readers_opening &= !(1 << who);
        self.writers_opening &= !(1 << who);
        let mut writers = self.line.iter().filter(|waiter| waiter.access == Access::Exclusive);
        let first = if self.one_line { self.line.first() } else { writers.next() };
        if first.is_some_and(|first| first.who == who) {
            self.in_a_row = 0;
        }
        self.line.retain(|waiter| waiter.who != who);
        self.admits(who);
        self.closes(who);
    }

    /// How often one exclusive waiter was passed at most by another.
    pub fn bypass_max(&self) -> u32 {
        self.bypass_max
    }

    /// What this judge adds to the state of a world: the line, in order.
    pub fn ghost(&self) -> u64 {
        let opening = self.writers_opening ^ self.readers_opening.rotate_left(32);
        let begin = opening ^ self.writers_inside.rotate_left(16) ^ u64::from(self.in_a_row) << 8;
        self.line.iter().fold(begin, |hash, waiter| {
            let barred_by = waiter.barred_by.map_or(0, |writer| u64::from(writer) + 1);
            let access = waiter.access as u64;
            (hash
                ^ u64::from(waiter.who) << 32
                ^ u64::from(waiter.passed)
                ^ barred_by << 40
                ^ access << 48)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Access::{Exclusive, Shared};

    fn line_of(clients: &[(u16, Access)]) -> Turns {
        let mut turns = Turns::default();
        for &(who, access) in clients {
            turns.opens(who, access);
            turns.acts(who);
            turns.acts(who);
        }
        turns
    }

    #[test]
    fn who_is_passed_is_counted() {
        let mut turns = line_of(&[(0, Exclusive), (1, Exclusive), (2, Exclusive)]);
        assert_eq!(turns.enters(2).writers, 2);
        let by_one = Passed { by: 1, ..Passed::default() };
        assert_eq!((turns.enters(0), turns.enters(1)), (by_one, by_one));
        assert_eq!(turns.bypass_max(), 1);
    }

    #[test]
    fn passes_are_counted_from_one_turn_of_the_line_to_the_next() {
        let mut turns = line_of(&[(0, Exclusive), (1, Exclusive), (2, Exclusive)]);
        let comes = |turns: &mut Turns, who| {
            turns.opens(who, Exclusive);
            turns.acts(who);
            turns.enters(who).in_a_row
        };
        assert_eq!([comes(&mut turns, 9), comes(&mut turns, 9), comes(&mut turns, 9)], [1, 2, 3]);
        assert_eq!(turns.enters(0).in_a_row, 0);
        assert_eq!(turns.enters(2).in_a_row, 1, "the second passes who is now the first");
        turns.opens(4, Exclusive);
        turns.acts(4);
        turns.leaves(1);
        assert_eq!(comes(&mut turns, 9), 1);
        assert_eq!(turns.bypass_max(), 4, "the second was passed by all");
    }

    #[test]
    fn the_line_is_that_of_effects_not_of_intentions() {
        let mut turns = Turns::default();
        turns.opens(0, Exclusive);
        turns.opens(1, Exclusive);
        turns.acts(1);
        turns.acts(0);
        assert_eq!(turns.enters(1).writers, 0);
        turns.leaves(0);
        assert_eq!(turns.enters(0), Passed::default());
    }

    #[test]
    fn a_reader_counts_the_writers_that_enter_while_it_waits() {
        let mut turns = line_of(&[(0, Exclusive), (1, Shared), (2, Exclusive)]);
        assert_eq!(turns.enters(0).reader, Some((1, 1)));
        assert_eq!(turns.enters(2).reader, Some((1, 2)));
        assert_eq!(turns.enters(1), Passed::default());
    }

    #[test]
    fn a_writer_that_waits_for_readers_alone_bars_later_ones() {
        let mut turns = line_of(&[(0, Shared)]);
        assert_eq!(turns.enters(0), Passed::default());
        for (who, access) in [(1, Exclusive), (2, Shared)] {
            turns.opens(who, access);
            turns.acts(who);
        }
        assert_eq!(turns.clone().enters(2).writer_kept_out, Some(1));
        turns.enters(1);
        turns.closes(1);
        turns.opens(1, Exclusive);
        turns.acts(1);
        assert_eq!(turns.enters(2), Passed::default());
    }

    #[test]
    fn nobody_is_barred_while_a_writer_is_inside() {
        let mut turns = line_of(&[(0, Exclusive)]);
        turns.enters(0);
        for (who, access) in [(1, Exclusive), (2, Shared)] {
            turns.opens(who, access);
            turns.acts(who);
        }
        assert_eq!(turns.clone().enters(2), Passed::default());
        turns.closes(0);
        turns.opens(3, Shared);
        turns.acts(3);
        assert_eq!(turns.enters(3).writer_kept_out, Some(1));
    }
}
