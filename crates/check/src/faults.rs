//! What may be drawn for a lock, and what it says of itself.

use farlock_fabric::Nanos;
use farlock_locks::record::bakery::LEASE_NS;

/// What may be drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// Clients die.
    pub deaths: bool,
    /// Clients give up.
    pub cancels: bool,
    /// What there is besides befalls clients at their verbs.
    pub mishaps: bool,
    /// Clocks go as the contract says: exclusion rests on it.
    pub timely: bool,
    /// Holders stay inside for half a lease.
    pub holds: bool,
    /// Clients acquire to update.
    pub updates: bool,
    /// Holders convert what they hold.
    pub converts: bool,
    /// Holders divide what they hold.
    pub divides: bool,
    /// Clients change the lock's parameters.
    pub tunes: bool,
    /// The lease by which pauses are measured, in nanoseconds.
    pub lease_ns: Nanos,
    /// What the lock says of tries, withdrawals and stops.
    pub declares: Declares,
}

impl Faults {
    /// Everything that any lock takes.
    pub const ALL: Self = Self {
        deaths: true,
        cancels: true,
        mishaps: true,
        timely: false,
        holds: false,
        updates: false,
        converts: false,
        divides: false,
        tunes: false,
        lease_ns: LEASE_NS,
        declares: Declares::NOTHING,
    };
}

/// What a lock says of tries, withdrawals and stops: it is held to that, and to nothing else of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Declares {
    /// A try fails only beside the living.
    pub tries: bool,
    /// Who withdraws is soon as if it had never asked.
    pub withdraws: bool,
    /// A waiter that is stopped is passed over.
    pub passes: bool,
}

impl Declares {
    /// Nothing.
    pub const NOTHING: Self = Self { tries: false, withdraws: false, passes: false };
}
