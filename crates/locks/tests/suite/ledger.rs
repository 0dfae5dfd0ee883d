//! The judge: who is inside which lock, told by the clients and known to no protocol.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use farlock_fabric::Addr;
use farlock_locks::{Mode, Token};

/// One ledger for all locks of a test.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    locks: BTreeMap<Addr, Lock>,
    violations: Vec<String>,
}

#[derive(Default)]
struct Lock {
    readers: BTreeMap<u64, ()>,
    writer: Option<u64>,
    token_max: Option<Token>,
    writer_token_max: Option<Token>,
    readers_max: usize,
    grants: Vec<(u64, Mode)>,
}

impl Ledger {
    /// `who` holds from now on.
    pub(crate) fn enter(&self, lock: Addr, who: u64, mode: Mode, token: Option<Token>) {
        let state = &mut *self.0.borrow_mut();
        let entry = state.locks.entry(lock).or_default();
        let taken =
            entry.writer.is_some() || (mode == Mode::Exclusive && !entry.readers.is_empty());
        if taken {
            state.violations.push(format!(
                "{who} enters {lock:?} {mode:?} beside writer {:?}, readers {:?}",
                entry.writer,
                entry.readers.keys()
            ));
        }
        match mode {
            Mode::Exclusive => entry.writer = Some(who),
            Mode::Shared => {
                entry.readers.insert(who, ());
                entry.readers_max = entry.readers_max.max(entry.readers.len());
            }
        }
        entry.grants.push((who, mode));
        let Some(token) = token else { return };
        // A writer's token is above every earlier one; a reader's is above the last writer's.
        let above = match mode {
            Mode::Exclusive => entry.token_max,
            Mode::Shared => entry.writer_token_max,
        };
        if above.is_some_and(|above| token <= above) {
            state.violations.push(format!("{who} enters {lock:?} with {token:?} after {above:?}"));
        }
        entry.token_max = entry.token_max.max(Some(token));
        if mode == Mode::Exclusive {
            entry.writer_token_max = Some(token);
        }
    }

    /// `who` holds no longer: called just before its release.
    pub(crate) fn leave(&self, lock: Addr, who: u64) {
        let state = &mut *self.0.borrow_mut();
        let entry = state.locks.entry(lock).or_default();
        if entry.writer == Some(who) {
            entry.writer = None;
        }
        entry.readers.remove(&who);
    }

    /// Those who are dead have left.
    pub(crate) fn bury(&self, lock: Addr, is_dead: impl Fn(u64) -> bool) {
        let state = &mut *self.0.borrow_mut();
        let entry = state.locks.entry(lock).or_default();
        entry.writer = entry.writer.filter(|who| !is_dead(*who));
        entry.readers.retain(|who, ()| !is_dead(*who));
    }

    /// The clients that were granted `lock`, in order.
    pub(crate) fn grants(&self, lock: Addr) -> Vec<(u64, Mode)> {
        self.0.borrow().locks.get(&lock).map(|l| l.grants.clone()).unwrap_or_default()
    }

    /// The most readers that were ever inside at once.
    pub(crate) fn readers_max(&self, lock: Addr) -> usize {
        self.0.borrow().locks.get(&lock).map_or(0, |l| l.readers_max)
    }

    /// Fails the test if a client was inside with another that must not be.
    pub(crate) fn assert_clean(&self, context: &str) {
        let state = self.0.borrow();
        assert!(state.violations.is_empty(), "{context}: {:#?}", state.violations);
    }

    /// How many violations there were.
    pub(crate) fn violations(&self) -> usize {
        self.0.borrow().violations.len()
    }
}
