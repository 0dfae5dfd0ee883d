//! Whether what is read is what was written: each value says which write it is from.
//!
//! A read must find a value that a write of this key had begun to write by then, and none that was
//! certainly replaced before the read began: one whose write had returned when another write of the
//! key was called that had returned, too. Sums of additions to one key differ from each other. The
//! store is not asked, and no verb is posted.

use std::collections::{HashMap, HashSet};

use farlock_fabric::Nanos;

/// The values of records that were there at the beginning.
pub(super) const INITIAL: u64 = 0;

struct Write {
    key: u64,
    called: Nanos,
    returned: Option<Nanos>,
}

/// All writes, and what was wrong with reads.
#[derive(Default)]
pub(super) struct Ledger {
    writes: Vec<Write>,
    /// By key: of the writes that have returned, when the last of them was called.
    last: HashMap<u64, Nanos>,
    sums: HashSet<(u64, u64)>,
    violations: u64,
}

impl Ledger {
    /// A write of this key is called; the value that it writes.
    pub(super) fn writes(&mut self, key: u64, called: Nanos) -> u64 {
        self.writes.push(Write { key, called, returned: None });
        self.writes.len() as u64
    }

    /// The write of this value has returned.
    pub(super) fn wrote(&mut self, value: u64, returned: Nanos) {
        let write = &mut self.writes[value as usize - 1];
        write.returned = Some(returned);
        let last = self.last.entry(write.key).or_default();
        *last = write.called.max(*last);
    }

    /// What a read that is called now must know of a key.
    pub(super) fn reads(&self, key: u64) -> Option<Nanos> {
        self.last.get(&key).copied()
    }

    /// A read of this key that was to know this has found this value.
    pub(super) fn read(&mut self, key: u64, known: Option<Nanos>, value: Option<u64>) {
        let is_right = match value {
            None => false,
            Some(INITIAL) => known.is_none(),
            Some(value) => self.writes.get(value as usize - 1).is_some_and(|write| {
                let is_newest = |known| write.returned.is_none_or(|returned| returned >= known);
                write.key == key && known.is_none_or(is_newest)
            }),
        };
        self.violations += u64::from(!is_right);
    }

    /// An addition to this key has returned this sum.
    pub(super) fn added(&mut self, key: u64, sum: u64) {
        self.violations += u64::from(!self.sums.insert((key, sum)));
    }

    /// A scan has found what it may find, or not.
    pub(super) fn scanned(&mut self, is_right: bool) {
        self.violations += u64::from(!is_right);
    }

    pub(super) fn violations(&self) -> u64 {
        self.violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes 1 and 2 of key 7, one after the other, and 3 of key 8.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.writes(7, 10), 1);
        ledger.wrote(1, 20);
        assert_eq!(ledger.writes(7, 30), 2);
        assert_eq!(ledger.writes(8, 30), 3);
        ledger
    }

    #[test]
    fn a_read_finds_what_may_be_there() {
        let mut ledger = ledger();
        let before = ledger.reads(7);
        ledger.read(7, before, Some(1));
        ledger.read(7, before, Some(2));
        ledger.read(9, ledger.reads(9), Some(INITIAL));
        // Write 2 returns while this read is under way, which has found 1 before.
        ledger.wrote(2, 40);
        ledger.read(7, before, Some(1));
        assert_eq!(ledger.violations(), 0);
    }

    #[test]
    fn what_was_replaced_and_what_was_never_written_is_wrong() {
        for (key, value) in
            [(7, Some(1)), (7, Some(3)), (7, Some(9)), (7, Some(INITIAL)), (9, None)]
        {
            let mut ledger = ledger();
            ledger.wrote(2, 40);
            ledger.read(key, ledger.reads(key), value);
            assert_eq!(ledger.violations(), 1, "{value:?}");
        }
    }

    #[test]
    fn no_sum_comes_twice() {
        let mut ledger = Ledger::default();
        for (key, sum) in [(1, 1), (1, 2), (2, 1)] {
            ledger.added(key, sum);
        }
        assert_eq!(ledger.violations(), 0);
        ledger.added(1, 2);
        assert_eq!(ledger.violations(), 1);
    }
}
