//! A resource that fencing tokens protect, and its twin that does not look at them.

use thiserror::Error;

/// A write came too late: somebody with a higher token has written already.
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
}
