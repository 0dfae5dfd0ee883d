//! Judges what was written down of a store: whether each key could have done one thing after the
//! other. It knows nothing of farlock.
//!
//! No value is written twice. So whatever an order of a key's operations is, those of one value
//! stand together: its write, and the reads that found it. Of each value two moments count: the
//! first end of any of its operations, and the last beginning. If the first is before the last the
//! value was there all the time between them, a *forward* zone; else there is some moment between
//! the last and the first at which it was, a *backward* zone. There is an order if and only if no
//! read ended before its write began, no two forward zones overlap, and no backward zone lies
//! within a forward zone of another value (Gibbons and Korach, Testing Shared Memories, SIAM
//! Journal on Computing 26, 1997, theorem 4.1).
//!
//! A change that was made is a read of the old value and a write of the new one, at one moment: the
//! theorem is used for both, and besides no value may have been changed twice.

use std::collections::BTreeMap;

use super::diary::{Record, What};

/// The value of a key that was never written.
pub const NONE: u64 = 0;
/// The end of what never ended.
const NEVER: u64 = u64::MAX;
/// So many objections are told.
const TOLD_MAX: usize = 5;

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Operations that ended.
    pub operations: u64,
    /// Of them, changes that others came before.
    pub refused: u64,
    /// Operations that did not end: their process was killed.
    pub unfinished: u64,
    /// Operations of which nobody knows whether they were carried out, as may be.
    pub unknown: u64,
    /// Operations that failed, or whose end is not known for no reason.
    pub failed: u64,
    /// Values that were read and never written, or before they were.
    pub made_up: u64,
    /// Pairs of values of which each was there before the other, and after.
    pub disordered: u64,
    /// Values that were changed twice.
    pub changed_twice: u64,
    /// The longest time that an operation took whose process was not held up meanwhile, in
    /// nanoseconds.
    pub slowest_ns: u64,
    /// The same of those whose trips are long.
    pub slowest_far_ns: u64,
    /// What was objected to, some of it.
    pub examples: Vec<String>,
}

/// Operations of one value of a key.
#[derive(Clone, Copy, Debug)]
struct Value {
    /// When its write began; `None`: nobody wrote it.
    written: Option<u64>,
    first_end: u64,
    last_begin: u64,
    /// How often it was changed into another one.
    changed: u64,
    is_read: bool,
}

impl Default for Value {
    fn default() -> Self {
        Self { written: None, first_end: NEVER, last_begin: 0, changed: 0, is_read: false }
    }
}

impl Value {
    fn spans(&mut self, begin: u64, end: u64) {
        self.first_end = self.first_end.min(end);
        self.last_begin = self.last_begin.max(begin);
    }

    fn write(&mut self, begin: u64, end: u64) {
        self.written = Some(begin);
        self.spans(begin, end);
    }

    fn read(&mut self, begin: u64, end: u64) {
        self.is_read = true;
        self.spans(begin, end);
    }
}

/// Times from which until which something was so.
pub type Times = Vec<(u64, u64)>;

/// What befell a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hurts {
    /// When it was stopped, or its server was not to be reached: what it did then may take long.
    pub held_up: Times,
    /// When it was cut off for so long that it may lose its session.
    pub cut_off: Times,
    /// When its server was killed, which forgets how chains ended that it did not answer.
    pub forgotten: Times,
    /// Whether its trips are long, by what lies between it and the server.
    pub is_far: bool,
}

impl Hurts {
    /// Whether it may not know how what it asked has ended.
    fn excuse(&self, asked: Record, answer: Record) -> bool {
        let may_be = |times: &Times| was_so(times, asked.time, answer.time);
        match answer.what {
            What::Lost => may_be(&self.cut_off),
            What::Unknown => may_be(&self.cut_off) || may_be(&self.forgotten),
            _ => false,
        }
    }
}

/// Whether something was so at any time from one moment until another.
fn was_so(times: &Times, begin: u64, end: u64) -> bool {
    times.iter().any(|&(from, to)| from <= end && begin <= to)
}

/// The operations of all workers.
#[derive(Debug, Default)]
pub struct Judge {
    keys: BTreeMap<u64, BTreeMap<u64, Value>>,
    verdict: Verdict,
}

impl Judge {
    /// Hears what one worker wrote down, and what befell it.
    pub fn hear(&mut self, diary: &[Record], hurts: &Hurts) {
        let mut records = diary.iter().peekable();
        while let Some(&asked) = records.next() {
            let answer = records.next_if(|next| next.what.is_answer());
            match answer {
                Some(&answer) => {
                    self.verdict.operations += 1;
                    self.operation(asked, answer, hurts);
                    if !was_so(&hurts.held_up, asked.time, answer.time) {
                        let slowest = match hurts.is_far {
                            true => &mut self.verdict.slowest_far_ns,
                            false => &mut self.verdict.slowest_ns,
                        };
                        *slowest = (*slowest).max(answer.time - asked.time);
                    }
                }
                None => {
                    self.verdict.unfinished += 1;
                    self.cut_off(asked);
                }
            }
        }
    }

    fn value(&mut self, key: u64, value: u64) -> &mut Value {
        let values = self.keys.entry(key).or_insert_with(|| {
            // It had none before anything began.
            let none = Value { written: Some(0), first_end: 0, ..Value::default() };
            BTreeMap::from([(NONE, none)])
        });
        values.entry(value).or_default()
    }

    fn operation(&mut self, asked: Record, answer: Record, hurts: &Hurts) {
        let (begin, end) = (asked.time, answer.time);
        match (asked.what, answer.what) {
            (_, What::Lost | What::Unknown) if hurts.excuse(asked, answer) => {
                self.verdict.unknown += 1;
                self.cut_off(asked);
            }
            (_, What::Failed | What::Lost | What::Unknown) => {
                self.verdict.failed += 1;
                self.cut_off(asked);
            }
            (What::Get, _) => self.value(asked.key, answer.one).read(begin, end),
            (What::Put, _) => self.value(asked.key, asked.one).write(begin, end),
            (What::Change, What::Refused) => self.verdict.refused += 1,
            (What::Change, _) => {
                let old = self.value(asked.key, asked.one);
                old.changed += 1;
                old.read(begin, end);
                self.value(asked.key, asked.other).write(begin, end);
            }
            _ => self.verdict.failed += 1,
        }
    }

    /// It may have been carried out at any time since, or never.
    fn cut_off(&mut self, asked: Record) {
        match asked.what {
            What::Put => self.value(asked.key, asked.one).write(asked.time, NEVER),
            What::Change => self.value(asked.key, asked.other).write(asked.time, NEVER),
            _ => {}
        }
    }

    /// What is to be said of it all.
    pub fn verdict(mut self) -> Verdict {
        for (&key, values) in &self.keys {
            judge_key(key, values, &mut self.verdict);
        }
        self.verdict
    }
}

fn judge_key(key: u64, values: &BTreeMap<u64, Value>, verdict: &mut Verdict) {
    let object = |examples: &mut Vec<String>, what: String| {
        if examples.len() < TOLD_MAX {
            examples.push(format!("key {key}: {what}"));
        }
    };
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    for (&number, value) in values {
        if value.written.is_none_or(|begin| value.is_read && value.first_end < begin) {
            verdict.made_up += 1;
            object(&mut verdict.examples, format!("{number:#x} was read and not yet written"));
        }
        if value.changed > 1 {
            verdict.changed_twice += 1;
            object(&mut verdict.examples, format!("{number:#x} was changed twice"));
        }
        if value.first_end == NEVER {
            // It was written by a process that was killed, and nobody saw it.
            continue;
        }
        match value.first_end < value.last_begin {
            true => forward.push((value.first_end, value.last_begin, number)),
            false => backward.push((value.last_begin, value.first_end, number)),
        }
    }
    forward.sort_unstable();
    for pair in forward.windows(2) {
        if pair[1].0 < pair[0].1 {
            verdict.disordered += 1;
            object(&mut verdict.examples, disorder(pair[0], pair[1]));
        }
    }
    for zone in backward {
        // The last forward zone that begins before it.
        let after = forward.partition_point(|other| other.0 < zone.0);
        let Some(&around) = after.checked_sub(1).map(|at| &forward[at]) else { continue };
        if zone.1 < around.1 {
            verdict.disordered += 1;
            object(&mut verdict.examples, disorder(around, zone));
        }
    }
}

fn disorder(one: (u64, u64, u64), other: (u64, u64, u64)) -> String {
    format!(
        "{:#x} was there from {} to {}, and {:#x} between {} and {}",
        one.2, one.0, one.1, other.2, other.0, other.1
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u64 = 1;

    /// Operations of workers that do one at a time each: begin, end, what, value, other value.
    type Operation = (u64, u64, What, u64, u64);

    fn judged(operations: &[Operation]) -> Verdict {
        let mut judge = Judge::default();
        for &(begin, end, what, one, other) in operations {
            let record = |what, time, one, other| Record { what, time, key: KEY, one, other };
            let asked = if what == What::Get { (0, 0) } else { (one, other) };
            let mut diary = vec![record(what, begin, asked.0, asked.1)];
            if end != NEVER {
                diary.push(record(What::Done, end, one, 0));
            }
            judge.hear(&diary, &Hurts::default());
        }
        judge.verdict()
    }

    fn get(begin: u64, end: u64, value: u64) -> Operation {
        (begin, end, What::Get, value, 0)
    }

    fn put(begin: u64, end: u64, value: u64) -> Operation {
        (begin, end, What::Put, value, 0)
    }

    fn change(begin: u64, end: u64, old: u64, new: u64) -> Operation {
        (begin, end, What::Change, old, new)
    }

    #[test]
    fn what_can_be_put_in_order_is_not_objected_to() {
        let orders: [&[Operation]; 6] = [
            &[get(1, 2, NONE), put(3, 4, 7), get(5, 6, 7)],
            // They overlap, so that either may have been first.
            &[put(1, 9, 7), put(2, 8, 8), get(10, 11, 7), get(12, 13, 7)],
            &[put(1, 9, 7), put(2, 8, 8), get(3, 4, 8), get(5, 6, 7)],
            // What was cut off may have been done later, or never.
            &[put(1, NEVER, 7), put(2, 3, 8), get(4, 5, 8), get(6, 7, 7)],
            &[put(1, NEVER, 7), put(2, 3, 8), get(4, 5, 8)],
            &[put(1, 2, 7), change(3, 4, 7, 8), change(5, NEVER, 8, 9), get(6, 7, 9)],
        ];
        for order in orders {
            let verdict = judged(order);
            let objections = (verdict.made_up, verdict.disordered, verdict.changed_twice);
            assert_eq!(objections, (0, 0, 0), "{order:?}: {:?}", verdict.examples);
        }
    }

    #[test]
    fn what_cannot_be_is_objected_to() {
        let wrongs: [(&[Operation], &str); 8] = [
            (&[put(1, 2, 7), get(3, 4, NONE)], "lost"),
            (&[put(1, 2, 7), put(3, 4, 8), get(5, 6, 7)], "an older value"),
            (&[put(1, 9, 7), put(2, 8, 8), get(10, 11, 7), get(12, 13, 8)], "one, then other"),
            (&[get(1, 2, 7)], "made up"),
            (&[get(1, 2, 7), put(3, 4, 7)], "from later"),
            (&[put(1, 2, 7), change(3, 4, 7, 8), change(5, 6, 7, 9)], "changed twice"),
            (&[put(1, 2, 7), put(3, 4, 8), change(5, 6, 7, 9)], "changed what was gone"),
            (&[put(1, 2, 7), put(3, NEVER, 8), get(4, 5, 8), get(6, 7, 7)], "gone again"),
        ];
        for (wrong, name) in wrongs {
            let verdict = judged(wrong);
            let objections = verdict.made_up + verdict.disordered + verdict.changed_twice;
            assert!(objections > 0 && !verdict.examples.is_empty(), "{name}");
        }
    }

    #[test]
    fn an_operation_of_a_stopped_process_may_take_long() {
        let record = |what, time| Record { what, time, key: KEY, one: NONE, other: 0 };
        let diary = [record(What::Get, 10), record(What::Done, 90)];
        for (held_up, slowest) in [(vec![], 80), (vec![(20, 30)], 0), (vec![(95, 99)], 80)] {
            let mut judge = Judge::default();
            let hurts = Hurts { held_up, ..Hurts::default() };
            judge.hear(&diary, &hurts);
            assert_eq!(judge.verdict().slowest_ns, slowest, "{hurts:?}");
        }
    }

    #[test]
    fn a_session_is_lost_by_who_was_cut_off_alone_and_its_change_may_come_late() {
        let record = |what, time, one| Record { what, time, key: KEY, one, other: 0 };
        let cut = |times| Hurts { cut_off: times, ..Hurts::default() };
        let killed = |times| Hurts { forgotten: times, ..Hurts::default() };
        for (hurts, answer, unknown) in [
            (Hurts::default(), What::Lost, 0),
            (cut(vec![(0, 5)]), What::Lost, 0),
            (cut(vec![(5, 11)]), What::Lost, 1),
            (killed(vec![(5, 11)]), What::Lost, 0),
            (killed(vec![(5, 11)]), What::Unknown, 1),
            (killed(vec![(5, 9)]), What::Unknown, 0),
        ] {
            let mut judge = Judge::default();
            judge.hear(&[record(What::Put, 10, 7), record(answer, 20, 0)], &hurts);
            let gets = [(30, NONE), (40, 7)];
            let gets = gets
                .map(|(at, found)| [record(What::Get, at, 0), record(What::Done, at + 1, found)]);
            judge.hear(gets.as_flattened(), &Hurts::default());
            let verdict = judge.verdict();
            assert_eq!((verdict.unknown, verdict.failed), (unknown, 1 - unknown), "{hurts:?}");
            assert_eq!((verdict.made_up, verdict.disordered), (0, 0), "{hurts:?}");
        }
    }
}
