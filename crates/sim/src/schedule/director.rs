//! Lends a schedule to worlds, and writes down what it answered.

use std::cell::RefCell;
use std::rc::Rc;

use farlock_fabric::Nanos;

use super::oracle::Schedule;
use super::trail::Trail;
use crate::fault::Ratio;
use crate::oracle::{Candidates, Choice, Oracle};

/// Lends a schedule to one world after another, and writes each run's trail.
#[derive(Debug)]
pub struct Director<S>(Rc<RefCell<Directed<S>>>);

#[derive(Debug)]
struct Directed<S> {
    schedule: S,
    trail: Trail,
    asked: u32,
}

impl<S: Schedule + 'static> Director<S> {
    /// A director of this schedule.
    pub fn new(schedule: S) -> Self {
        Self(Rc::new(RefCell::new(Directed { schedule, trail: Trail::default(), asked: 0 })))
    }

    /// The oracle of the next run; `None` if every run has been.
    pub fn begin(&self) -> Option<Box<dyn Oracle>> {
        let directed = &mut *self.0.borrow_mut();
        directed.trail.clear();
        directed.asked = 0;
        directed.schedule.begin().then(|| Box::new(Self(Rc::clone(&self.0))) as Box<dyn Oracle>)
    }

    /// The trail of the last run, or of this one so far.
    pub fn trail(&self) -> Trail {
        self.0.borrow().trail.clone()
    }

    /// How many questions the last run was asked, or this one so far.
    pub fn asked(&self) -> u32 {
        self.0.borrow().asked
    }

    /// Looks at the schedule.
    pub fn with<T>(&self, look: impl FnOnce(&mut S) -> T) -> T {
        look(&mut self.0.borrow_mut().schedule)
    }
}

impl<S: Schedule> Oracle for Director<S> {
    fn next(&mut self, candidates: &Candidates<'_>) -> Option<u32> {
        let directed = &mut *self.0.borrow_mut();
        let chosen = directed.schedule.next(candidates)?;
        directed.trail.note_event(directed.asked, candidates, chosen);
        directed.asked += 1;
        Some(chosen)
    }

    fn pick(&mut self, choice: Choice, n: u32) -> u32 {
        if n <= 1 {
            return 0;
        }
        let directed = &mut *self.0.borrow_mut();
        let answer = directed.schedule.pick(choice, n);
        directed.trail.note(directed.asked, answer);
        directed.asked += 1;
        answer
    }

    fn chance(&mut self, choice: Choice, ratio: Ratio) -> bool {
        if !ratio.is_possible() {
            return false;
        }
        let directed = &mut *self.0.borrow_mut();
        let answer = directed.schedule.chance(choice, ratio);
        directed.trail.note(directed.asked, u32::from(answer));
        directed.asked += 1;
        answer
    }

    fn jitter(&mut self, mean_ns: u32) -> Nanos {
        self.0.borrow_mut().schedule.jitter(mean_ns)
    }
}
