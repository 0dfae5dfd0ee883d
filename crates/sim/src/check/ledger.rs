//! The ghost ledger of one lock: who holds it, and with which token.

use crate::history::mix;

/// How a lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Beside other shared holders.
    Shared,
    /// Beside shared holders, but alone of those that may write: later, when it has been upgraded.
    Update,
    /// Alone.
    Exclusive,
}

/// The ledger of one lock. Clients are numbers below 64.
///
/// A client enters when it has been granted the lock and leaves before it begins to release it, so
/// what the ledger takes for held is held. Only the first violation is kept: what follows it may
/// follow from it.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// A bit for each shared holder.
    readers: u64,
    /// A bit for each holder to update, and each exclusive one: more than one only after a
    /// violation.
    updaters: u64,
    writers: u64,
    /// Of the last holder to update.
    updater_token: Option<u64>,
    token_max: Option<u64>,
    writer_token_max: Option<u64>,
    grants: u64,
    violation: Option<String>,
}

impl Ledger {
    /// `who` holds from now on. The token of a holder that writes now or later is above every token
    /// before it, a shared one's is above that of the last one that could write.
    pub fn enter(&mut self, who: u16, access: Access, token: Option<u64>) {
        self.judges(who, access);
        if access == Access::Shared && self.updaters != 0 && token > self.token_max {
            let updaters = members(self.updaters);
            self.violates(|| format!("client {who} came after {updaters:?} to update, and reads"));
        }
        if let (Some(token), Some(above)) = (token, self.above(access))
            && token <= above
        {
            self.violates(|| {
                format!("client {who} enters ({access:?}) with token {token} after {above}")
            });
        }
        self.token_max = self.token_max.max(token);
        match access {
            Access::Shared => self.readers |= 1 << who,
            Access::Update => {
                self.updaters |= 1 << who;
                self.updater_token = token;
            }
            Access::Exclusive => {
                self.writers |= 1 << who;
                self.writer_token_max = token.or(self.writer_token_max);
            }
        }
        self.grants += 1;
    }

    /// `who`, the last that came to update, holds exclusively from now on. Nobody with a later
    /// token has held since. It may have been exclusive from the first.
    pub fn upgrade(&mut self, who: u16) {
        if self.writers & 1 << who != 0 {
            return;
        }
        self.updaters &= !(1 << who);
        self.judges(who, Access::Exclusive);
        let (own, above) = (self.updater_token, self.token_max);
        if own < above {
            self.violates(|| format!("client {who} upgrades with token {own:?} after {above:?}"));
        }
        self.writers |= 1 << who;
        self.writer_token_max = own.or(self.writer_token_max);
    }

    /// Those inside who exclude a client with this access, which is not inside: a bit for each.
    pub fn excluding(&self, access: Access) -> u64 {
        match access {
            Access::Shared => self.writers,
            Access::Update => self.writers | self.updaters,
            Access::Exclusive => self.writers | self.updaters | self.readers,
        }
    }

    /// Whether `who` excludes nobody who is inside.
    fn judges(&mut self, who: u16, access: Access) {
        let (readers, updaters, writers) = (self.readers, self.updaters, self.writers);
        if self.excluding(access) != 0 {
            self.violates(|| {
                format!(
                    "client {who} enters ({access:?}) beside writers {:?}, readers {:?}",
                    members(writers | updaters),
                    members(readers)
                )
            });
        }
    }

    /// The token that the next one must be above.
    pub fn above(&self, access: Access) -> Option<u64> {
        match access {
            Access::Exclusive | Access::Update => self.token_max,
            Access::Shared => self.writer_token_max,
        }
    }

    /// `who` holds no longer: it is about to release, or it is dead.
    pub fn leave(&mut self, who: u16) {
        self.readers &= !(1 << who);
        self.updaters &= !(1 << who);
        self.writers &= !(1 << who);
    }

    /// Nobody holds any longer: the holds before are judged by their tokens alone.
    pub fn leave_all(&mut self) {
        (self.readers, self.updaters, self.writers) = (0, 0, 0);
    }

    /// Times a client entered.
    pub fn grants(&self) -> u64 {
        self.grants
    }

    /// What went wrong first.
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// What this ledger adds to the state of a world: the tokens that it compares with, and who
    /// holds. That is known from where the clients are, but not of those that have crashed.
    pub fn ghost(&self) -> u64 {
        let next = |token: Option<u64>| token.map_or(0, |token| token.wrapping_add(1));
        let tokens = mix(next(self.token_max), next(self.writer_token_max));
        let tokens = mix(tokens, next(self.updater_token));
        mix(tokens, mix(self.readers, self.writers ^ self.updaters.rotate_left(32)))
    }

    fn violates(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(what());
        }
    }
}

fn members(set: u64) -> Vec<u32> {
    (0..64).filter(|who| set >> who & 1 != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Access::{Exclusive, Shared, Update};

    fn judged(story: impl FnOnce(&mut Ledger)) -> bool {
        let mut ledger = Ledger::default();
        story(&mut ledger);
        ledger.violation().is_some()
    }

    #[test]
    fn only_readers_may_overlap() {
        for (first, second) in [(Exclusive, Exclusive), (Exclusive, Shared), (Shared, Exclusive)] {
            assert!(judged(|ledger| {
                ledger.enter(0, first, None);
                ledger.enter(1, second, None);
            }));
            assert!(!judged(|ledger| {
                ledger.enter(0, first, None);
                ledger.leave(0);
                ledger.enter(1, second, None);
            }));
        }
        assert!(!judged(|ledger| {
            ledger.enter(0, Shared, None);
            ledger.enter(1, Shared, None);
        }));
    }

    #[test]
    fn who_updates_is_beside_readers_until_it_writes() {
        let both = |first, second| {
            judged(|ledger| {
                ledger.enter(0, first, None);
                ledger.enter(1, second, None);
            })
        };
        assert!(!both(Update, Shared) && !both(Shared, Update));
        assert!(both(Update, Update) && both(Update, Exclusive) && both(Exclusive, Update));
        let upgraded = |reader_leaves: bool| {
            judged(|ledger| {
                ledger.enter(0, Shared, Some(1));
                ledger.enter(1, Update, Some(2));
                if reader_leaves {
                    ledger.leave(0);
                }
                ledger.upgrade(1);
            })
        };
        assert!(upgraded(false) && !upgraded(true));
        assert!(judged(|ledger| {
            ledger.enter(0, Update, None);
            ledger.upgrade(0);
            ledger.enter(1, Shared, None);
        }));
        let reads_meanwhile = |token| {
            judged(|ledger| {
                ledger.enter(0, Update, Some(2));
                ledger.enter(1, Shared, Some(token));
            })
        };
        assert!(reads_meanwhile(3) && !reads_meanwhile(1));
    }

    #[test]
    fn tokens_grow_from_writer_to_writer_and_readers_lie_between() {
        let grants = |grants: &[(Access, u64)]| {
            judged(|ledger| {
                for &(access, token) in grants {
                    ledger.enter(0, access, Some(token));
                    ledger.leave(0);
                }
            })
        };
        assert!(!grants(&[(Exclusive, 1), (Shared, 3), (Shared, 2), (Exclusive, 4)]));
        assert!(grants(&[(Exclusive, 1), (Exclusive, 1)]));
        assert!(grants(&[(Exclusive, 1), (Shared, 1)]));
        assert!(grants(&[(Exclusive, 1), (Shared, 3), (Exclusive, 3)]));
    }
}
