//! Local write combining: what one client's tasks write to one key at once goes to memory once.
//!
//! ```text
//! leader     the first of a round: enters the scheme below, and carries its operation out
//! followers  came before the leader's turn began: done when the leader's operation is
//! the rest   came later: the first of them leads the next round
//! ```
//!
//! A follower was called before the leader's write began and is answered after it has ended, so it
//! counts as right before it. If the scheme below has combined the leader with another client's
//! write, that may have been carried out any time since the leader entered: then only those count
//! as followers that had come before that.
//!
//! Nothing here is in memory that others see, and no verb is posted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use farlock_fabric::{Addr, Nanos};
use farlock_locks::within;

use super::scheme::{Effect, Ended, Entered, Scheme};

/// A scheme whose client combines the overwrites of its own tasks before it enters.
///
/// Tasks wake each other by the wakers that they are polled with. Where those do nothing, run them
/// [`together`](farlock_locks::local::together): else each waits as long as it has patience.
#[derive(Debug)]
pub struct LocalCombining<S> {
    scheme: S,
    rounds: Rounds,
    patience_ns: Nanos,
    combined: Cell<u64>,
    batches: Cell<u64>,
}

/// The overwrites of one key that are under way: one leads, the others wait.
#[derive(Debug, Default)]
struct Round {
    stage: Stage,
    waiters: Vec<Waiter>,
}

/// How far the leader of a round is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Stage {
    /// It has not entered the scheme below yet.
    #[default]
    Called,
    /// It waits for its turn there.
    Entering,
    /// Its operation is being carried out.
    Begun,
}

#[derive(Debug)]
struct Waiter {
    /// How far the leader was when the waiter came.
    came: Stage,
    call: Rc<Call>,
}

/// What a waiter waits for.
#[derive(Debug, Default)]
struct Call {
    fate: Cell<Option<Fate>>,
    waker: RefCell<Option<Waker>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Done,
    Leads,
}

impl Call {
    fn tell(&self, fate: Fate) {
        self.fate.set(Some(fate));
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}

type Rounds = RefCell<BTreeMap<u64, Round>>;

/// A task leads a round; dropped, it leaves the lead to the next.
struct Lead<'s> {
    rounds: &'s Rounds,
    hash: u64,
    is_over: bool,
}

/// A task waits in a round; dropped, it waits no more.
struct Waiting<'s> {
    rounds: &'s Rounds,
    hash: u64,
    call: Rc<Call>,
}

/// A turn of [`LocalCombining`].
pub struct LocalTurn<'s, S: Scheme + 's> {
    turn: S::Turn<'s>,
    lead: Option<Lead<'s>>,
}

impl<S> LocalCombining<S> {
    /// Over this scheme. A task that waits for another one waits up to `patience_ns` nanoseconds;
    /// then it goes on by itself.
    pub fn new(scheme: S, patience_ns: Nanos) -> Self {
        let (combined, batches) = (Cell::new(0), Cell::new(0));
        Self { scheme, rounds: RefCell::default(), patience_ns, combined, batches }
    }

    /// The scheme below.
    pub fn scheme(&self) -> &S {
        &self.scheme
    }

    /// How many operations were combined with one of another task.
    pub fn combined(&self) -> u64 {
        self.combined.get()
    }

    /// With how many operations others were combined.
    pub fn batches(&self) -> u64 {
        self.batches.get()
    }

    /// Whether an operation on this key is under way, so that another one would wait for it.
    pub fn is_under_way(&self, hash: u64) -> bool {
        self.rounds.borrow().contains_key(&hash)
    }

    /// A round has ended, of which so many operations were combined with its leader's.
    fn count(&self, followers: u64) {
        self.combined.set(self.combined.get() + followers);
        self.batches.set(self.batches.get() + u64::from(followers > 0));
    }

    /// Joins the round of this key: its leader, or a waiter in it.
    fn join(&self, hash: u64) -> Result<Lead<'_>, Waiting<'_>> {
        let mut rounds = self.rounds.borrow_mut();
        let Some(round) = rounds.get_mut(&hash) else {
            rounds.insert(hash, Round::default());
            return Ok(self.lead(hash));
        };
        let call = Rc::<Call>::default();
        round.waiters.push(Waiter { came: round.stage, call: Rc::clone(&call) });
        Err(Waiting { rounds: &self.rounds, hash, call })
    }

    fn lead(&self, hash: u64) -> Lead<'_> {
        Lead { rounds: &self.rounds, hash, is_over: false }
    }

    /// Leads a round, or waits for the end of one: `Ok(None)`, that ended with its leader's write.
    /// `Err`: it took too long.
    async fn lead_or_follow(&self, hash: u64) -> Result<Option<Lead<'_>>, ()>
    where
        S: Scheme,
    {
        let waiting = match self.join(hash) {
            Ok(lead) => return Ok(Some(lead)),
            Err(waiting) => waiting,
        };
        let told = poll_fn(|cx| match waiting.call.fate.take() {
            Some(fate) => Poll::Ready(fate),
            None => {
                *waiting.call.waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        });
        match within(self.scheme.endpoint(), self.patience_ns, told).await {
            Some(Fate::Done) => Ok(None),
            Some(Fate::Leads) => Ok(Some(self.lead(hash))),
            None => Err(()),
        }
    }
}

impl Lead<'_> {
    /// Goes on to this stage.
    fn reaches(&self, stage: Stage) {
        if let Some(round) = self.rounds.borrow_mut().get_mut(&self.hash) {
            round.stage = stage;
        }
    }

    /// The round is over, and with it are those done that came when its leader was no further than
    /// that. Returns how many.
    fn ends(mut self, done: Option<Stage>) -> u64 {
        self.is_over = true;
        end(self.rounds, self.hash, done)
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            end(self.rounds, self.hash, None);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.call.fate.get() == Some(Fate::Leads) {
            end(self.rounds, self.hash, None);
        } else if let Some(round) = self.rounds.borrow_mut().get_mut(&self.hash) {
            round.waiters.retain(|waiter| !Rc::ptr_eq(&waiter.call, &self.call));
        }
    }
}

/// Ends the round of this key: see [`Lead::ends`]. Of those that are not done the first leads the
/// next round, which the others had joined before it begins.
fn end(rounds: &Rounds, hash: u64, done: Option<Stage>) -> u64 {
    let mut rounds = rounds.borrow_mut();
    let round = rounds.remove(&hash).expect("a round lasts as long as it is led");
    let is_done = |waiter: &Waiter| done.is_some_and(|stage| waiter.came <= stage);
    let (followers, rest): (Vec<_>, Vec<_>) = round.waiters.into_iter().partition(is_done);
    let mut rest = rest.into_iter();
    let next = rest.next();
    if next.is_some() {
        let waiters = rest.map(|waiter| Waiter { came: Stage::Called, ..waiter }).collect();
        rounds.insert(hash, Round { stage: Stage::Called, waiters });
    }
    drop(rounds);
    followers.iter().for_each(|waiter| waiter.call.tell(Fate::Done));
    next.iter().for_each(|waiter| waiter.call.tell(Fate::Leads));
    followers.len() as u64
}

impl<S: Scheme> Scheme for LocalCombining<S> {
    type Endpoint = S::Endpoint;
    type Turn<'s>
        = LocalTurn<'s, S>
    where
        S: 's;

    fn endpoint(&self) -> &S::Endpoint {
        self.scheme.endpoint()
    }

    fn reads_before(&self) -> bool {
        self.scheme.reads_before()
    }

    async fn enter(&self, hash: u64, effect: Effect) -> Entered<LocalTurn<'_, S>> {
        let lead = match effect {
            Effect::Overwrite => self.lead_or_follow(hash).await,
            _ => Err(()),
        };
        let lead = match lead {
            Ok(None) => return Entered::Combined,
            Ok(lead) => lead,
            Err(()) => None,
        };
        if let Some(lead) = &lead {
            lead.reaches(Stage::Entering);
        }
        match (self.scheme.enter(hash, effect).await, lead) {
            (Entered::Turn(turn), lead) => {
                if let Some(lead) = &lead {
                    lead.reaches(Stage::Begun);
                }
                Entered::Turn(LocalTurn { turn, lead })
            }
            (Entered::Combined, lead) => {
                let followers = lead.map_or(0, |lead| lead.ends(Some(Stage::Called)));
                self.count(followers);
                Entered::Combined
            }
        }
    }

    async fn missed(&self, times: u32) {
        self.scheme.missed(times).await;
    }

    async fn missed_in<'s>(&'s self, turn: &mut Self::Turn<'s>, times: u32) {
        self.scheme.missed_in(&mut turn.turn, times).await;
    }

    fn line(&self, hash: u64) -> Option<Addr> {
        self.scheme.line(hash)
    }

    fn is_line(&self, words: [u64; 2]) -> bool {
        self.scheme.is_line(words)
    }

    async fn leave(&self, turn: Self::Turn<'_>, ended: Ended) {
        let LocalTurn { turn, lead } = turn;
        if let Some(lead) = lead {
            let followers = lead.ends(ended.replaced.then_some(Stage::Entering));
            self.count(followers);
        }
        self.scheme.leave(turn, ended).await;
    }

    async fn settle(&self) {
        self.scheme.settle().await;
    }
}

impl<S: Scheme> std::fmt::Debug for LocalTurn<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalTurn(leads: {})", self.lead.is_some())
    }
}
