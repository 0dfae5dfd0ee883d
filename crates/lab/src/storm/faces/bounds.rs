//! How long what may take, as the judge of a storm over the faces has it.

/// How long the living may wait while nobody living holds: a tenth of a second to pass over a
/// waiter that is stopped, and half of that for the scheduler of a machine that has fewer cores
/// than processes.
pub const BOUND_NS: u64 = 150_000_000;
/// How much longer for each further waiter that is stopped meanwhile.
pub const PASS_NS: u64 = 100_000_000;
/// A waiter that waits longer than this beside others that are granted is starved.
pub const STARVED_NS: u64 = 10_000_000_000;
/// How long something withdrawn, or let go of without waiting for its end, may still be seen by a
/// try: the thread that sees to it must run.
pub const WITHDRAWAL_NS: u64 = 50_000_000;
/// How long after a death a try is counted as one that came after it.
pub const RECENT_NS: u64 = 1_000_000_000;
