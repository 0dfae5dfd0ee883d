//! Planted bugs of the range lock on a tree: what its paper has, or forgets.

use std::cell::Cell;

use farlock_fabric::{Link, MaskedCas, MaskedFaa, Nanos, Verb, Wait};

use super::tampered::Flaw;
use crate::record::citron::word::{GET_IN_LINE, NOTIFY, NodeWord, RETRACT};

const OCC: u64 = NodeWord::OCC.mask() as u64;
const T_CNT: u64 = NodeWord::T_CNT.mask() as u64;

/// A client that has notified the nodes above does not look at them again: the paper's protocol
/// without its waits for time. An owner that occupied one above in between may look before it was
/// notified.
#[derive(Debug, Default)]
pub struct LooksOnce {
    /// From which link on the last chain looks once more.
    again: Cell<Option<usize>>,
}

impl Flaw for LooksOnce {
    fn chains<'v>(&self, chain: &[Link<'v>]) -> Option<Vec<Link<'v>>> {
        let notifies =
            |link: &Link<'_>| matches!(link.verb, Verb::MaskedFaa64 { op, .. } if op == NOTIFY);
        let reads = |link: &Link<'_>| matches!(link.verb, Verb::Read { .. });
        let again = chain.iter().position(reads).filter(|_| chain.iter().any(notifies));
        self.again.set(again);
        None
    }

    fn links(&self, index: usize, old: u128) -> u128 {
        let again = self.again.get().is_some_and(|again| index >= again);
        if again { old & !u128::from(OCC) } else { old }
    }
}

/// How long owners wait in the locks of these exhibits before they look below, in nanoseconds.
pub const WAIT_NS: Nanos = 15_000;

/// The owner of a node looks below at once: who has seen that vacant may notify it later.
#[derive(Debug, Default)]
pub struct LooksAtOnce;

impl Flaw for LooksAtOnce {
    fn waits<'w>(&self, wait: Wait<'w>) -> Wait<'w> {
        let waits_for_time = wait.word.is_none() && wait.interval == Some(WAIT_NS);
        Wait { interval: if waits_for_time { Some(0) } else { wait.interval }, ..wait }
    }
}

/// Who has taken longer than owners wait does not give way: by its clock no time has passed.
#[derive(Debug, Default)]
pub struct NeverLate;

impl Flaw for NeverLate {
    fn tells_time(&self, _: Nanos) -> Nanos {
        0
    }
}

/// A reader notifies nobody: a writer above, who looked at its readers alone, overlooks it.
#[derive(Debug, Default)]
pub struct ReaderUnseen;

impl Flaw for ReaderUnseen {
    fn chains<'v>(&self, chain: &[Link<'v>]) -> Option<Vec<Link<'v>>> {
        // The word of readers is the second one of a node.
        let counts = |op: MaskedFaa<u64>| op == NOTIFY || op == RETRACT;
        let quiet = |link: &Link<'v>| match link.verb {
            Verb::MaskedFaa64 { addr, op } if addr.offset() % 16 != 0 && counts(op) => {
                let op = MaskedFaa { add: 0, ..op };
                Link { verb: Verb::MaskedFaa64 { addr, op }, ..*link }
            }
            _ => *link,
        };
        Some(chain.iter().map(quiet).collect())
    }
}

/// A turn is given back by the verb of a release, which adds: it sets the flag that it was to
/// clear.
#[derive(Debug, Default)]
pub struct AbortIsRelease;

impl Flaw for AbortIsRelease {
    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        Some(match verb {
            Verb::MaskedCas64 { addr, op }
                if op.compare_mask == OCC | T_CNT
                    && op.swap_mask == op.compare_mask
                    && op.compare & OCC == 0 =>
            {
                let one = NodeWord::new().with(NodeWord::OCC, 1).with(NodeWord::T_CNT, 1);
                Verb::MaskedFaa64 { addr, op: MaskedFaa { add: one.0, ..GET_IN_LINE } }
            }
            verb => verb,
        })
    }
}

/// The bits of a leaf are given back twice, the second time by a verb that may come late: nothing
/// in them says whose they are by then.
#[derive(Debug, Default)]
pub struct LateBits;

impl Flaw for LateBits {
    fn doubles(&self, verb: &Verb<'_>) -> bool {
        let frees = |op: &MaskedCas<u64>| op.swap == 0 && op.compare == op.compare_mask;
        matches!(verb, Verb::MaskedCas64 { op, .. } if frees(op))
    }
}
