//! What a waiter for a unit has seen of those that came before it.
//!
//! A unit of a leaf goes to the request that finds it free. Beside busy processors that is one that
//! runs: it has the unit again microseconds after it gave it back. A waiter that slept finds the
//! word as it was, milliseconds later, and does not know that anything has happened. What tells is
//! the token of the one that has the unit.

/// Looks in a row at which a caller finds that nobody else has come, until it stops to call.
const QUIET_MAX: u8 = 3;

/// What a waiter for a unit has seen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Passes {
    /// Whether it asks newcomers to wait.
    pub(super) calls: bool,
    /// The token of the one that had the unit when it looked last.
    owner: Option<u64>,
    /// How often that was another one than before.
    passed: u8,
    /// How often in a row it was the same while the waiter called.
    quiet: u8,
    /// How often the waiter has stopped to call for that.
    paused: u8,
}

impl Passes {
    /// It has looked, and one with this token has the unit. Whether that has come before it.
    pub(super) fn sees(&mut self, token: u64) -> bool {
        let before = self.owner.replace(token);
        let is_other = before.is_some_and(|before| before != token);
        self.passed = self.passed.saturating_add(is_other.into());
        let is_quiet = self.calls && !is_other;
        self.quiet = if is_quiet { self.quiet.saturating_add(1) } else { 0 };
        is_other
    }

    /// Whether it is to call: others came before it so many times. Not for the whole of a
    /// long hold, whose waiter would have all look that come for other units there; but each time
    /// for longer: those that come after such holds do not keep it out for ever.
    pub(super) const fn are_enough(&self, calls_after: u8) -> bool {
        self.passed >= calls_after && self.quiet < QUIET_MAX.saturating_add(self.paused)
    }

    /// It calls from now on.
    pub(super) const fn begins(&mut self) {
        (self.calls, self.quiet) = (true, 0);
    }

    /// It calls no more. If nobody came any more, one more pass has it call again.
    pub(super) fn ends(&mut self, calls_after: u8) {
        if self.passed >= calls_after && !self.are_enough(calls_after) {
            self.passed = calls_after.saturating_sub(1);
            self.paused = self.paused.saturating_add(1);
        }
        (self.calls, self.quiet) = (false, 0);
    }

    /// What an explorer has to tell apart; 0 of one that has seen nothing.
    pub(super) fn survivors(&self) -> u64 {
        let Self { calls, owner, passed, quiet, paused } = *self;
        let looks = u64::from_le_bytes([calls.into(), passed, quiet, paused, 0, 0, 0, 0]);
        let owner = owner.map_or(0, |owner| owner.wrapping_add(1));
        looks ^ owner.rotate_left(u32::BITS)
    }
}
