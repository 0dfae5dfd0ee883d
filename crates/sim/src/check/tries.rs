//! Whether a try that failed had a reason to, and whether one that did not overtook a waiter.

use crate::history::mix;

/// Which clients have to do with one lock, and which of those that try it may fail. Clients are
/// numbers below 64.
///
/// A try may fail if at some moment between its first verb and its end a client that lives has the
/// lock incompatibly, or wants it, or is about to release it: every client that may be in the way
/// counts, so that this judge never objects wrongly. Others that try as well count as long as one
/// of them may be granted: tries that refuse each other are found out when the last of them has
/// failed.
#[derive(Clone, Debug, Default)]
pub struct Tries {
    /// A bit for each client that has or wants the lock: from before its first verb until it has
    /// released the lock, or has left the line, or its try has failed.
    concerned: u64,
    /// Those of them that are surely inside and share.
    reading: u64,
    /// Those that try.
    trying: u64,
    /// Those of them that want to share.
    sharing: u64,
    /// Those of them that have had a reason to fail besides other tries.
    excused: u64,
    /// Of each that tries: those that have come since, or try, and of which nobody knows yet what
    /// they come to.
    rivals: Vec<(u16, u64)>,
    /// Of each try that has failed beside others that tried alone: those of which nobody knows yet.
    refused: Vec<u64>,
    /// Of each that tries: those that have been in line since before it did, and whom it excludes.
    ahead: Vec<(u16, u64)>,
}

impl Tries {
    /// `who` wants the lock from now on.
    pub fn opens(&mut self, who: u16) {
        self.rivals.iter_mut().filter(|&&mut (other, _)| other != who).for_each(|(_, rivals)| {
            *rivals |= 1 << who;
        });
        self.concerned |= 1 << who;
        // A holder of before a restart of the memory comes back, and holds nothing.
        self.reading &= !(1 << who);
    }

    /// `who` was stopped, and goes on: what it wanted before, it wants now as well.
    pub fn goes_on(&mut self, who: u16) {
        if self.concerned & 1 << who != 0 {
            self.excused |= self.trying & !(1 << who);
        }
    }

    /// `who`, which has opened, wants it at once or not at all. Of the others those in `counting`
    /// may be in its way: they live, and have not been stopped for longer than the lock minds.
    pub fn tries(&mut self, who: u16, shared: bool, counting: u64) {
        let bit = 1 << who;
        self.sharing = self.sharing & !bit | if shared { bit } else { 0 };
        let compatible = if shared { self.reading } else { 0 };
        let in_the_way = self.concerned & counting & !compatible & !bit;
        let has_reason = in_the_way & !self.trying != 0;
        self.excused = self.excused & !bit | if has_reason { bit } else { 0 };
        self.rivals.retain(|&(other, _)| other != who);
        self.rivals.push((who, in_the_way & self.trying));
        self.trying |= bit;
    }

    /// A bit for each client that tries.
    pub fn trying(&self) -> u64 {
        self.trying
    }

    /// A verb of `who`, which tries, took effect: the first found these in line whom it excludes.
    pub fn finds_in_line(&mut self, who: u16, ahead: u64) {
        if !self.ahead.iter().any(|&(other, _)| other == who) {
            self.ahead.push((who, ahead));
        }
    }

    /// `who` is not in line any more.
    pub fn is_through(&mut self, who: u16) {
        self.ahead.iter_mut().for_each(|(_, ahead)| *ahead &= !(1 << who));
    }

    /// Those whom `who` would overtake if its try were granted now.
    pub fn overtaken(&self, who: u16) -> u64 {
        self.ahead.iter().find(|&&(other, _)| other == who).map_or(0, |&(_, ahead)| ahead)
    }

    /// `who` has the lock, and shares it or not.
    pub fn enters(&mut self, who: u16, shared: bool) {
        self.comes_to(who, true);
        self.ends(who);
        if shared {
            self.reading |= 1 << who;
        }
    }

    /// `who` is about to release, or to write.
    pub fn leaves(&mut self, who: u16) {
        if self.reading & 1 << who != 0 {
            self.excused |= self.trying & self.sharing & !(1 << who);
        }
        self.reading &= !(1 << who);
    }

    /// `who` neither has the lock nor wants it any more.
    pub fn closes(&mut self, who: u16) {
        self.comes_to(who, true);
        self.ends(who);
        self.reading &= !(1 << who);
        self.concerned &= !(1 << who);
    }

    /// Whether the try of `who` has a reason to fail already, whatever comes of others that try.
    pub fn is_excused(&self, who: u16) -> bool {
        let rivals = self.rivals.iter().find(|&&(other, _)| other == who);
        let others = rivals.map_or(0, |&(_, rivals)| rivals & !self.trying);
        self.excused & 1 << who != 0 || others != 0
    }

    /// The try of `who` has a reason to fail elsewhere: it is one for all that it tries at once.
    pub fn excuses(&mut self, who: u16) {
        self.excused |= 1 << who;
    }

    /// The try of `who` has failed. Whether it had a reason to, and all those that failed for it.
    pub fn fails(&mut self, who: u16) -> bool {
        let rivals = self.rivals.iter().find(|&&(other, _)| other == who);
        let rivals = rivals.map_or(0, |&(_, rivals)| rivals);
        let trying = rivals & self.trying;
        let is_excused = self.is_excused(who);
        let had_reasons = self.comes_to(who, is_excused);
        self.ends(who);
        if !is_excused && trying != 0 {
            self.refused.push(trying);
        }
        had_reasons && (is_excused || trying != 0)
    }

    /// It is known what comes of `who`: it was a reason for others to fail, or its try was in vain
    /// beside other tries. Whether none has failed for such alone.
    fn comes_to(&mut self, who: u16, is_reason: bool) -> bool {
        let bit = 1 << who;
        for (other, rivals) in &mut self.rivals {
            if *rivals & bit != 0 && is_reason {
                self.excused |= 1 << *other;
            }
            *rivals &= !bit;
        }
        self.refused.retain(|of| !is_reason || of & bit == 0);
        self.refused.iter_mut().for_each(|of| *of &= !bit);
        let before = self.refused.len();
        self.refused.retain(|&of| of != 0);
        self.refused.len() == before
    }

    /// The clients in `counting` that have or want the lock besides `who`, and may be in the way of
    /// a client that wants to share it.
    pub fn in_the_way(&self, who: u16, counting: u64) -> u64 {
        self.concerned & counting & !self.reading & !(1 << who)
    }

    fn ends(&mut self, who: u16) {
        self.is_through(who);
        self.ahead.retain(|&(other, _)| other != who);
        self.rivals.retain(|&(other, _)| other != who);
        self.trying &= !(1 << who);
        self.excused &= !(1 << who);
    }

    /// What this judge adds to the state of a world.
    pub fn ghost(&self) -> u64 {
        let who = mix(self.concerned, self.reading);
        let trying = mix(mix(who, self.trying), mix(self.sharing & self.trying, self.excused));
        let each = |sum, &(who, others): &(u16, u64)| mix(sum, mix(who.into(), others));
        let known = self.rivals.iter().fold(self.ahead.iter().fold(trying, each), each);
        self.refused.iter().fold(known, |sum, &of| mix(sum, of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = u64::MAX;

    /// A try of client 9, in which this happens.
    fn fails(shared: bool, counting: u64, story: impl Fn(&mut Tries, bool)) -> bool {
        let mut tries = Tries::default();
        story(&mut tries, false);
        tries.opens(9);
        tries.tries(9, shared, counting);
        story(&mut tries, true);
        tries.fails(9)
    }

    /// Two that try refuse each other. One of them had a reason at another lock that it tried at
    /// once: then nobody was refused for nothing.
    #[test]
    fn a_reason_elsewhere_is_one_here() {
        for elsewhere in [false, true] {
            let mut tries = Tries::default();
            for who in [1, 2] {
                tries.opens(who);
                tries.tries(who, false, ALL);
            }
            assert!(!tries.is_excused(1));
            if elsewhere {
                tries.excuses(1);
            }
            assert_eq!(tries.is_excused(1), elsewhere);
            assert!(tries.fails(1));
            assert_eq!(tries.fails(2), elsewhere);
        }
    }

    #[test]
    fn beside_nobody_there_is_no_reason() {
        assert!(!fails(false, ALL, |_, _| {}));
        // Another client had it before.
        let before = |tries: &mut Tries, begun: bool| {
            if !begun {
                tries.opens(1);
                tries.enters(1, false);
                tries.closes(1);
            }
        };
        assert!(!fails(false, ALL, before));
    }

    #[test]
    fn who_has_it_or_wants_it_is_a_reason_whenever_it_came() {
        for late in [false, true] {
            let comes = move |tries: &mut Tries, begun: bool| {
                if begun == late {
                    tries.opens(1);
                }
            };
            assert!(fails(false, ALL, comes) && fails(true, ALL, comes));
        }
    }

    #[test]
    fn the_dead_are_none() {
        let dead = |tries: &mut Tries, begun: bool| {
            if !begun {
                tries.opens(1);
                tries.enters(1, false);
            }
        };
        assert!(fails(false, ALL, dead) && !fails(false, ALL & !(1 << 1), dead));
    }

    /// A waiter that was stopped goes on beside a try, which is stopped meanwhile.
    #[test]
    fn the_stopped_are_none_until_they_go_on() {
        let stopped = |goes_on: bool| {
            fails(false, ALL & !(1 << 1), |tries, begun| match begun {
                false => tries.opens(1),
                true if goes_on => tries.goes_on(1),
                true => tries.goes_on(2),
            })
        };
        assert!(stopped(true) && !stopped(false));
    }

    #[test]
    fn readers_are_no_reason_for_readers_while_they_are_inside() {
        let reads = |tries: &mut Tries, begun: bool| {
            if !begun {
                tries.opens(1);
                tries.enters(1, true);
            }
        };
        assert!(fails(false, ALL, reads) && !fails(true, ALL, reads));
        let leaves = |tries: &mut Tries, begun: bool| {
            reads(tries, begun);
            if begun {
                tries.leaves(1);
            }
        };
        assert!(fails(true, ALL, leaves));
    }

    /// A reader comes back after a restart of the memory, and wants the lock again.
    #[test]
    fn who_opens_is_not_inside() {
        let comes_back = |tries: &mut Tries, begun: bool| {
            if !begun {
                tries.opens(1);
                tries.enters(1, true);
                tries.opens(1);
            }
        };
        assert!(fails(true, ALL, comes_back));
    }

    /// Clients 1 and 9 try at the same time, beside others or not.
    fn both_try(between: impl Fn(&mut Tries)) -> Tries {
        let mut tries = Tries::default();
        for who in [1, 9] {
            tries.opens(who);
            tries.tries(who, false, ALL);
        }
        between(&mut tries);
        tries
    }

    #[test]
    fn tries_that_refuse_each_other_are_found_out() {
        let mut tries = both_try(|_| {});
        assert!(tries.fails(1), "the other may have it");
        tries.closes(1);
        assert!(!tries.fails(9));
    }

    #[test]
    fn one_of_several_tries_is_granted() {
        let mut tries = both_try(|_| {});
        assert!(tries.fails(1));
        tries.closes(1);
        tries.enters(9, false);
        tries.closes(9);
        let mut late = both_try(|tries| tries.enters(1, false));
        late.closes(1);
        assert!(late.fails(9), "the other had it");
    }

    #[test]
    fn a_waiter_is_a_reason_for_all_tries() {
        let mut tries = both_try(|tries| tries.opens(3));
        assert!(tries.fails(1));
        tries.closes(1);
        assert!(tries.fails(9));
    }

    #[test]
    fn a_reason_is_for_one_try() {
        let mut tries = Tries::default();
        tries.opens(1);
        tries.opens(9);
        tries.tries(9, false, ALL);
        assert!(tries.fails(9));
        tries.closes(9);
        tries.closes(1);
        tries.opens(9);
        tries.tries(9, false, ALL);
        assert!(!tries.fails(9));
    }
}
