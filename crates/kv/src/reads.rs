//! Local read delegation: what several of one client's tasks read of one key at once is read once
//! (SMART, OSDI'23).
//!
//! ```text
//! leader     the first of a round: reads
//! followers  came before the leader began: they have its answer
//! late       came since: the first of them leads the next round, the others follow it
//! ```
//!
//! A read is of a moment after its call. So an answer is not given to a task that came while it was
//! being read, for that moment may have been before: it waits for the next one. The published
//! tree bounds how old an answer may be by time.
//!
//! Nothing here is in memory that others see, and no verb is posted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use farlock_fabric::Nanos;

use crate::error::ReadError;

/// What a read comes to.
pub(crate) type Answer = Result<Option<Vec<u8>>, ReadError>;

/// The reads of a client that are under way, by their keys.
pub(crate) struct Reads {
    rounds: RefCell<BTreeMap<Vec<u8>, Round>>,
    /// Tasks that wait, by their numbers.
    calls: RefCell<BTreeMap<u64, Call>>,
    /// The number of the next one.
    next: Cell<u64>,
    pub(crate) patience_ns: Nanos,
}

/// Those of one key, of which one leads.
#[derive(Default)]
struct Round {
    followers: Vec<u64>,
    late: Vec<u64>,
}

/// What a task waits for.
#[derive(Default)]
struct Call {
    fate: Option<Fate>,
    waker: Option<Waker>,
}

/// What becomes of a call.
pub(crate) enum Fate {
    Answered(Answer),
    Leads,
}

/// A task leads a round; dropped, it leaves the lead to the next.
pub(crate) struct Lead<'s> {
    reads: &'s Reads,
    key: &'s [u8],
    is_over: bool,
}

/// A task waits in a round; dropped, it waits no more.
pub(crate) struct Waiting<'s> {
    reads: &'s Reads,
    key: &'s [u8],
    number: u64,
}

impl Reads {
    /// None are under way. A task waits up to so many nanoseconds.
    pub(crate) fn new(patience_ns: Nanos) -> Self {
        let (rounds, calls, next) = Default::default();
        Self { rounds, calls, next, patience_ns }
    }

    /// Leads a round of this key, or waits in one.
    pub(crate) fn join<'s>(&'s self, key: &'s [u8]) -> Result<Lead<'s>, Waiting<'s>> {
        let mut rounds = self.rounds.borrow_mut();
        let Some(round) = rounds.get_mut(key) else {
            rounds.insert(key.to_vec(), Round::default());
            return Ok(self.lead(key));
        };
        let number = self.next.replace(self.next.get() + 1);
        round.late.push(number);
        self.calls.borrow_mut().insert(number, Call::default());
        Err(Waiting { reads: self, key, number })
    }

    /// Leads a round of this key, which was left to this task or begins.
    pub(crate) fn lead<'s>(&'s self, key: &'s [u8]) -> Lead<'s> {
        Lead { reads: self, key, is_over: false }
    }

    /// Tells a task what becomes of its call.
    fn tell(&self, number: u64, fate: Fate) {
        let mut calls = self.calls.borrow_mut();
        let call = calls.get_mut(&number).expect("those that are in a round wait");
        call.fate = Some(fate);
        let waker = call.waker.take();
        drop(calls);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Ends the round of this key. Followers have the answer, if there is one, and else go on with
    /// those that are late; of these the first leads the next round. By a planted bug those that
    /// are late have the answer too.
    fn end(&self, key: &[u8], answer: Option<&Answer>, gives_late: bool) {
        let mut rounds = self.rounds.borrow_mut();
        let round = rounds.remove(key).expect("a round lasts as long as it is led");
        let (mut answered, mut rest) = (round.followers, round.late);
        if answer.is_none() {
            rest = answered.drain(..).chain(rest).collect();
        } else if gives_late {
            answered.append(&mut rest);
        }
        let mut rest = rest.into_iter();
        let next = rest.next();
        if next.is_some() {
            let round = Round { followers: rest.collect(), late: Vec::new() };
            rounds.insert(key.to_vec(), round);
        }
        drop(rounds);
        if let Some(answer) = answer {
            let answer = || Fate::Answered(answer.clone());
            answered.into_iter().for_each(|number| self.tell(number, answer()));
        }
        next.into_iter().for_each(|number| self.tell(number, Fate::Leads));
    }
}

impl Lead<'_> {
    /// It has read.
    pub(crate) fn ends(mut self, answer: &Answer, gives_late: bool) {
        self.is_over = true;
        self.reads.end(self.key, Some(answer), gives_late);
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.reads.end(self.key, None, false);
        }
    }
}

impl Waiting<'_> {
    /// What becomes of this call.
    pub(crate) async fn told(&self) -> Fate {
        poll_fn(|cx| {
            let mut calls = self.reads.calls.borrow_mut();
            let call = calls.get_mut(&self.number).expect("it is there as long as it waits");
            match call.fate.take() {
                Some(fate) => Poll::Ready(fate),
                None => {
                    call.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let call = self.reads.calls.borrow_mut().remove(&self.number);
        if let Some(Call { fate: Some(Fate::Leads), .. }) = call {
            self.reads.end(self.key, None, false);
        } else if let Some(round) = self.reads.rounds.borrow_mut().get_mut(self.key) {
            round.followers.retain(|other| *other != self.number);
            round.late.retain(|other| *other != self.number);
        }
    }
}
