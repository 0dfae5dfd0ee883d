//! Weakness as data: how far below the strongest possible fabric a world lies.
//!
//! Each field says how often something the contract allows happens, as an integer ratio, and within
//! what time. Nothing here exceeds the contract: a protocol that fails under any [`Weakness`] is
//! wrong.

use farlock_fabric::Nanos;

/// A probability as an integer ratio: `part` of `of` times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ratio {
    /// How many.
    pub part: u32,
    /// Out of how many; at least 1.
    pub of: u32,
}

impl Ratio {
    /// Never.
    pub const NEVER: Self = Self { part: 0, of: 1 };

    /// Always.
    pub const ALWAYS: Self = Self { part: 1, of: 1 };

    /// Once in `of` times.
    pub const fn one_in(of: u32) -> Self {
        assert!(of > 0, "a ratio has a denominator");
        Self { part: 1, of }
    }

    /// Whether it can happen at all.
    #[inline]
    pub const fn is_possible(self) -> bool {
        self.part != 0
    }
}

/// What becomes of a verb that is in flight when its endpoint crashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It never takes effect.
    Never,
    /// It takes effect as if nothing had happened; nobody learns of its completion.
    Executed,
    /// It takes effect late: at any time until the death is known, so perhaps after a repairer that
    /// does not wait for that has repaired what it left.
    Late,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Never, Self::Executed, Self::Late];
}

/// What happens in a world that the contract allows. Times are nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weakness {
    /// How often a read or write of several words is torn into pieces served at different times.
    pub torn: Ratio,
    /// The longest time between two pieces.
    pub torn_gap_ns_max: u32,
    /// How often a read in a chain is overtaken by the verbs after it.
    pub overtaken: Ratio,
    /// The longest time by which it is served late.
    pub overtaken_ns_max: u32,
    /// How often a verb or message takes much longer than usual to arrive.
    pub late: Ratio,
    /// The longest such delay.
    pub late_ns_max: u32,
    /// How often a completion is lost, so that the verb ends with `Fault::Lost`: it never took
    /// effect, or it did, or it will later, each in a third of the cases.
    pub lost: Ratio,
    /// After what time a lost completion is reported.
    pub lost_after_ns: u32,
    /// The shortest time from a crash until it is known.
    pub detection_ns_min: u32,
    /// The longest time from a crash until it is known.
    pub detection_ns_max: u32,
    /// Whether an endpoint learns of a newcomer as late as it may: with its first own verb that is
    /// served, or its first message, after the newcomer's first effect. Otherwise at once.
    pub arrivals_late: bool,
    /// How fast two clocks drift apart at most, in parts per billion. The contract's bound is
    /// 100,000.
    pub drift_ppb: u32,
    /// How far two clocks may ever lie apart: what `SyncedClock` tells.
    pub clock_error_ns: Nanos,
}

impl Weakness {
    /// Nothing but what timing brings about. A crash is noticed after 50 us, as by a robust mutex.
    pub const NONE: Self = Self {
        torn: Ratio::NEVER,
        torn_gap_ns_max: 0,
        overtaken: Ratio::NEVER,
        overtaken_ns_max: 0,
        late: Ratio::NEVER,
        late_ns_max: 0,
        lost: Ratio::NEVER,
        lost_after_ns: 0,
        detection_ns_min: 50_000,
        detection_ns_max: 50_000,
        arrivals_late: false,
        drift_ppb: 0,
        clock_error_ns: 0,
    };

    /// Everything at once, often, but no completion lost: so every verb of a living endpoint ends
    /// as it should. To lose completions too, set [`Weakness::lost`].
    pub const FULL: Self = Self {
        torn: Ratio { part: 3, of: 4 },
        torn_gap_ns_max: 5_000,
        overtaken: Ratio::one_in(2),
        overtaken_ns_max: 5_000,
        late: Ratio::one_in(4),
        late_ns_max: 20_000,
        lost: Ratio::NEVER,
        lost_after_ns: 100_000,
        detection_ns_min: 1_000,
        detection_ns_max: 100_000,
        arrivals_late: true,
        drift_ppb: 100_000,
        clock_error_ns: 1_000_000,
    };
}

impl Default for Weakness {
    fn default() -> Self {
        Self::FULL
    }
}
