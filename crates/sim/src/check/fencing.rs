//! A resource that fencing tokens protect, and its twin that does not look at them.

use thiserror::Error;

use crate::history::mix;

/// A write came too late: a client with a higher token has written already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the token {token} is stale: {highest} has been seen")]
pub struct Stale {
    /// The token of the late write.
    pub token: u64,
    /// The highest token so far.
    pub highest: u64,
}

/// A register outside of the lock's memory that remembers the highest token it has seen.
///
/// The fenced one refuses writes with lower tokens. Its unfenced twin takes them all and counts
/// those it should have refused: the control that shows what tokens are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Register {
    fenced: bool,
    value: u64,
    highest: u64,
    stale_accepted: u64,
}

impl Register {
    /// A register that looks at tokens.
    pub const FENCED: Self = Self { fenced: true, value: 0, highest: 0, stale_accepted: 0 };

    /// Its twin that does not.
    pub const UNFENCED: Self = Self { fenced: false, ..Self::FENCED };

    /// Writes on behalf of the holder of this token.
    pub fn write(&mut self, token: u64, value: u64) -> Result<(), Stale> {
        if token < self.highest {
            if self.fenced {
                return Err(Stale { token, highest: self.highest });
            }
            self.stale_accepted += 1;
        }
        self.highest = self.highest.max(token);
        self.value = value;
        Ok(())
    }

    /// What was written last.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// Writes that were accepted though a higher token had been seen.
    pub fn stale_accepted(&self) -> u64 {
        self.stale_accepted
    }
}

/// The judge of a [`Register`]: it knows the order of grants from elsewhere, not from tokens.
///
/// Of two writes that a register accepts, the later one must be of a later grant; and the holder of
/// the latest grant so far must not be refused. So a fenced register passes if tokens grow from
/// grant to grant, however late its writes arrive, and an unfenced one does not.
#[derive(Clone, Debug)]
pub struct Fence {
    register: Register,
    grants: u64,
    /// The latest grant of which a write was accepted.
    latest: u64,
    refused: u64,
    violation: Option<String>,
}

impl Default for Fence {
    fn default() -> Self {
        Self::of(Register::FENCED)
    }
}

impl Fence {
    /// The judge of this register, which nobody has written.
    pub const fn of(register: Register) -> Self {
        Self { register, grants: 0, latest: 0, refused: 0, violation: None }
    }

    /// A client is granted the lock exclusively: the how manieth that is.
    pub fn granted(&mut self) -> u64 {
        self.grants += 1;
        self.grants
    }

    /// A write of this grant's holder arrives. Whether it is accepted.
    pub fn write(&mut self, token: u64, grant: u64) -> bool {
        let (accepted, latest) = (self.register.write(token, grant), self.latest);
        let wrong = match accepted {
            Ok(()) => grant < latest,
            Err(_) => grant >= latest,
        };
        if wrong && self.violation.is_none() {
            let what = if accepted.is_ok() { "accepted" } else { "refused" };
            self.violation = Some(format!(
                "the register {what} a write of grant {grant}, token {token}, after grant {latest}"
            ));
        }
        self.refused += u64::from(accepted.is_err());
        if accepted.is_ok() {
            self.latest = latest.max(grant);
        }
        accepted.is_ok()
    }

    /// Writes that were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// What went wrong first.
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// What this judge adds to the state of a world.
    pub fn ghost(&self) -> u64 {
        mix(self.register.highest, mix(self.grants, self.latest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The holder of token 1 stops, loses the lock by time to the holder of token 2, and goes on.
    fn paused_holder(mut register: Register) -> Register {
        register.write(1, 10).expect("nobody came before");
        register.write(2, 20).expect("a newer holder");
        let _ = register.write(1, 11);
        register
    }

    #[test]
    fn a_stale_write_is_refused_with_a_fence_and_lands_without() {
        assert_eq!(paused_holder(Register::FENCED).value(), 20);
        assert_eq!(paused_holder(Register::UNFENCED).value(), 11);
        assert_eq!(paused_holder(Register::UNFENCED).stale_accepted(), 1);
    }

    /// A write of the first holder arrives after one of the second.
    fn overtaken(register: Register, tokens: [u64; 2]) -> Fence {
        let mut fence = Fence::of(register);
        let grants = [fence.granted(), fence.granted()];
        fence.write(tokens[1], grants[1]);
        fence.write(tokens[0], grants[0]);
        fence
    }

    #[test]
    fn late_writes_are_told_by_the_order_of_grants_not_by_tokens() {
        let fenced = overtaken(Register::FENCED, [1, 2]);
        assert_eq!((fenced.violation(), fenced.refused()), (None, 1));
        assert!(overtaken(Register::UNFENCED, [1, 2]).violation().is_some());
        // Tokens that do not grow protect nothing.
        assert!(overtaken(Register::FENCED, [7, 7]).violation().is_some());
        assert!(overtaken(Register::FENCED, [9, 7]).violation().is_some());
    }

    #[test]
    fn the_latest_holder_must_not_be_refused() {
        let mut fence = Fence::default();
        let grants = [fence.granted(), fence.granted()];
        assert!(fence.write(2, grants[0]));
        assert!(!fence.write(1, grants[1]));
        assert!(fence.violation().is_some());
    }
}
