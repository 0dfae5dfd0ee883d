//! How a run went: what judges object to, and what befell it.

use farlock_fabric::Fault;
use farlock_locks::event::EventCounts;

/// What a judge objects to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Objection {
    /// Two holders that exclude each other were inside, or tokens did not grow, or a waiter was
    /// passed.
    Violation,
    /// A client waits for ever.
    Stall,
    /// All have left, but not everything is as before.
    Leak,
    /// The protocol found itself in a state that it holds to be impossible.
    Panic,
}

/// What was promised that is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// Nobody beside a writer, and tokens that grow.
    Exclusion,
    /// The order of grants.
    Order,
    /// What the lock says of tries, withdrawals and stops.
    Said,
    /// What a lock with tokens protects: a register outside, and words that are read and written.
    Goods,
    /// Every client that lives is granted the lock.
    Progress,
    /// When all have left everything is as before.
    Idle,
    /// The lock never finds itself where it cannot be.
    Sense,
}

impl Promise {
    /// Which it is, and the judge of `docs/faults.md` that found it broken.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Exclusion => "exclusion and growing tokens (judge: ledger)",
            Self::Order => "the order of grants (judges: turns, rounds)",
            Self::Said => "tries, withdrawals and stops (judges: tries, newcomers, stops)",
            Self::Goods => "what the lock protects (judges: fence, linearizability)",
            Self::Progress => "progress (judges: deadlock and livelock, stops)",
            Self::Idle => "idleness afterwards (judge: visitor)",
            Self::Sense => "states that the lock holds to be impossible",
        }
    }
}

/// What was found in a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What kind of thing it is.
    pub objection: Objection,
    /// What was promised.
    pub promise: Promise,
    /// What happened, in a line.
    pub story: String,
}

/// What befell a run, or several runs together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Befell {
    /// Clients that died; also those that ended since a completion was lost, and that let go of
    /// their endpoint when they gave up.
    pub deaths: u64,
    /// Counts in the lock's word that wrapped or were reset.
    pub wraps: u64,
    /// Acquisitions and releases that were given up.
    pub given_up: u64,
    /// Writes with stale tokens that the register outside refused.
    pub stale_refused: u64,
    /// Holds in the histories that were judged.
    pub holds_recorded: u64,
    /// Clients that were paused.
    pub pauses: u64,
    /// Clients that were stopped for good.
    pub stops: u64,
    /// Tries of clients and newcomers, and those in vain.
    pub tries: u64,
    /// See above.
    pub tries_refused: u64,
    /// Claims that were given back since they took longer than others wait for them.
    pub aborts: u64,
    /// Changes of the lock's parameters that came to their end.
    pub tunes: u64,
    /// Restarts of the memory node.
    pub restarts: u64,
    /// Clients that came back after one.
    pub came_back: u64,
    /// Clients that ended since the completion of a verb was lost.
    pub lost: u64,
    /// Clocks that jumped, or go faster or slower than the contract allows.
    pub bad_clocks: u64,
    /// Grants that came after one with a higher token: what checks tokens refuses them.
    pub stale: u64,
    /// Holders that were found to have held beyond their lease when another was granted.
    pub overstayed: u64,
}

impl Befell {
    /// This run as well.
    pub fn add(&mut self, other: Self) {
        self.deaths += other.deaths;
        self.wraps += other.wraps;
        self.given_up += other.given_up;
        self.stale_refused += other.stale_refused;
        self.holds_recorded += other.holds_recorded;
        self.pauses += other.pauses;
        self.stops += other.stops;
        self.tries += other.tries;
        self.tries_refused += other.tries_refused;
        self.aborts += other.aborts;
        self.tunes += other.tunes;
        self.restarts += other.restarts;
        self.came_back += other.came_back;
        self.lost += other.lost;
        self.bad_clocks += other.bad_clocks;
        self.stale += other.stale;
        self.overstayed += other.overstayed;
    }
}

/// How a run went.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// What was found, if anything was.
    pub finding: Option<Finding>,
    /// Everybody came to an end; if not, the schedule wanted no more of the run.
    pub ended: bool,
    /// Clients found another one dead, and went on.
    pub recovered: bool,
    /// Events that happened.
    pub events: u64,
    /// How often a waiter was passed at most.
    pub bypass_max: u32,
    /// How many rounds of readers passed a writer at most.
    pub rounds_max: u32,
    /// What befell it.
    pub befell: Befell,
}

/// Whether this is the fault that is behind an error.
pub(super) fn is_due_to(error: &anyhow::Error, fault: Fault) -> bool {
    error.chain().any(|cause| cause.downcast_ref() == Some(&fault))
}

/// How often a client found another dead, repaired a lock or began again.
pub(super) fn recoveries(events: EventCounts) -> u64 {
    events.peers_died + events.repaired + events.restarted
}

/// What a panic says.
pub(super) fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}
