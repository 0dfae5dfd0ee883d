//! An acquisition under way: the one state machine behind blocking, timed and asynchronous locks.
//!
//! Whatever ends it early, a timeout, a dropped future, a panic of the thread, dropping it leaves
//! the list as if it had never begun.

use std::future::Future;
use std::hint;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::impatience::STAND_BACK_YIELDS;
use super::park::{self, Bell, Place};
use super::pool::{self, Claim, Entry};
use super::token::Token;
#[cfg(any(loom, shuttle))]
use super::walk::Planted;
use super::walk::{Check, List, Obstacle, Preference, Walk};
use crate::primitive::{order_loads_after_insertion, world_has_ended};

/// Looks at an obstacle before sleeping: some two microseconds, what a sleep and a wake-up cost.
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 100 };
/// Setbacks after which an acquisition asks newcomers to stand back (paper section 4.3).
const SETBACKS: u32 = 16;

/// An acquisition under way.
pub(crate) struct Entrance<'a, const RW: bool> {
    list: &'a List<RW>,
    claim: Claim,
    /// Described, but not in the list.
    outside: Option<&'static Entry>,
    /// In the list, not yet validated.
    inside: Option<&'static Entry>,
    /// Where a task is waiting.
    place: Option<Place>,
    setbacks: u32,
    /// How often a task has let the impatient go first.
    stood_back: u32,
}

/// How far an attempt came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    Nowhere,
    /// Into the list, but not through the validation.
    Inside,
    Through,
}

/// How far it came.
pub(crate) enum Step {
    Held(Token),
    Blocked(Obstacle),
}

impl<const RW: bool> List<RW> {
    /// Waits for the range until the deadline, if there is one.
    ///
    /// The fast path alone is here, to be part of its caller: what the rest would keep in memory
    /// across the compare-and-swap costs as much as half of it.
    #[inline]
    pub(super) fn lock(&self, claim: Claim, deadline: Option<Instant>) -> Option<Token> {
        let mine = self.fresh(claim);
        if self.impatience.is_none() && self.take_alone(mine) {
            return Some(Token::new(mine));
        }
        self.lock_beside(mine, deadline)
    }

    /// Takes the range if no holder is in the way.
    #[inline]
    pub(super) fn try_lock(&self, claim: Claim) -> Option<Token> {
        let mine = self.fresh(claim);
        if self.take_alone(mine) {
            return Some(Token::new(mine));
        }
        self.try_lock_beside(mine)
    }

    #[inline(never)]
    fn lock_beside(&self, mine: &'static Entry, deadline: Option<Instant>) -> Option<Token> {
        let claim = mine.claim();
        let mut came = Came::Nowhere;
        if self.impatience.is_none() {
            came = self.take_beside(mine, claim);
            if came == Came::Through {
                return Some(Token::new(mine));
            }
        }
        Entrance::from(self, claim, mine, came).outwait(deadline)
    }

    #[inline(never)]
    fn try_lock_beside(&self, mine: &'static Entry) -> Option<Token> {
        let claim = mine.claim();
        let came = self.take_beside(mine, claim);
        if came == Came::Through {
            return Some(Token::new(mine));
        }
        Entrance::from(self, claim, mine, came).attempt()
    }

    /// The ordinary path, once: others hold ranges, none is in the way, and no other thread races.
    ///
    /// It is what [`Entrance`] does, without keeping in memory how far it came, which costs a third
    /// of it.
    #[inline(never)]
    fn take_beside(&self, mine: &'static Entry, claim: Claim) -> Came {
        match self.walk(mine, claim) {
            Walk::Inserted if self.validates() => {
                order_loads_after_insertion();
                let passed = matches!(self.check(mine, claim), Check::Passed);
                if passed { Came::Through } else { Came::Inside }
            }
            Walk::Inserted | Walk::Alone => Came::Through,
            Walk::Blocked(_) | Walk::Raced => Came::Nowhere,
        }
    }

    #[inline(always)]
    fn check(&self, mine: &'static Entry, claim: Claim) -> Check {
        if claim.shared {
            self.check_shared(mine, claim.range)
        } else {
            self.check_exclusive(mine, claim.range)
        }
    }

    #[cfg(not(any(loom, shuttle)))]
    fn validates(&self) -> bool {
        RW
    }

    #[cfg(any(loom, shuttle))]
    fn validates(&self) -> bool {
        RW && self.planted != Planted::NoValidation
    }

    /// An entry of this thread's that says `claim`.
    fn fresh(&self, claim: Claim) -> &'static Entry {
        let mine = pool::take();
        mine.describe(claim);
        mine
    }
}

impl<'a, const RW: bool> Entrance<'a, RW> {
    pub(super) fn new(list: &'a List<RW>, claim: Claim) -> Self {
        let (outside, inside, place) = (None, None, None);
        Self { list, claim, outside, inside, place, setbacks: 0, stood_back: 0 }
    }

    /// Goes on from an attempt that did not come through.
    fn from(list: &'a List<RW>, claim: Claim, mine: &'static Entry, came: Came) -> Self {
        let mut entrance = Self::new(list, claim);
        match came {
            Came::Inside => entrance.inside = Some(mine),
            Came::Nowhere | Came::Through => entrance.outside = Some(mine),
        }
        entrance
    }

    #[cold]
    #[inline(never)]
    fn attempt(mut self) -> Option<Token> {
        match self.step() {
            Step::Held(token) => Some(token),
            Step::Blocked(_) => None,
        }
    }

    /// Goes on until the range is held or a holder is in the way.
    ///
    /// Races are retried at once: each means that another acquisition or release got on.
    pub(super) fn step(&mut self) -> Step {
        loop {
            let ended = match self.inside {
                Some(mine) => self.validate(mine),
                None => self.insert(),
            };
            if let Some(step) = ended {
                return step;
            }
        }
    }

    /// Waits until the range is held, or the deadline.
    #[cold]
    #[inline(never)]
    fn outwait(mut self, deadline: Option<Instant>) -> Option<Token> {
        if self.inside.is_none() {
            self.list.impatience.stand_back(deadline);
        }
        let mut late = deadline.is_some_and(|deadline| deadline <= Instant::now());
        loop {
            match self.step() {
                Step::Held(token) => return Some(token),
                Step::Blocked(obstacle) => {
                    obstacle.forbid_owner(self.claim.owner);
                    if late {
                        return None;
                    }
                    // A waiter that slept until the deadline looks once more.
                    late = !obstacle.wait(deadline);
                }
            }
        }
    }

    fn insert(&mut self) -> Option<Step> {
        let mine = self.outside.take().unwrap_or_else(|| self.list.fresh(self.claim));
        match self.list.walk(mine, self.claim) {
            Walk::Alone => return Some(self.held(mine)),
            Walk::Inserted if self.list.validates() => {
                order_loads_after_insertion();
                self.inside = Some(mine);
                return None;
            }
            Walk::Inserted => return Some(self.held(mine)),
            Walk::Blocked(obstacle) => {
                self.outside = Some(mine);
                self.set_back();
                return Some(Step::Blocked(obstacle));
            }
            Walk::Raced => self.outside = Some(mine),
        }
        self.set_back();
        None
    }

    fn validate(&mut self, mine: &'static Entry) -> Option<Step> {
        match self.list.check(mine, self.claim) {
            Check::Passed => {
                self.inside = None;
                Some(self.held(mine))
            }
            Check::Raced => None,
            Check::Blocked(obstacle) => {
                if !self.preferred() {
                    self.leave(mine);
                }
                self.set_back();
                Some(Step::Blocked(obstacle))
            }
        }
    }

    /// Whether a conflict found after insertion is the other side's to give way in.
    fn preferred(&self) -> bool {
        self.claim.shared == (self.list.preference == Preference::Readers)
    }

    /// Gives way. The entry may be linked for a while yet, so the next attempt takes another.
    fn leave(&mut self, mine: &'static Entry) {
        self.inside = None;
        self.list.release(mine);
        #[cfg(any(loom, shuttle))]
        if self.list.planted == Planted::Reinsert {
            self.outside = Some(mine);
        }
    }

    fn held(&self, mine: &'static Entry) -> Step {
        Step::Held(Token::new(mine))
    }

    fn set_back(&mut self) {
        self.setbacks = self.setbacks.saturating_add(1);
        if self.setbacks == SETBACKS {
            self.list.impatience.begin();
        }
    }

    fn leave_place(&mut self) {
        if let Some(place) = self.place.take() {
            park::leave(&place);
        }
    }
}

impl<const RW: bool> Future for Entrance<'_, RW> {
    type Output = Token;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Token> {
        let newcomer = self.setbacks == 0 && self.stood_back < STAND_BACK_YIELDS;
        if newcomer && !self.list.impatience.is_none() {
            self.stood_back += 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            self.leave_place();
            match self.step() {
                Step::Held(token) => return Poll::Ready(token),
                Step::Blocked(obstacle) => {
                    self.place = obstacle.join(cx.waker().clone());
                    if self.place.is_some() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl<const RW: bool> Drop for Entrance<'_, RW> {
    fn drop(&mut self) {
        if world_has_ended() {
            return;
        }
        self.leave_place();
        if let Some(mine) = self.inside.take() {
            self.list.release(mine);
        }
        if let Some(mine) = self.outside.take() {
            pool::give(mine);
        }
        if self.setbacks >= SETBACKS {
            self.list.impatience.end();
        }
    }
}

impl Obstacle {
    /// Waits until the obstacle may be gone: spins a while, then sleeps. False if the deadline
    /// came first.
    fn wait(&self, deadline: Option<Instant>) -> bool {
        for _ in 0..SPINS {
            if !self.entry.next.still(self.word) {
                return true;
            }
            hint::spin_loop();
        }
        let bell = Bell::new();
        let Some(place) = self.join(Waker::from(bell.clone())) else { return true };
        let rung = bell.wait(deadline);
        if !rung {
            park::leave(&place);
        }
        rung
    }

    /// Leaves a waker with the obstacle; none if it has changed meanwhile.
    fn join(&self, waker: Waker) -> Option<Place> {
        let word = self.entry.next.announce(self.word)?;
        park::join(self.entry.index(), waker, || self.entry.next.still(word))
    }

    /// In debug builds, stops a thread that would wait for itself.
    fn forbid_owner(&self, owner: u64) {
        debug_assert!(
            owner == 0 || self.owner != owner,
            "this thread holds an overlapping range itself, and would wait for ever"
        );
    }
}
