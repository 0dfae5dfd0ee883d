//! Who came before whom: first come, first served, or how often a waiter was passed.

/// The line before one lock, as its clients' first verbs took effect. Clients are below 64.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// Those about to get in line; they are in line when their first atomic takes effect.
    opening: u64,
    line: Vec<Waiter>,
    bypass_max: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    who: u16,
    /// How many that came later were served before it.
    passed: u32,
}

impl Turns {
    /// `who` is about to get in line.
    pub fn opens(&mut self, who: u16) {
        self.opening |= 1 << who;
    }

    /// An atomic of `who` took effect on the lock's word.
    pub fn acts(&mut self, who: u16) {
        if self.opening >> who & 1 != 0 {
            self.opening &= !(1 << who);
            self.line.push(Waiter { who, passed: 0 });
        }
    }

    /// `who` is granted the lock. Returns how many that came earlier still wait.
    pub fn enters(&mut self, who: u16) -> u32 {
        let Some(place) = self.line.iter().position(|waiter| waiter.who == who) else { return 0 };
        self.line.remove(place);
        for waiter in &mut self.line[..place] {
            waiter.passed += 1;
            self.bypass_max = self.bypass_max.max(waiter.passed);
        }
        place as u32
    }

    /// `who` no longer waits: it gave up, died, or began again.
    pub fn leaves(&mut self, who: u16) {
        self.opening &= !(1 << who);
        self.line.retain(|waiter| waiter.who != who);
    }

    /// How often one waiter was passed at most.
    pub fn bypass_max(&self) -> u32 {
        self.bypass_max
    }

    /// What this judge adds to the state of a world: the line, in order.
    pub fn ghost(&self) -> u64 {
        self.line.iter().fold(self.opening, |hash, waiter| {
            (hash ^ u64::from(waiter.who) << 32 ^ u64::from(waiter.passed))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_passed_is_counted() {
        let mut turns = Turns::default();
        for who in 0..3 {
            turns.opens(who);
            turns.acts(who);
            turns.acts(who);
        }
        assert_eq!(turns.enters(2), 2);
        assert_eq!((turns.enters(0), turns.enters(1)), (0, 0));
        assert_eq!(turns.bypass_max(), 1);
    }

    #[test]
    fn the_line_is_that_of_effects_not_of_intentions() {
        let mut turns = Turns::default();
        turns.opens(0);
        turns.opens(1);
        turns.acts(1);
        turns.acts(0);
        assert_eq!(turns.enters(1), 0);
        turns.leaves(0);
        assert_eq!(turns.enters(0), 0);
    }
}
