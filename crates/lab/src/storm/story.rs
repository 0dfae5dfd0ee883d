//! The log of a storm, sorted out: operations from their requests to their ends, and what befell
//! the processes. Nothing here knows a lock's text.

use std::collections::BTreeMap;

use super::log::{Patience, Record, What};
use super::part::Part;

/// Who kills and stops looks after everybody much more often than that.
const FROZEN_NS: u64 = 50_000_000;

/// How long a client may take to go on by another connection, when its server is in reach again.
const COMES_BACK_NS: u64 = 150_000_000;

/// An operation, from its request to its end.
#[derive(Clone, Debug)]
pub struct Op {
    /// Whose it is.
    pub who: u64,
    /// Which one of theirs.
    pub number: u64,
    /// What it asks for.
    pub part: Part,
    /// Whether alone.
    pub alone: bool,
    /// How long it waits.
    pub patience: Patience,
    /// Which others of its process it was asked for with, together; 0: with none.
    pub group: u64,
    /// When it asked.
    pub asked: u64,
    /// When it held.
    pub entered: Option<u64>,
    /// The token with which it did.
    pub token: u64,
    /// When it was about to release.
    pub left: Option<u64>,
    /// When it was released, and whether it only let go.
    pub ended: Option<(u64, bool)>,
    /// When it was not granted, and why.
    pub refused: Option<(u64, u64)>,
    /// Whether it found another one inside.
    pub overlaps: bool,
}

/// What befell a process.
#[derive(Clone, Debug, Default)]
pub struct Fate {
    /// Just before it was killed.
    pub killed: Option<u64>,
    /// When nothing was left of it.
    pub gone: Option<u64>,
    /// When it was stopped.
    pub stops: Vec<Stop>,
    /// When its connections to its server were broken.
    pub cuts: Vec<Span>,
    /// When it lost its session.
    pub lost: Option<u64>,
}

impl Fate {
    /// Whether it lost its session though its connections were not broken for so long.
    pub fn lost_unduly(&self, loses_ns: u64) -> bool {
        let loses = |lost: u64| {
            let long = |(from, to): &Span| to - from >= loses_ns && *from <= lost;
            self.cuts.iter().any(long)
        };
        self.lost.is_some_and(|lost| !loses(lost))
    }
}

/// A stop: ordered, seen, ended.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// When it was about to stop.
    pub ordered: u64,
    /// When it was seen to be stopped.
    pub seen: Option<u64>,
    /// When it went on, or the end of the storm.
    pub ended: u64,
}

/// From one moment to another.
pub type Span = (u64, u64);

/// The log, sorted out.
#[derive(Clone, Debug)]
pub struct Story {
    /// The operations, by their processes.
    pub ops: Vec<Op>,
    /// What befell each process.
    pub fates: BTreeMap<u64, Fate>,
    /// When it began.
    pub begun: u64,
    /// When it ended.
    pub over: u64,
    /// When the machine did not even run the crew, which kills and stops.
    pub frozen: Vec<Span>,
    /// Operations that failed as nothing should.
    pub failures: u64,
}

impl Story {
    /// Sorts a log out.
    pub fn read(records: &[Record]) -> Self {
        let mut sorted = records.to_vec();
        sorted.sort_by_key(|record| record.time);
        let begun = sorted.first().map_or(0, |record| record.time);
        let last = sorted.last().map_or(0, |record| record.time);
        let over = sorted.iter().find(|record| record.what == What::Over);
        let over = over.map_or(last, |record| record.time);
        let mut ops: BTreeMap<(u64, u64), Op> = BTreeMap::new();
        let mut fates: BTreeMap<u64, Fate> = BTreeMap::new();
        let (mut frozen, mut watched, mut failures) = (Vec::new(), None, 0);
        for record in &sorted {
            let fate = fates.entry(record.who).or_default();
            match record.what {
                What::Kills => fate.killed = fate.killed.or(Some(record.time)),
                What::Gone => fate.gone = Some(record.time),
                What::Stops => {
                    fate.stops.push(Stop { ordered: record.time, seen: None, ended: over });
                }
                What::Stopped => {
                    let open = fate.stops.iter_mut().filter(|stop| stop.ended == over);
                    open.for_each(|stop| stop.seen = stop.seen.or(Some(record.time)));
                }
                What::Continues => {
                    let open = fate.stops.iter_mut().filter(|stop| stop.ended == over);
                    open.for_each(|stop| stop.ended = record.time);
                }
                What::Cut => fate.cuts.push((record.time, record.more.max(record.time))),
                What::Lost => fate.lost = fate.lost.or(Some(record.time)),
                What::Failed => failures += 1,
                What::Over => {}
                What::Watches => {
                    frozen.extend(
                        watched
                            .filter(|last| record.time - last > FROZEN_NS)
                            .map(|last| (last, record.time)),
                    );
                    watched = Some(record.time);
                }
                _ => {
                    let key = (record.who, record.op);
                    ops.entry(key).or_insert_with(|| Op::of(record)).note(record);
                }
            }
        }
        Self { ops: ops.into_values().collect(), fates, begun, over, frozen, failures }
    }

    /// What befell the process of this operation.
    pub fn fate(&self, op: &Op) -> &Fate {
        &self.fates[&op.who]
    }

    /// When this process was killed, or the end of the storm.
    pub fn killed(&self, op: &Op) -> u64 {
        self.fate(op).killed.unwrap_or(self.over)
    }

    /// When nothing was left of this process, or the end of the storm.
    pub fn gone(&self, op: &Op) -> u64 {
        self.fate(op).gone.unwrap_or(self.over)
    }

    /// From when to when this operation was certainly inside.
    pub fn inside(&self, op: &Op) -> Option<Span> {
        Some((op.entered?, op.left.unwrap_or_else(|| self.killed(op))))
    }

    /// From when to when this operation may have held: until it had released, or its process was
    /// gone, and what that had started as well.
    pub fn held(&self, op: &Op) -> Option<Span> {
        let gone = || self.gone(op).max(op.left.unwrap_or_default());
        Some((op.entered?, op.ended.map_or_else(gone, |(at, _)| at)))
    }

    /// The operations on each lock, in the order in which they were asked for.
    pub fn by_lock(&self) -> Vec<Vec<&Op>> {
        let mut locks: BTreeMap<u64, Vec<&Op>> = BTreeMap::new();
        for op in &self.ops {
            locks.entry(op.part.lock).or_default().push(op);
        }
        let mut locks: Vec<Vec<&Op>> = locks.into_values().collect();
        locks.iter_mut().for_each(|ops| ops.sort_by_key(|op| op.asked));
        locks
    }

    /// Until when this operation waited for its grant.
    pub fn waited_until(&self, op: &Op) -> u64 {
        let refused = op.refused.map(|(at, _)| at);
        op.entered.or(refused).unwrap_or_else(|| self.killed(op))
    }

    /// When this operation's process was stopped, or may have been, or could not reach its server.
    pub fn stopped(&self, op: &Op) -> Vec<Span> {
        let Fate { stops, cuts, .. } = self.fate(op);
        let stops = stops.iter().map(|stop| (stop.ordered, stop.ended));
        let cuts = cuts.iter().map(|(from, to)| (*from, to + COMES_BACK_NS));
        united(stops.chain(cuts).collect())
    }

    /// Those that entered, in that order, with the time for which they were certainly inside.
    pub fn in_order<'o>(&self, ops: &[&'o Op]) -> Vec<(&'o Op, Span)> {
        let inside = |op: &&'o Op| Some((*op, self.inside(op)?));
        let mut order: Vec<_> = ops.iter().filter_map(inside).collect();
        order.sort_by_key(|(_, (entered, _))| *entered);
        order
    }
}

impl Op {
    /// Whether both are had together, or neither.
    pub fn is_with(&self, other: &Self) -> bool {
        self.group != 0 && (self.who, self.group) == (other.who, other.group)
    }

    fn of(record: &Record) -> Self {
        Self {
            who: record.who,
            number: record.op,
            part: record.part,
            alone: record.alone,
            patience: Patience::Endless,
            group: 0,
            asked: record.time,
            entered: None,
            token: 0,
            left: None,
            ended: None,
            refused: None,
            overlaps: false,
        }
    }

    fn note(&mut self, record: &Record) {
        match record.what {
            What::Asks => (self.patience, self.group) = (Patience::of(record.more), record.token),
            What::Enters => {
                (self.entered, self.token) = (Some(record.time), record.token);
            }
            What::Leaves => self.left = Some(record.time),
            What::Ended => self.ended = Some((record.time, record.more == 1)),
            What::Refused => self.refused = Some((record.time, record.more)),
            What::Overlaps => self.overlaps = true,
            _ => unreachable!("other records are no operation's"),
        }
    }
}

/// Whether the two have a moment in common.
pub fn meet(one: Span, other: Span) -> bool {
    one.0 <= other.1 && other.0 <= one.1
}

/// Spans that overlap made one, in order.
pub fn united(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut united: Vec<Span> = Vec::new();
    for (from, to) in spans {
        match united.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => united.push((from, to)),
        }
    }
    united
}

/// What is left of a span without others, which are in order and apart or few.
pub fn without(span: Span, others: &[Span]) -> Vec<Span> {
    let (mut from, to) = span;
    let mut left = Vec::new();
    let first = others.partition_point(|other| other.1 < from);
    for other in &others[first..] {
        if other.0 >= to {
            break;
        }
        if from < other.0 {
            left.push((from, other.0));
        }
        from = from.max(other.1);
    }
    if from < to {
        left.push((from, to));
    }
    left
}

/// Logs that tests tell.
#[cfg(test)]
pub(super) mod told {
    use super::super::log::{Patience, Record, Refusal, What};
    use super::super::part::Part;

    /// A millisecond.
    pub(in super::super) const MS: u64 = 1_000_000;

    /// A log, told line by line: a process is a letter's number, times are in milliseconds.
    #[derive(Default)]
    pub(in super::super) struct Told(pub(in super::super) Vec<Record>);

    impl Told {
        pub(in super::super) fn add(mut self, time: u64, who: u64, what: What, more: u64) -> Self {
            let (time, op) = (time * MS, who);
            let record = Record { time, op, more, ..Record::now(what, who) };
            self.0.push(Record { alone: true, token: time, ..record });
            self
        }

        pub(in super::super) fn asks(self, time: u64, who: u64, patience: Patience) -> Self {
            self.add(time, who, What::Asks, patience.bits())
        }

        pub(in super::super) fn holds(self, asked: u64, from: u64, to: u64, who: u64) -> Self {
            let told = self.asks(asked, who, Patience::Endless).add(from, who, What::Enters, 0);
            told.add(to, who, What::Leaves, 0).add(to, who, What::Ended, 0)
        }

        pub(in super::super) fn refused(self, from: u64, to: u64, who: u64) -> Self {
            let told = self.asks(from, who, Patience::Try);
            told.add(to, who, What::Refused, Refusal::Busy as u64)
        }

        pub(in super::super) fn shared(mut self, who: u64) -> Self {
            let own = self.0.iter_mut().filter(|record| record.who == who);
            own.for_each(|record| record.alone = false);
            self
        }

        pub(in super::super) fn with_token(mut self, who: u64, token: u64) -> Self {
            let own = self.0.iter_mut().filter(|record| record.who == who);
            own.for_each(|record| record.token = token);
            self
        }

        /// Another operation of a process, which is asked for together with those of its group.
        pub(in super::super) fn part(
            mut self,
            (asked, from, to): (u64, u64, u64),
            (who, op): (u64, u64),
            (start, end): (u64, u64),
            group: u64,
        ) -> Self {
            let part = Part { lock: 0, start, end };
            let all = [
                (asked, What::Asks, Patience::Endless.bits(), group),
                (from, What::Enters, 0, from),
                (to, What::Leaves, 0, from),
                (to, What::Ended, 0, from),
            ];
            self.0.extend(all.map(|(time, what, more, token)| {
                let (time, alone) = (time * MS, true);
                Record { time, op, more, token, part, alone, ..Record::now(what, who) }
            }));
            self
        }

        /// This process asks for these positions, not for all.
        pub(in super::super) fn of(mut self, who: u64, start: u64, end: u64) -> Self {
            let own = self.0.iter_mut().filter(|record| record.who == who);
            own.for_each(|record| record.part = Part { lock: 0, start, end });
            self
        }
    }

    pub(in super::super) fn told() -> Told {
        Told::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_united_and_cut() {
        assert_eq!(united(vec![(5, 7), (1, 3), (2, 4), (7, 9)]), [(1, 4), (5, 9)]);
        assert_eq!(without((0, 10), &[(1, 4), (5, 9)]), [(0, 1), (4, 5), (9, 10)]);
        assert_eq!(without((2, 8), &[(1, 4), (5, 9)]), [(4, 5)]);
        assert_eq!(without((2, 3), &[(1, 4)]), []);
    }
}
