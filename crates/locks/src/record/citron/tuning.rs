//! Changing m and the time that owners wait, while clients use the lock (section 3.5.5).
//!
//! The fourth word in front of the tree has the parameters. A *manager*, which is any client,
//! changes them in two phases: it *prepares* a change, waits until nobody works by what was before,
//! and *commits* it. While a change is prepared a request does what is right beside requests by the
//! old parameters and beside requests by the new ones: it notifies and gives way by the lower of
//! the two, and looks and waits by the higher.
//!
//! A request says in its record by which change it works, and *then* reads the word: so a manager,
//! which writes the word and then reads the records, sees it there, or the request sees what the
//! manager wrote. No client waits for a manager. One that dies leaves a change prepared, by which
//! clients go on, and which the next manager commits first.

use farlock_fabric::{Addr, Endpoint, Nanos, Verb};

use super::course::{Course, Plan, Stand};
use super::record::UnitsWord;
use super::tree::DISTANCE_MAX;
use crate::lock::Tuning;
use crate::site::{Outcome, Site};
use crate::slot::Phase;

farlock_fabric::word! {
    /// The parameters of a lock that is tuned. Before the first change all of it is zero, and they
    /// are those of its options.
    pub(super) struct TuningWord: u64 {
        /// How many phases there were: odd while a change is prepared.
        NUMBER number: 20,
        /// While one is: one less than m before, and the time that owners waited.
        OLD_DISTANCE old_distance: 2,
        OLD_WAIT_NS old_wait_ns: 20,
        /// The same behind it, or as it is.
        DISTANCE distance: 2,
        WAIT_NS wait_ns: 20,
    }
}

/// The longest time that owners wait of a lock that is tuned, in nanoseconds: 1 ms.
pub(super) const WAIT_NS_MAX: Nanos = TuningWord::WAIT_NS.max();

/// A record tells numbers apart that differ by less.
pub(super) const NUMBERS: u64 = 1 << UnitsWord::CHANGE.bits;

const _: () = {
    assert!(DISTANCE_MAX as u64 - 1 == TuningWord::DISTANCE.max(), "the word has room for m");
    assert!(DISTANCE_MAX as u64 - 1 == UnitsWord::DISTANCE.max(), "and so has a record");
};

/// Where the word lies, in bytes from that which counts grants.
const TUNING: u64 = 24;

/// The word of this lock.
pub(super) const fn word_of(lock: Addr) -> Addr {
    lock.plus(TUNING)
}

impl TuningWord {
    /// Whether a change is prepared.
    pub(super) const fn is_preparing(self) -> bool {
        self.number() % 2 == 1
    }

    /// By what a record says that its request works by this.
    pub(super) const fn change(self) -> u64 {
        self.number() % NUMBERS
    }

    /// The parameters of a lock with these options behind a change that is prepared, or as they
    /// are.
    pub(super) fn newest(self, first: Tuning) -> Tuning {
        match self.number() {
            0 => first,
            _ => Tuning { distance: self.distance() as u8 + 1, wait_ns: self.wait_ns() },
        }
    }

    /// The same before a change that is prepared.
    fn oldest(self, first: Tuning) -> Tuning {
        match self.is_preparing() {
            false => self.newest(first),
            true => Tuning { distance: self.old_distance() as u8 + 1, wait_ns: self.old_wait_ns() },
        }
    }

    /// The number of the next phase. When all are used up it goes on with one of which records say
    /// the same as of the one that would come.
    const fn next_number(self) -> u64 {
        if self.number() == Self::NUMBER.max() { NUMBERS } else { self.number() + 1 }
    }

    /// With a change to this prepared.
    pub(super) fn prepared(self, first: Tuning, to: Tuning) -> Self {
        let old = self.newest(first);
        Self::new()
            .with(Self::NUMBER, self.next_number())
            .with(Self::OLD_DISTANCE, u64::from(old.distance) - 1)
            .with(Self::OLD_WAIT_NS, old.wait_ns)
            .with(Self::DISTANCE, u64::from(to.distance) - 1)
            .with(Self::WAIT_NS, to.wait_ns)
    }

    /// With the change that is prepared committed.
    pub(super) const fn committed(self) -> Self {
        Self::new()
            .with(Self::NUMBER, self.next_number())
            .with(Self::DISTANCE, self.distance())
            .with(Self::WAIT_NS, self.wait_ns())
    }
}

impl Plan {
    /// The same of a request that works by this.
    pub(super) fn by(self, word: TuningWord) -> Self {
        let Some(first) = self.first else { return self };
        let (old, new) = (word.oldest(first), word.newest(first));
        Self {
            notifies: old.distance.min(new.distance),
            distance: old.distance.max(new.distance),
            in_time_ns: old.wait_ns.min(new.wait_ns),
            wait_ns: Some(old.wait_ns.max(new.wait_ns)),
            change: word.change(),
            ..self
        }
    }

    /// The same of one that goes on with what it has, and does all else by the word as it is by
    /// now: see the page.
    pub(super) fn going_on_by(self, word: TuningWord) -> Self {
        Self { notifies: self.notifies, change: self.change, ..self.by(word) }
    }

    /// The same of a request of which a record says this.
    pub(super) fn as_said(self, units: UnitsWord) -> Self {
        match self.first {
            None => self,
            Some(_) => {
                Self { notifies: units.distance() as u8 + 1, change: units.change(), ..self }
            }
        }
    }

    /// What a record says of it.
    pub(super) fn said(&self, units: UnitsWord) -> UnitsWord {
        if self.first.is_none() {
            return units;
        }
        let units = units.with(UnitsWord::DISTANCE, u64::from(self.notifies) - 1);
        units.with(UnitsWord::CHANGE, self.change)
    }

    /// What an explorer has to tell apart of it: nothing, if it never changes.
    pub(super) fn survivors(&self) -> u64 {
        let Some(_) = self.first else { return 0 };
        let levels = u64::from(self.notifies) << 3 | u64::from(self.distance);
        let wait_ns = self.wait_ns.unwrap_or(0);
        (levels << 20 | self.in_time_ns) << 20 | wait_ns
    }
}

impl Course {
    /// Whether it is to work by the parameters that its next look finds: it has nothing yet. A part
    /// of a hold has that.
    pub(super) fn is_to_tune(&self) -> bool {
        self.plan.first.is_some() && self.whole.is_none() && self.reached(false).0.is_empty()
    }

    /// It works by these from now on. Its record says so before it looks again.
    pub(super) fn tunes<E: Endpoint>(&mut self, site: &Site<'_, E>, word: TuningWord) {
        self.plan = self.plan.by(word);
        site.left(word.0.into());
        self.publish(site, Stand { phase: Phase::Waiting, claims: false, ticket: None });
        self.publish_units(site);
    }
}

/// Reads the parameters of this lock.
pub(super) const fn reading(lock: Addr) -> Verb<'static> {
    Verb::Read { addr: word_of(lock), words: 1 }
}

/// The same, and what they are.
pub(super) async fn read<E: Endpoint>(endpoint: &E, lock: Addr) -> Outcome<TuningWord> {
    endpoint.verb(reading(lock)).await?;
    Ok(TuningWord(endpoint.old() as u64))
}

/// The parameters by which this slot's request works, as the slot remembers them; of its next one,
/// by which it was to work last.
pub(super) fn remembered<E: Endpoint>(site: &Site<'_, E>) -> TuningWord {
    TuningWord(site.hint().unwrap_or(0) as u64)
}

#[cfg(test)]
mod tests {
    use super::super::Exclusive;
    use super::*;
    use crate::want::BlockNumbers;

    fn lock() -> Exclusive {
        Exclusive { distance: 2, wait_ns: Some(15_000), is_tuned: true, ..Exclusive::default() }
    }

    fn to(distance: u8, wait_ns: Nanos) -> Tuning {
        Tuning { distance, wait_ns }
    }

    fn first() -> Tuning {
        lock().first().expect("it is tuned")
    }

    fn plan(word: TuningWord) -> Plan {
        lock().plan(BlockNumbers::NONE).by(word)
    }

    /// The words of a lock that is changed to these, one after the other.
    fn words(changes: &[Tuning]) -> Vec<TuningWord> {
        let mut words = vec![TuningWord::new()];
        for &to in changes {
            let prepared = words[words.len() - 1].prepared(first(), to);
            words.extend([prepared, prepared.committed()]);
        }
        words
    }

    #[test]
    fn the_parameters_are_those_of_the_options_until_they_are_changed() {
        let words = words(&[to(1, 30_000), to(4, 1_000)]);
        let by = |word: TuningWord| {
            let plan = plan(word);
            (plan.notifies, plan.distance, plan.in_time_ns, plan.wait_ns.expect("it is timed"))
        };
        assert_eq!(by(words[0]), (2, 2, 15_000, 15_000));
        assert_eq!(by(words[1]), (1, 2, 15_000, 30_000), "the lower and the higher");
        assert_eq!(by(words[2]), (1, 1, 30_000, 30_000));
        assert_eq!(by(words[3]), (1, 4, 1_000, 30_000));
        assert_eq!(by(words[4]), (4, 4, 1_000, 1_000));
        assert_eq!(words.iter().map(|word| word.change()).collect::<Vec<_>>(), [0, 1, 2, 3, 0]);
    }

    /// Whether what one notifies the other looks at, and one is not in time when the other has
    /// waited.
    fn go_together(one: &Plan, other: &Plan) -> bool {
        let is_below = |below: &Plan, above: &Plan| {
            below.notifies <= above.distance && Some(below.in_time_ns) <= above.wait_ns
        };
        is_below(one, other) && is_below(other, one)
    }

    /// A change is committed when nobody works by what was before it was prepared: then each works
    /// by this phase or the one before, or by the change before this.
    #[test]
    fn all_who_work_at_once_exclude_each_other() {
        let all: Vec<Tuning> =
            [1, 2, 4].into_iter().flat_map(|m| [9_000, 20_000].map(|wait| to(m, wait))).collect();
        let mut missed = 0;
        for one in &all {
            for other in &all {
                for last in &all {
                    let words = words(&[*one, *other, *last]);
                    for (at, &word) in words.iter().enumerate() {
                        // At a commit nobody is left but those of the change that is committed.
                        let oldest = at.saturating_sub(2 - (at + 1) % 2);
                        for &before in &words[oldest..at] {
                            assert!(go_together(&plan(before), &plan(word)), "{before:?} {word:?}");
                            let goes_on = plan(before).going_on_by(word);
                            for &beside in &words[oldest..=at] {
                                assert!(
                                    go_together(&goes_on, &plan(beside)),
                                    "{before:?} {word:?}"
                                );
                            }
                            assert_ne!(before.change(), word.change(), "a record tells");
                        }
                        let committed_too_soon = at >= 2 && at % 2 == 0;
                        let before = committed_too_soon.then(|| plan(words[at - 2]));
                        missed += before
                            .map_or(0, |before| u32::from(!go_together(&before, &plan(word))));
                    }
                }
            }
        }
        assert!(missed > 100, "who does not wait has those that miss each other: {missed}");
    }

    #[test]
    fn numbers_come_round_to_one_that_records_take_for_the_next() {
        let last = TuningWord::new().with(TuningWord::NUMBER, TuningWord::NUMBER.max());
        assert!(last.is_preparing());
        let next = last.committed();
        assert_eq!((next.is_preparing(), next.change()), (false, (last.change() + 1) % NUMBERS));
        assert_ne!(next.number(), 0, "these are not the parameters of the options");
    }

    #[test]
    fn a_record_says_by_what_a_request_notifies() {
        for word in words(&[to(1, 30_000), to(4, 1_000)]) {
            let (plan, fixed) = (plan(word), lock().plan(BlockNumbers::NONE));
            let said = fixed.as_said(plan.said(UnitsWord::new()));
            assert_eq!((said.notifies, said.change), (plan.notifies, plan.change));
        }
        let fixed = Exclusive { is_tuned: false, ..lock() }.plan(BlockNumbers::NONE);
        assert_eq!(fixed.said(UnitsWord::new()), UnitsWord::new(), "of others it says nothing");
    }
}
