//! `farlock-lab drift` and `farlock-lab long-reads`: leases over times that nobody waits for.
//!
//! Virtual time is free where nothing happens, so a lease of a minute costs no more than one of a
//! millisecond, and a year of them some seconds.

pub mod drift;
pub mod long_reads;

use std::cell::RefCell;
use std::rc::Rc;

use farlock_check::client::{AnyClient, Held};
use farlock_fabric::{Endpoint, Nanos};
use farlock_locks::{Mode, Token};
use serde::Serialize;

use crate::subject::Simulated;

/// A client in a simulated world.
type Client = Rc<dyn AnyClient<Simulated>>;

/// Who is inside one lock, and until when by its own clock: beyond that nobody counts as inside.
#[derive(Clone, Default)]
struct Inside(Rc<RefCell<Judged>>);

#[derive(Default)]
struct Judged {
    holds: Vec<Hold>,
    token_max: Option<Token>,
    writer_token_max: Option<Token>,
    verdict: Verdict,
}

struct Hold {
    who: u16,
    mode: Mode,
    expires: Nanos,
    clock: Rc<dyn Fn() -> Nanos>,
}

/// What was seen of one lock.
#[derive(Clone, Copy, Default, Debug, Serialize)]
struct Verdict {
    /// Times that a client was granted the lock.
    grants: u64,
    /// Of those, how often another client was inside that must not be.
    overlaps: u64,
    /// How often a token was no higher than one before it that must be lower.
    tokens_back: u64,
}

impl Inside {
    /// `who` was granted the lock.
    fn enter(&self, who: u16, client: &Client, guard: &Held<'_>) {
        let (judged, mode, client) = (&mut *self.0.borrow_mut(), guard.mode(), Rc::clone(client));
        judged.verdict.grants += 1;
        judged.holds.retain(|hold| (hold.clock)() < hold.expires);
        let expires = guard.expires().unwrap_or(Nanos::MAX);
        if client.endpoint().now() < expires {
            let beside = |hold: &Hold| mode == Mode::Exclusive || hold.mode == Mode::Exclusive;
            judged.verdict.overlaps += u64::from(judged.holds.iter().any(beside));
            let clock = Rc::new(move || client.endpoint().now());
            judged.holds.push(Hold { who, mode, expires, clock });
        }
        let Some(token) = guard.fabric_token() else { return };
        let above = match mode {
            Mode::Exclusive => judged.token_max,
            Mode::Shared => judged.writer_token_max,
        };
        judged.verdict.tokens_back += u64::from(above.is_some_and(|above| token <= above));
        judged.token_max = judged.token_max.max(Some(token));
        if mode == Mode::Exclusive {
            judged.writer_token_max = Some(token);
        }
    }

    /// `who` is about to release it.
    fn leave(&self, who: u16) {
        self.0.borrow_mut().holds.retain(|hold| hold.who != who);
    }

    fn verdict(&self) -> Verdict {
        self.0.borrow().verdict
    }
}

/// A share as people read it.
fn percent(part: u64, of: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / of.max(1) as f64)
}
