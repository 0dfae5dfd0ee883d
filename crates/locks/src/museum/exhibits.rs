//! The exhibits there are: one list, from which the checker and the tests expand.

use std::any::TypeId;

use farlock_fabric::WideAtomics;

use super::citron_flaws::{
    AbortIsRelease, LateBits, LooksAtOnce, LooksOnce, NeverLate, ReaderUnseen, WAIT_NS,
};
use super::declock_printed::{ExactTurn, HolderAcknowledges, WaitsForNote};
use super::flaws::{
    DeathUnwatched, FEW_TICKETS, ForgottenHandover, GenerationBySize, HoldsForever, LateRelease,
    LeaseOverlooked, LostIsDone, OfAnotherLock, OpeningUnpublished, ReadersNotAwaited,
    RepairWithoutDrain, RepairerOverlooked, ResetOverlooked, ResetUnclaimed, Sound,
    SuspectedIsNotDead, UnbumpedGeneration, Untagged, WrappedCounter, ZombieWrite,
};
use super::lease_flaws::{LateReader, LateWriter, ReaderLost, RenewalUnread, WriterLost};
use super::printed_repairs::{EpochZeroed, UndoneByAdding};
use super::rma_printed::{ResetBySubtracting, WaitsForReset};
use super::tampered::Tampered;
use super::{DslrPrinted, EpochLost, GivesUp, LeasedByClock, LostWakeUp, RidingRead, TornStamp};
use crate::Lock;
use crate::record::bakery::{LEASE_NS, Lease, Waiting};
use crate::record::{
    cas::Cas, citron::Exclusive, citron::Shared, declock::DecLock, dslr::Dslr, dslr_64::Dslr64,
    mcs::Mcs, none::NoLock, retry_on_fail::RetryOnFail, rma_rw::RmaRw, shiftlock::ShiftLock,
    shiftlock::extended::Extended,
};

/// What is known of an exhibit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhibit {
    /// What the command line calls it.
    pub name: &'static str,
    /// What is wrong with it, in a line.
    pub story: &'static str,
    /// Whether its clients settle what they gave up.
    pub settles: bool,
    /// Whether its lock outlives clients that die; if not, nobody dies.
    pub repairs: bool,
    /// What it claims: mostly an order of grants.
    pub order: Claim,
    /// How many locks it takes to show it.
    pub locks: u16,
}

/// An order of grants, or what else an exhibit is held to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// None: its mistake is another one.
    Nothing,
    /// Writers are granted in the order in which they came.
    WritersInOrder,
    /// The same, but one that comes later may pass between two of them.
    OneMayPass,
    /// A waiting writer keeps later readers out.
    WritersKeepReadersOut,
    /// A waiting writer keeps later readers out when few rounds of them have passed it.
    FewRoundsPass,
    /// A try fails only beside the living.
    TriesTellTruth,
    /// Who withdraws is soon as if it had never asked.
    Withdraws,
    /// A waiter that is stopped is passed over.
    PassesOverStopped,
}

/// What is done with an exhibit: a lock over endpoints that `wrap` makes.
pub trait ExhibitVisitor<E: WideAtomics> {
    /// What comes of it.
    type Output;

    /// The lock, and how its clients see the fabric.
    fn visit<L: Lock<Tampered<E>>>(self, lock: L, wrap: fn(E) -> Tampered<E>) -> Self::Output;
}

macro_rules! exhibits {
    (@locks) => { 1 };
    (@locks $locks:literal) => { $locks };
    ($($name:literal, $flaw:ty, $lock:expr, $settles:literal, $repairs:literal,
        $order:ident $(at $locks:literal locks)?, $story:literal;)+) => {
        /// Every exhibit.
        pub const EXHIBITS: &[Exhibit] = &[$(
            Exhibit {
                name: $name,
                story: $story,
                settles: $settles,
                repairs: $repairs,
                order: Claim::$order,
                locks: exhibits!(@locks $($locks)?),
            }
        ),+];

        /// Visits the lock of the exhibit of this name without its flaw; `None` if there is no such
        /// exhibit, or if the lock itself is what is wrong.
        pub fn visit_twin<E: WideAtomics, V: ExhibitVisitor<E>>(
            name: &str,
            visitor: V,
        ) -> Option<V::Output> {
            match name {
                $($name if TypeId::of::<$flaw>() != TypeId::of::<Sound>() => {
                    Some(visitor.visit($lock, Tampered::with::<Sound>))
                })+
                _ => None,
            }
        }

        /// Visits the exhibit of this name; `None` if there is none.
        pub fn visit<E: WideAtomics, V: ExhibitVisitor<E>>(
            name: &str,
            visitor: V,
        ) -> Option<V::Output> {
            match name {
                $($name => Some(visitor.visit($lock, Tampered::with::<$flaw>)),)+
                _ => None,
            }
        }
    };
}

exhibits! {
    "none", Sound, NoLock, true, true, Nothing, "excludes nobody";
    "epoch-lost", Sound, EpochLost { sound: every_writer() }, true, true, Nothing,
        "ShiftLock as printed: a writer flips the epoch that it remembers";
    "epoch-zeroed", EpochZeroed, every_writer(), true, true, Nothing,
        "ShiftLock as printed: a repair zeroes the epoch, which a reader takes for its turn";
    "reader-gives-up", Sound, GivesUp { sound: every_writer() }, true, false, Nothing,
        "a waiting reader leaves with the verb of a release";
    "undone-by-adding", UndoneByAdding, few_tickets(), true, false, Nothing,
        "DSLR as printed: who finds the counters full adds -1 to what may have been reset";
    "dslr-passed-first", Sound, dslr_printed(false), true, false, Nothing,
        "DSLR as printed: a reader that was passed by later readers fails, and keeps its ticket";
    "dslr-readers-reset", Sound, dslr_printed(true), true, true, Nothing,
        "DSLR as printed, turn tested first: a reader's reset passes over earlier readers";
    "untagged-messages", Untagged, Mcs::default(), true, true, Nothing,
        "notes are believed whatever generation they name";
    "notes-of-another-lock", OfAnotherLock, Mcs::default(), true, true, Nothing at 2 locks,
        "notes are believed whatever lock they name";
    "news-of-another-lock", OfAnotherLock, every_writer(), true, true, Nothing at 2 locks,
        "the same in ShiftLock, whose readers hear of their turn by other ways";
    "lost-is-done", LostIsDone, Mcs::default(), true, true, Nothing,
        "a slot goes on where it does not know what became of its verb";
    "lost-reader-goes-on", LostIsDone, every_writer(), true, true, Nothing,
        "the same in ShiftLock, where a reader's verb adds";
    "holds-forever", HoldsForever, Mcs::default(), true, true, Nothing,
        "who has released says that it holds until it acquires again";
    "reads-forever", HoldsForever, patient_shiftlock(), true, true, Nothing,
        "the same in ShiftLock, of whose readers the word knows only how many they are";
    "late-release", LateRelease, every_writer(), true, true, Nothing,
        "a release after a repair counts like any other";
    "lost-wake-up", Sound, LostWakeUp::default(), true, false, Nothing,
        "a waiter compares with what it sees after it has decided to wait";
    "forgotten-handover", ForgottenHandover, Mcs::default(), true, true, Nothing,
        "a holder that finds a waiter in line when it closes thinks that it has released";
    "unbumped-generation", UnbumpedGeneration, Mcs::default(), true, true, Nothing,
        "a repair begins no new generation";
    "wrapped-counter", WrappedCounter, patient_shiftlock(), true, true, Nothing,
        "two readers are none";
    "generation-by-size", GenerationBySize, Mcs::default(), true, true, Nothing,
        "of two generations the larger number is the newer";
    "lease-overlooked", LeaseOverlooked, leased(), true, true, Nothing,
        "a holder whose lease has ended releases all the same";
    "reader-lost", ReaderLost, leased_shiftlock(), true, true, Nothing,
        "a reader that releases within its lease is told that it lost the lock";
    "writer-lost", WriterLost, leased_shiftlock(), true, true, Nothing,
        "a writer that hands over within its lease is told that it lost the lock";
    "late-reader", LateReader, leased_shiftlock(), true, true, Nothing,
        "ShiftLock as printed: a reader whose lease has ended takes another off";
    "late-writer", LateWriter, leased_shiftlock(), true, true, Nothing,
        "ShiftLock as printed: a writer whose lease has ended makes another's count come early";
    "late-handover", RenewalUnread, leased_shiftlock(), true, true, Nothing,
        "a handover that comes after a reset is believed";
    "leased-by-clock", Sound, LeasedByClock, true, true, Nothing,
        "a lease that ends at an hour, on any client's clock";
    "torn-read", Sound, TornStamp, true, false, Nothing,
        "16 bytes that were read together belong together";
    "zombie-write", ZombieWrite, Cas::without_backoff(), true, true, Nothing,
        "a release is sent twice, and the first lands last";
    "suspected-is-not-dead", SuspectedIsNotDead, Cas::without_backoff(), true, true, Nothing,
        "a slow holder is taken for dead";
    "leak-on-cancel", Sound, Mcs::default(), false, true, Nothing,
        "a waiter that gives up does not settle";
    "riding-read", Sound, RidingRead, true, false, Nothing,
        "a release overtakes the read before it";
    "repair-without-drain", RepairWithoutDrain, Mcs::default(), true, true, Nothing,
        "a repairer does not wait for the living of the old generation";
    "death-unwatched", DeathUnwatched, Mcs::default(), true, true, Nothing,
        "a waiter does not watch the one before it";
    "opening-unpublished", OpeningUnpublished, Mcs::default(), true, true, Nothing,
        "a repairer does not see who is just getting in line";
    "readers-not-awaited", ReadersNotAwaited, every_writer(), true, true, Nothing,
        "a writer does not wait for the readers that went before it";
    "reset-overlooked", ResetOverlooked, Mcs::default(), true, true, Nothing,
        "a waiter does not listen to who repairs";
    "repairer-overlooked", RepairerOverlooked, patient_dslr(), true, true, Nothing,
        "of two waiters that repair at once, each takes the other for dead";
    "reset-unclaimed", ResetUnclaimed, patient_with_few_tickets(), true, true, Nothing,
        "who resets DSLR's full counters compares the word, which has come round to the same";
    "reset-by-subtracting", ResetBySubtracting, few_turns(), true, false, Nothing,
        "RMA-RW as printed: two readers take the same departures off the counts";
    "waits-for-reset", WaitsForReset, few_turns(), true, false, Nothing,
        "RMA-RW as printed: a reader waits for a reset that was before it came";
    "holder-acknowledges", HolderAcknowledges, patient_declock(), true, true, Nothing,
        "DecLock as printed: a client that holds acknowledges a reset";
    "waits-for-note", WaitsForNote, patient_declock(), true, true, Nothing,
        "DecLock as printed: a grant that is lost with its sender leaves all in line";
    "exact-turn", ExactTurn, patient_declock(), true, true, Nothing,
        "a reader of DecLock does not see that its turn has passed";
    "abort-keeps-grant", Sound, patient_declock(), false, true, Nothing,
        "DecLock as printed: a waiter that gives up takes the grant with it";
    "looks-once", LooksOnce, citron(), true, true, Nothing at 4 locks,
        "Citron without its waits for time: who has notified those above looks at them no more";
    "waits-for-own", Sound, Exclusive { exempts: false, ..citron() }, true, true,
        Nothing at 4 locks,
        "Citron as printed: who has one of two nodes waits for who occupies one above both";
    "keeps-turn", Sound, Exclusive { keeps_turn: true, ..citron() }, true, true,
        Nothing at 4 locks,
        "Citron as printed: whose turn it is keeps it while it waits for one above";
    "keeps-token", Sound, Shared { keeps_token: true, ..citron_rw() }, true, true,
        Nothing at 4 locks,
        "Citron with a token that was counted before those left for whom its client waits";
    "lets-readers-in-blindly", Sound, Shared { minds_torn_looks: false, ..citron_rw() }, true, true,
        Nothing at 4 locks,
        "a writer of a range becomes a reader beside one that looked for writers before and for \
         readers after";
    "shelf-first", Sound, Exclusive { shelf_blocks: 4, shelf_first: true, ..citron() }, true, true,
        Nothing at 4 locks,
        "of a lock whose holds are written down, the shelf is read before the slots";
    "leaves-first", Sound, Exclusive { leaves_first: true, ..citron() }, true, true,
        Nothing at 4 locks,
        "a hold of a range is divided, and its nodes are given up before those of the parts are \
         taken";
    "part-unseen", Sound, Exclusive { counts_parts: false, looks_again: false, ..citron() }, true,
        true, Nothing at 4 locks,
        "a part of a hold is counted where a request for it would be, and the whole where it was \
         is not any more, and who waited for that looks no more";
    "overtaken-look", Sound, overtaken(), true, true, Nothing at 4 locks,
        "a client that looks around finds a hold neither in the record that it has gone from nor \
         in the one that it has gone to, and does not look again";
    "abort-is-release", AbortIsRelease, citron(), true, true, Nothing at 4 locks,
        "Citron as printed: who gives up its turn releases what it has not occupied";
    "late-bits", LateBits, citron(), true, true, Nothing at 4 locks,
        "Citron as printed: a late release frees bits that others have by then";
    "reader-unseen", ReaderUnseen, citron_rw(), true, true, Nothing at 4 locks,
        "a reader of a range notifies nobody, and a writer above overlooks it";
    "fast-slow", Sound, Cas::without_backoff(), true, true, WritersInOrder,
        "a try at the right moment is served, however long another client waits";
    "two-pass", Sound, two_pass(), true, true, OneMayPass,
        "two that come later pass between two writers of the line, where one may";
    "reader-writer", Sound, RetryOnFail, true, false, WritersKeepReadersOut,
        "readers come in beside readers while a writer waits";
    "try-believes-the-dead", Sound, Cas::without_backoff(), true, true, TriesTellTruth,
        "a try takes the lock for held, though its holder is dead";
    "ghost-in-line", Sound, patient_shiftlock(), true, true, Withdraws,
        "who withdraws stays in line until it is granted, and keeps readers out";
    "waits-for-the-stopped", Sound, Mcs::default(), true, true, PassesOverStopped,
        "a waiter behind one that is stopped waits as long as that";
    // The number of an exhibit decides what is drawn for it: new ones come last.
    "looks-at-once", LooksAtOnce, timed_citron(), true, true, Nothing at 4 locks,
        "Citron with clocks: the owner of a node looks below before those have had their time that \
         have seen it vacant";
    "never-late", NeverLate, timed_citron(), true, true, Nothing at 4 locks,
        "Citron with clocks: who has taken longer than owners wait does not give way";
    "calls-at-one", Sound, Shared { calls_above: false, ..citron_rw() }, true, true,
        FewRoundsPass at 4 locks,
        "a writer that finds readers of two nodes above it asks newcomers at one of these to wait, \
         and those of the other come in";
    "call-unheard", Sound, Shared { heeds_calls: false, ..citron_rw() }, true, true,
        FewRoundsPass at 4 locks,
        "readers of a range do not hear that a writer below asks newcomers to wait";
    "frees-all-leaves", Sound, Exclusive { frees_all_leaves: true, ..fast_citron() }, true, true,
        Nothing at 4 locks,
        "Citron with clocks: who takes the leaves of its node with that, and is given some of \
         them, gives back all four";
    "fast-though-late", Sound, Exclusive { fast_is_never_late: true, ..fast_citron() }, true, true,
        Nothing at 4 locks,
        "Citron with clocks: who was given all leaves of its node does not mind that it was late \
         for an owner above";
    "commits-over-holds", Sound, Exclusive { awaits_older: false, ..tuned_citron() }, true, true,
        Nothing at 4 locks,
        "Citron with clocks: a change of its parameters comes into force beside those who hold and \
         wait by what was before";
}

/// ShiftLock that lets readers in after every writer, and looks at its readers seldom.
fn every_writer() -> ShiftLock {
    ShiftLock { writers_max: 1, poll_ns: 15_000_000, ..ShiftLock::default() }
}

/// ShiftLock that looks at its readers so seldom that waiting for the dead takes few polls.
fn patient_shiftlock() -> ShiftLock {
    ShiftLock { poll_ns: 15_000_000, ..ShiftLock::default() }
}

/// DecLock that looks for entries so seldom that waiting for the dead takes few polls.
fn patient_declock() -> DecLock {
    DecLock { entries: 2, polls: 1, poll_ns: 15_000_000, ..DecLock::default() }
}

/// DSLR that looks at the word so seldom that waiting for the dead takes few polls.
fn patient_dslr() -> Dslr {
    let waiting = Waiting { omega_ns: 2_500_000, ..Waiting::default() };
    Dslr { waiting, ..Dslr::default() }
}

/// The same on 64 bits, and its counters are soon full.
fn patient_with_few_tickets() -> Dslr64 {
    Dslr64 { waiting: patient_dslr().waiting, ..few_tickets() }
}

/// DSLR on 64 bits whose counters are soon full.
fn few_tickets() -> Dslr64 {
    Dslr64 { count_max: FEW_TICKETS, ..Dslr64::default() }
}

/// ShiftLock that lets two pass, and looks at its readers seldom.
fn two_pass() -> ShiftLock {
    ShiftLock { bypass: 2, poll_ns: 15_000_000, ..ShiftLock::default() }
}

/// DSLR whose holders may hold for the paper's lease, and whose waiters look seldom.
fn leased() -> Dslr {
    let lease = Some(Lease { ns: LEASE_NS, slots_max: 1 });
    let omega_ns = LEASE_NS / 4;
    Dslr { waiting: Waiting { lease, omega_ns, ..Waiting::default() }, slots: 1 }
}

/// ShiftLock whose holders may hold for the paper's lease, that lets readers in after every writer
/// and looks seldom. Its readers compare, so that they may be late by any time.
fn leased_shiftlock() -> Extended {
    Extended::leased(every_writer(), LEASE_NS, true)
}

/// Citron on a small tree, that looks seldom.
fn citron() -> Exclusive {
    Exclusive { leaf_units: 1, poll_ns: 2_500_000, ..Exclusive::default() }
}

/// The same with a time that owners wait.
fn timed_citron() -> Exclusive {
    Exclusive { wait_ns: Some(WAIT_NS), is_fast: false, ..citron() }
}

/// The same whose clients take the leaves of a node with it.
fn fast_citron() -> Exclusive {
    Exclusive { is_fast: true, ..timed_citron() }
}

/// One whose m and time to wait may change.
fn tuned_citron() -> Exclusive {
    Exclusive { is_tuned: true, distance: 2, ..timed_citron() }
}

/// One whose looks are overtaken. Its grants are not counted: that adds verbs, and hides nothing.
fn overtaken() -> Exclusive {
    let (minds_moves, looks_again, counts) = (false, false, false);
    Exclusive { minds_moves, looks_again, counts, is_exact: true, ..citron() }
}

/// The same with readers.
fn citron_rw() -> Shared {
    Shared { leaf_units: 1, poll_ns: 2_500_000, ..Shared::default() }
}

/// RMA-RW whose turns are as short as they can be.
fn few_turns() -> RmaRw {
    RmaRw { writers_max: 2, readers_max: 2 }
}

/// DSLR's conflict handling as printed, or with its tests the other way round.
fn dslr_printed(turn_first: bool) -> DslrPrinted {
    DslrPrinted { sound: Dslr64::default(), turn_first }
}
