//! The judges of one lock.

use farlock_fabric::Nanos;
use farlock_locks::Token;
use farlock_sim::check::{Access, Ledger, Tries, Turns};
use farlock_sim::mix;

use crate::goods::Goods;
use crate::tokens::{Granted, Tokens};

/// The judges of one lock, and what they are told.
#[derive(Default)]
pub(super) struct Judges {
    pub(super) ledger: Ledger,
    pub(super) goods: Goods,
    pub(super) turns: Turns,
    /// A bit for each client between its first wish for the lock and the end of its release.
    pub(super) busy: u64,
    /// Of each client's hold that tasks hand on: its first task, its token, and what that stands
    /// for.
    pub(super) holds: Vec<(u16, Token, u64)>,
    /// Tells what tokens stand for.
    pub(super) count: Tokens,
    /// Who holds until when by its own clock, if holds end by themselves.
    pub(super) leases: Vec<(u16, Nanos)>,
    /// What was granted, where clocks are not to be trusted.
    pub(super) granted: Granted,
    /// Whether a try had a reason to fail.
    pub(super) tries: Tries,
    /// A bit for each client that wants to share the lock, or does.
    pub(super) sharing: u64,
    /// A bit for each client that holds: from its grant to the end of its release.
    pub(super) inside: u64,
    /// A bit for each client that gave up waiting, and has not left.
    pub(super) withdrawn: u64,
    /// A bit for each client that is in line: from an atomic of its own that changed the word until
    /// it is granted the lock, or gives up.
    pub(super) in_line: u64,
}

impl Judges {
    /// `who` wants the lock.
    pub(super) fn opens(&mut self, who: u16, access: Access) {
        self.turns.opens(who, access);
        self.count.opens(who);
        self.tries.opens(who);
        self.busy |= 1 << who;
        self.sharing &= !(1 << who);
        self.sharing |= u64::from(access == Access::Shared) << who;
    }

    /// How `who` wants the lock.
    pub(super) fn access(&self, who: u16) -> Access {
        if self.sharing >> who & 1 != 0 { Access::Shared } else { Access::Exclusive }
    }

    /// `who` is not in line any more.
    pub(super) fn leaves_line(&mut self, who: u16) {
        self.in_line &= !(1 << who);
        self.tries.is_through(who);
    }

    /// `who` neither has the lock nor wants it any more.
    pub(super) fn closes(&mut self, who: u16) {
        self.leaves_line(who);
        self.turns.closes(who);
        self.tries.closes(who);
        self.busy &= !(1 << who);
        self.inside &= !(1 << who);
        self.withdrawn &= !(1 << who);
    }

    /// An atomic on the lock's word got one of these in line, if it is sure who.
    pub(super) fn gets_in_line(&mut self, crew: std::ops::Range<u16>) {
        if let Some(who) = self.sole(crew) {
            self.turns.acts(who);
        }
    }

    /// An atomic of one of these took effect on the lock's word: it got in line if it changed that,
    /// or else it tries.
    pub(super) fn acts(&mut self, crew: std::ops::Range<u16>, changes: bool) {
        let Some(who) = self.sole(crew) else { return };
        let bit = 1 << who;
        if self.tries.trying() & bit != 0 {
            let excluded = if self.sharing & bit != 0 { !self.sharing } else { u64::MAX };
            self.tries.finds_in_line(who, self.in_line & excluded);
        } else if changes {
            self.in_line |= bit & !self.inside & !self.withdrawn;
        }
    }

    /// The only one of these that wants the lock or has it.
    fn sole(&self, mut crew: std::ops::Range<u16>) -> Option<u16> {
        let all = crew.clone().fold(0, |all, who| all | 1_u64 << who);
        crew.find(|who: &u16| self.busy & all == 1 << who)
    }

    /// What is known of exclusion, tokens, leases and the goods, as a part of the state.
    pub(super) fn ghost(&self) -> u64 {
        let known = self.ledger.ghost() ^ self.goods.ghost().rotate_left(1);
        let known = mix(mix(known, self.count.ghost()), self.granted.ghost());
        self.leases.iter().fold(known, |sum, &(who, end)| mix(sum, mix(who.into(), end)))
    }

    /// What is known of turns.
    pub(super) fn order_ghost(&self, joint: bool) -> u64 {
        mix(self.turns.ghost(), if joint { self.busy } else { 0 })
    }

    /// What is known of tries and of those who withdrew.
    pub(super) fn watched_ghost(&self) -> u64 {
        mix(mix(self.inside, self.withdrawn), mix(self.tries.ghost(), self.in_line))
    }
}
