//! Which keys are hot, as one client finds: credits (CIDER, section 4.3 and algorithm 1).

use std::collections::BTreeMap;

/// How credits are given and taken. [`CreditRules::DEFAULT`] has the paper's numbers, and bounds
/// where the paper has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreditRules {
    /// So many compares of one operation that fail, twice in a row, make a key hot.
    pub threshold: u32,
    /// Credits of a key that was found hot.
    pub initial: u32,
    /// Credits for a turn in line in which others were met.
    pub step: u32,
    /// By which credits are divided after a turn in line in which none was. At least 2.
    pub divisor: u32,
    /// The most credits of a key.
    pub most: u32,
    /// The most keys that are remembered.
    pub keys_max: usize,
}

impl CreditRules {
    /// 36 credits after two misses twice in a row, 2 more for company, half without.
    pub const DEFAULT: Self =
        Self { threshold: 2, initial: 36, step: 2, divisor: 2, most: 4096, keys_max: 4096 };
}

/// What is remembered of a key. One of which there is nothing to say is not remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Heat {
    /// Turns in line to come.
    credit: u32,
    /// How often the last operation that stood in no line missed.
    misses: u32,
}

/// The credits of one client's keys, by their hashes.
#[derive(Debug)]
pub struct Credits {
    rules: CreditRules,
    keys: BTreeMap<u64, Heat>,
}

impl Credits {
    /// None yet.
    ///
    /// # Panics
    /// If they would not come to an end.
    pub fn new(rules: CreditRules) -> Self {
        assert!(rules.divisor >= 2, "credits come to an end");
        Self { rules, keys: BTreeMap::new() }
    }

    /// Takes a credit of this key, if it has one.
    pub fn spend(&mut self, hash: u64) -> bool {
        let credit = self.keys.get(&hash).map_or(0, |heat| heat.credit);
        if credit > 0 {
            self.change(hash, |heat, _| heat.credit -= 1);
        }
        credit > 0
    }

    /// Others were met in line.
    pub fn raise(&mut self, hash: u64) {
        self.change(hash, |heat, rules| heat.credit = heat.credit.saturating_add(rules.step));
    }

    /// None was met in line.
    pub fn lower(&mut self, hash: u64) {
        self.change(hash, |heat, rules| heat.credit /= rules.divisor);
    }

    /// An operation that stood in no line has missed so often.
    pub fn missed(&mut self, hash: u64, misses: u32) {
        self.change(hash, |heat, rules| {
            if misses.min(heat.misses) >= rules.threshold {
                heat.credit = heat.credit.saturating_add(rules.initial);
            }
            heat.misses = misses;
        });
    }

    /// The key is gone.
    pub fn forget(&mut self, hash: u64) {
        self.keys.remove(&hash);
    }

    fn change(&mut self, hash: u64, change: impl FnOnce(&mut Heat, &CreditRules)) {
        let mut heat = self.keys.get(&hash).copied().unwrap_or_default();
        change(&mut heat, &self.rules);
        heat.credit = heat.credit.min(self.rules.most);
        if heat.credit == 0 && heat.misses < self.rules.threshold {
            self.forget(hash);
        } else if self.keys.contains_key(&hash) || self.has_room() {
            self.keys.insert(hash, heat);
        }
    }

    /// Makes room for one more key: all cool down, and the cold are forgotten. `false`: all are
    /// hot.
    fn has_room(&mut self) -> bool {
        if self.keys.len() >= self.rules.keys_max {
            let divisor = self.rules.divisor;
            self.keys.retain(|_, heat| {
                *heat = Heat { credit: heat.credit / divisor, misses: 0 };
                heat.credit > 0
            });
        }
        self.keys.len() < self.rules.keys_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hot_after_two_operations_in_a_row_that_missed_twice() {
        let mut credits = Credits::new(CreditRules::DEFAULT);
        for misses in [2, 1, 5, 0, 1, 1, 3] {
            credits.missed(7, misses);
            assert!(!credits.spend(7));
        }
        credits.missed(7, 2);
        let spent = (0..100).take_while(|_| credits.spend(7)).count();
        assert_eq!(spent, 36);
        assert!(!credits.spend(8), "another key is not hot");
    }

    #[test]
    fn credits_grow_by_two_and_halve_and_are_bounded() {
        let mut credits = Credits::new(CreditRules::DEFAULT);
        (0..5_000).for_each(|_| credits.raise(7));
        assert_eq!(credits.keys[&7].credit, 4_096);
        (0..12).for_each(|_| credits.lower(7));
        assert_eq!(credits.keys[&7].credit, 1);
        credits.lower(7);
        assert!(credits.keys.is_empty(), "nothing is remembered of a cold key");
    }

    #[test]
    fn no_more_keys_are_remembered_than_there_is_room_for() {
        let mut credits = Credits::new(CreditRules { keys_max: 4, ..CreditRules::DEFAULT });
        for hash in 0..4 {
            (0..1 << hash).for_each(|_| credits.raise(hash));
        }
        // Credits are 2, 4, 8, 16; halved twice one key makes room.
        (4..6).for_each(|hash| credits.raise(hash));
        assert!(credits.keys.len() <= 4 && credits.spend(3) && !credits.spend(0));
        (0..100).for_each(|hash| (0..500).for_each(|_| credits.raise(hash)));
        assert!(credits.keys.len() <= 4);
    }
}
