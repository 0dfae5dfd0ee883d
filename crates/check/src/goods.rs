//! What a lock protects, and who judges it.
//!
//! Two things: a register outside of the region, which exclusive holders write with their tokens
//! and which must refuse the stale; and two words in far memory, which holders read and write one
//! after the other. What they see there must be explained by one hold after the other.

use farlock_fabric::{Addr, Endpoint, EndpointId, Verb};
use farlock_sim::check::{Access, Called, Fence, History, Object, Register};
use farlock_sim::{Handle, Packet};

/// Two words that belong together, at first both 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Pair(pub [u64; 2]);

/// What a holder does with a [`Pair`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Nothing that anybody sees.
    Nothing,
    /// Reads both words.
    Read([u64; 2]),
    /// Reads both words, then sets both to this value.
    Replace([u64; 2], u64),
    /// Sets the first word: all that may be seen of a client that dies early.
    First(u64),
    /// Sets the second word after the first.
    Second(u64),
}

impl Object for Pair {
    type Operation = Deed;

    fn after(&self, deed: &Deed) -> Option<Self> {
        match *deed {
            Deed::Nothing => Some(*self),
            Deed::Read(seen) => (self.0 == seen).then_some(*self),
            Deed::Replace(seen, value) => (self.0 == seen).then_some(Self([value; 2])),
            Deed::First(value) => Some(Self([value, self.0[1]])),
            Deed::Second(value) => (self.0[0] == value).then_some(Self([value; 2])),
        }
    }
}

/// What is protected in one run, and its judges.
#[derive(Debug, Default)]
pub struct Goods {
    fence: Fence,
    history: History<Deed>,
}

impl Goods {
    /// Goods with this register outside.
    pub fn of(register: Register) -> Self {
        Self { fence: Fence::of(register), history: History::default() }
    }

    /// An exclusive holder of this lock, with this token, writes to the register. The write arrives
    /// at any later time.
    pub fn sends(&mut self, from: EndpointId, at: usize, token: u64, handle: &Handle) {
        let words = [token, self.fence.granted(), at as u64];
        handle.send_outside(Packet { from, words });
    }

    /// Such a write arrives. Whether it is accepted.
    pub fn receives(&mut self, packet: &Packet) -> bool {
        let [token, grant, _] = packet.words;
        self.fence.write(token, grant)
    }

    /// Writes to the register that were refused.
    pub fn refused(&self) -> u64 {
        self.fence.refused()
    }

    /// Holds that were recorded.
    pub fn recorded(&self) -> u64 {
        self.history.len() as u64 / 2
    }

    /// A hold begins, in which this value may be written. A client that dies in it has done each
    /// half or not.
    pub fn begins(&mut self, access: Access, value: u64) -> [Called; 2] {
        let [first, second] = match access {
            Access::Shared | Access::Update => [Deed::Nothing; 2],
            Access::Exclusive => [Deed::First(value), Deed::Second(value)],
        };
        [self.history.call(first), self.history.call(second)]
    }

    /// A hold ends, in which this was done.
    pub fn ends(&mut self, called: [Called; 2], deed: Deed) {
        self.history.answer(called[1], Deed::Nothing);
        self.history.answer(called[0], deed);
    }

    /// All is over, and the words are these.
    pub fn closes(&mut self, words: [u64; 2]) {
        let called = self.begins(Access::Shared, 0);
        self.ends(called, Deed::Read(words));
    }

    /// What a judge objects to.
    pub fn violation(&self) -> Option<String> {
        let stale = self.fence.violation().map(str::to_owned);
        stale.or_else(|| {
            let unexplained = self.history.check(Pair::default()).err()?;
            Some(format!("hold {}: {unexplained}", unexplained.operation / 2))
        })
    }

    /// The history, which is gone then.
    pub fn take_history(&mut self) -> History<Deed> {
        std::mem::take(&mut self.history)
    }

    /// What the register has seen, as a part of the world's state.
    pub fn ghost(&self) -> u64 {
        self.fence.ghost()
    }
}

/// What a holder does: it reads both words and, if it holds exclusively, sets both.
pub async fn use_pair<E: Endpoint>(
    endpoint: &E,
    words: [Addr; 2],
    access: Access,
    value: u64,
) -> anyhow::Result<Deed> {
    let mut seen = [0; 2];
    for (seen, word) in seen.iter_mut().zip(words) {
        endpoint.read64(word).await?;
        *seen = endpoint.old() as u64;
    }
    if access != Access::Exclusive {
        return Ok(Deed::Read(seen));
    }
    for addr in words {
        endpoint.verb(Verb::Write { addr, data: &[value] }).await?;
    }
    Ok(Deed::Replace(seen, value))
}

#[cfg(test)]
mod tests {
    use farlock_sim::schedule::{Director, Random};

    use super::*;
    use crate::faults::Faults;
    use crate::scenario::Scenario;
    use crate::subjects;
    use crate::trial::RunLog;

    /// The definition, without the cleverness of the judge: some order of the deeds that returned
    /// and of some that did not, in which a deed that returned before another was called comes
    /// first.
    fn has_an_order(history: &History<Deed>) -> bool {
        let mut left: Vec<(Deed, usize, Option<usize>)> =
            history.spans().map(|(deed, called, returned)| (*deed, called, returned)).collect();
        try_orders(Pair::default(), &mut left)
    }

    fn try_orders(pair: Pair, left: &mut Vec<(Deed, usize, Option<usize>)>) -> bool {
        if left.iter().all(|(.., returned)| returned.is_none()) {
            return true;
        }
        let soonest = left.iter().filter_map(|&(.., returned)| returned).min();
        (0..left.len()).any(|at| {
            let (deed, called, _) = left[at];
            if soonest.is_some_and(|soonest| soonest < called) {
                return false;
            }
            let Some(pair) = pair.after(&deed) else { return false };
            let taken = left.remove(at);
            let found = try_orders(pair, left);
            left.insert(at, taken);
            found
        })
    }

    /// Histories of runs with deaths and give-ups, of a lock and of one that excludes nobody.
    #[test]
    fn on_histories_of_runs_the_judge_agrees_with_the_definition() {
        for (subject, sound) in [("mcs", true), ("dslr", true), ("none", false)] {
            let player = subjects::player(subject).expect("a registered lock");
            let director = Director::new(Random::new(1));
            let mut draws = farlock_sim::Seeded::new(1);
            let (mut explained, mut judged) = (0, 0);
            for _ in 0..600 {
                let mut scenario = Scenario::plain(subject, 3, 2);
                scenario.draw(&mut draws, Faults::ALL);
                scenario.recorded = true;
                // What a restart leaves of the words is no hold's doing.
                scenario.mishaps.clear();
                let mut log = RunLog::default();
                let oracle = director.begin().expect("there is always another random schedule");
                player.play_noting(&scenario, oracle, &mut log);
                let verdict = log.history.check(Pair::default()).is_ok();
                assert_eq!(verdict, has_an_order(&log.history), "{:?}", log.history);
                judged += u32::from(log.history.len() > 4);
                explained += u32::from(verdict);
            }
            assert!(judged > 300, "{subject}: {judged}");
            assert_eq!(explained == 600, sound, "{subject}: {explained} of 600");
        }
    }
}
