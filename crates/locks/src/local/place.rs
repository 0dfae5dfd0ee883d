//! Which of a client's tasks holds, asks for, and waits for which lock, or which part of one.
//! Nothing here posts a verb.
//!
//! ```text
//! place of a lock:   hold that is handed on      or  leader that asks the fabric
//!                    line of tasks that wait, first come, first served
//! ```
//!
//! While there is a hold that is handed on, the first task in line wants it in its mode. A hold
//! that cannot be that task's, for its mode or its turns, is its users' alone from then on, and the
//! task leads. So between two changes a line has a hold or a leader, or there is no line.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Waker};

use crate::want::Mode;

/// A client has so many slots at most.
const SLOTS_MAX: usize = 64;

/// What a task is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// It is to ask the fabric.
    Leads,
    /// It has the hold of this slot, which was handed on so often before.
    Held { index: u8, turn: u32 },
}

/// A task in line.
#[derive(Debug)]
pub(super) struct Waiter {
    mode: Mode,
    told: RefCell<Told>,
}

#[derive(Debug)]
enum Told {
    Nothing(Option<Waker>),
    Answer(Answer),
}

impl Waiter {
    /// What it was told. If nothing, it will be woken.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Option<Answer> {
        match &mut *self.told.borrow_mut() {
            Told::Answer(answer) => Some(*answer),
            Told::Nothing(waker) => {
                *waker = Some(cx.waker().clone());
                None
            }
        }
    }

    /// What it was told.
    pub(super) fn answer(&self) -> Option<Answer> {
        match *self.told.borrow() {
            Told::Answer(answer) => Some(answer),
            Told::Nothing(_) => None,
        }
    }

    fn tell(&self, answer: Answer) {
        let before = self.told.replace(Told::Answer(answer));
        match before {
            Told::Nothing(Some(waker)) => waker.wake(),
            Told::Nothing(None) => {}
            Told::Answer(_) => panic!("a task in line is told once"),
        }
    }
}

/// A hold of the client.
#[derive(Clone, Copy, Debug)]
struct Hold {
    mode: Mode,
    /// Tasks that have it.
    users: u32,
    /// How often it was handed on.
    turns: u32,
}

/// A lock that a task holds, asks for or awaits.
#[derive(Debug)]
struct Place<K> {
    lock: K,
    /// The slot of the hold that is handed on.
    current: Option<u8>,
    /// A task asks the fabric.
    leading: bool,
    line: VecDeque<Rc<Waiter>>,
}

/// All places of a client, and its holds.
#[derive(Debug)]
pub(super) struct Places<K> {
    /// 0: there are no places, and every task asks the fabric.
    handovers_max: u32,
    /// By slot.
    holds: [Hold; SLOTS_MAX],
    /// No more than the client has slots: each has a leader or a hold. A look at all of them is
    /// short, and allocates nothing.
    places: Vec<Place<K>>,
}

impl<K: Copy + Eq> Places<K> {
    pub(super) fn new(handovers_max: u32) -> Self {
        let hold = Hold { mode: Mode::Shared, users: 0, turns: 0 };
        Self { handovers_max, holds: [hold; SLOTS_MAX], places: Vec::new() }
    }

    /// A task wants the lock: what it is to do, or its place in line.
    pub(super) fn enter(&mut self, lock: K, mode: Mode) -> Result<Answer, Rc<Waiter>> {
        if let Some(answer) = self.try_enter(lock, mode) {
            return Ok(answer);
        }
        let waiter = Rc::new(Waiter { mode, told: RefCell::new(Told::Nothing(None)) });
        let at = self.find(lock).expect("a lock that nobody has is had at once");
        self.places[at].line.push_back(Rc::clone(&waiter));
        self.advance(at);
        match waiter.answer() {
            Some(answer) => Ok(answer),
            None => Err(waiter),
        }
    }

    /// What a task is to do that does not wait for another; `None` if it would have to.
    pub(super) fn try_enter(&mut self, lock: K, mode: Mode) -> Option<Answer> {
        if self.handovers_max == 0 {
            return Some(Answer::Leads);
        }
        let Some(at) = self.find(lock) else {
            let line = VecDeque::new();
            self.places.push(Place { lock, current: None, leading: true, line });
            return Some(Answer::Leads);
        };
        let place = &self.places[at];
        let hold = place.current.map(|index| self.holds[usize::from(index)].mode);
        let joins = place.line.is_empty() && (hold, mode) == (Some(Mode::Shared), Mode::Shared);
        joins.then(|| self.hand_on(at))
    }

    /// The leader was granted the lock in this slot. `lasts` says that it may be handed on.
    pub(super) fn granted(&mut self, lock: K, mode: Mode, index: u8, lasts: bool) {
        self.holds[usize::from(index)] = Hold { mode, users: 1, turns: 0 };
        if self.handovers_max == 0 {
            return;
        }
        let at = self.find(lock).expect("who leads has a place");
        let place = &mut self.places[at];
        assert!(place.leading && place.current.is_none(), "there is one leader, or a hold");
        place.leading = false;
        place.current = lasts.then_some(index);
        self.advance(at);
    }

    /// The leader gave up, or failed.
    pub(super) fn leads_no_more(&mut self, lock: K) {
        if self.handovers_max == 0 {
            return;
        }
        let at = self.find(lock).expect("who leads has a place");
        assert!(self.places[at].leading, "somebody leads");
        self.places[at].leading = false;
        self.advance(at);
    }

    /// A task in line gives up.
    pub(super) fn withdraws(&mut self, lock: K, waiter: &Rc<Waiter>) {
        let at = self.find(lock).expect("who is in line has a place");
        self.places[at].line.retain(|other| !Rc::ptr_eq(other, waiter));
        self.advance(at);
    }

    /// A task lets go of the hold in this slot; `hands_on` says that it may go to another. Whether
    /// nobody has it any more.
    pub(super) fn leaves(&mut self, lock: K, index: u8, hands_on: bool) -> bool {
        let hold = &mut self.holds[usize::from(index)];
        hold.users = hold.users.checked_sub(1).expect("who lets go of a hold had it");
        if hold.users > 0 {
            return false;
        }
        let is_handed_on = |place: &Place<K>| place.lock == lock && place.current == Some(index);
        let Some(at) = self.places.iter().position(is_handed_on) else { return true };
        let next = if hands_on { self.places[at].line.pop_front() } else { None };
        match next {
            Some(next) => {
                let answer = self.hand_on(at);
                next.tell(answer);
            }
            None => self.places[at].current = None,
        }
        self.advance(at);
        self.holds[usize::from(index)].users == 0
    }

    fn find(&self, lock: K) -> Option<usize> {
        self.places.iter().position(|place| place.lock == lock)
    }

    /// One task more has the hold of this place, which may be the last to which it is handed on.
    fn hand_on(&mut self, at: usize) -> Answer {
        let place = &mut self.places[at];
        let index = place.current.expect("a hold is there to be handed on");
        let hold = &mut self.holds[usize::from(index)];
        hold.users += 1;
        hold.turns += 1;
        if hold.turns == self.handovers_max {
            place.current = None;
        }
        Answer::Held { index, turn: hold.turns }
    }

    /// Something changed at this place: the tasks that can go on do.
    fn advance(&mut self, at: usize) {
        while !self.places[at].leading {
            let place = &mut self.places[at];
            let Some(first) = place.line.front() else { break };
            let hold = place.current.map(|index| self.holds[usize::from(index)].mode);
            if (hold, first.mode) == (Some(Mode::Exclusive), Mode::Exclusive) {
                break;
            }
            let first = place.line.pop_front().expect("it has a first");
            if (hold, first.mode) == (Some(Mode::Shared), Mode::Shared) {
                let answer = self.hand_on(at);
                first.tell(answer);
            } else {
                place.current = None;
                place.leading = true;
                first.tell(Answer::Leads);
            }
        }
        let place = &self.places[at];
        if place.current.is_none() && !place.leading && place.line.is_empty() {
            self.places.swap_remove(at);
        }
    }
}
