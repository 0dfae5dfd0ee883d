//! Specification: two judges that share nothing agree on histories, on those of the store and on
//! wrong ones.

use crate::scene::judge::{Answer, Ask, Judge};
use crate::scene::second::agreed;
use crate::scene::{
    self, ArrayCas, ArrayCider, ArrayLocal, ArrayOptimistic, Kit, Play, RaceCider, RaceGrowing,
    RaceLocal, RaceMcs, RaceOptimistic, Report, Work,
};
use farlock_kv::WriteError;
use farlock_sim::Ratio;

/// How many histories of the store both judges see. As many again are made wrong.
const HISTORIES: u64 = 10_000;

fn sees<K: Kit>(count: u64, base: Play, sum: &mut Report) {
    let works = [Work::Values, Work::Hot, Work::Numbers, Work::Churn, Work::Crowd];
    for seed in 0..count {
        let work = works[seed as usize % works.len()];
        let keys = if work == Work::Hot { 1 } else { base.keys };
        let play = Play { seed: seed + 1_000_000, work, keys, twice: true, ..base };
        let report = scene::play::<K>(play, None);
        sum.plus(&report.unwrap_or_else(|wrong| panic!("seed {seed}, {work:?}: {wrong}")));
    }
}

const SHARE: u64 = HISTORIES / 10;

fn agreed_on(sum: &Report) {
    println!("{} histories, of which both judges said the same: {sum:?}", 5 * SHARE);
    assert!(sum.combined > 0 && sum.lost > 0 && sum.dead > 0, "all sorts of them: {sum:?}");
    assert!(sum.twisted > SHARE, "wrong answers are found by both: {sum:?}");
}

#[test]
fn two_judges_agree_on_what_a_pointer_array_did_and_on_what_it_did_not() {
    let mut sum = Report::default();
    let crowd = Play { clients: 4, chunks: 64, ..Play::CALM };
    let tasks = Play { tasks: 3, clients: 2, operations: 4, together: true, ..crowd };
    sees::<ArrayOptimistic>(SHARE, Play { clients: 4, ..Play::CALM }, &mut sum);
    sees::<ArrayOptimistic>(SHARE, Play::STORMY, &mut sum);
    sees::<ArrayCas>(SHARE, Play::STORMY, &mut sum);
    sees::<ArrayCider>(SHARE, crowd, &mut sum);
    sees::<ArrayLocal>(SHARE, tasks, &mut sum);
    agreed_on(&sum);
}

#[test]
fn two_judges_agree_on_what_a_hash_table_did_and_on_what_it_did_not() {
    let mut sum = Report::default();
    let tight = Play { chunks: 64, operations: 8, ..Play::TIGHT }.in_a_storm();
    let crowd = Play { clients: 4, chunks: 64, ..Play::CALM };
    let tasks = Play { tasks: 3, clients: 2, operations: 4, together: true, ..crowd };
    let growing = Play { grow: Ratio::one_in(6), chunks: 160, ..Play::STORMY };
    sees::<RaceOptimistic>(SHARE, tight, &mut sum);
    sees::<RaceMcs>(SHARE, Play::STORMY, &mut sum);
    sees::<RaceCider>(SHARE, Play { crashes: 1, cancel: Ratio::one_in(10), ..crowd }, &mut sum);
    sees::<RaceLocal>(SHARE, tasks, &mut sum);
    sees::<RaceGrowing>(SHARE, growing, &mut sum);
    agreed_on(&sum);
}

/// The history of one key: each operation with its answer, one called as the one before returns.
fn one_after_the_other(operations: &[(Ask, Answer)]) -> Judge {
    let mut judge = Judge::default();
    for (ask, answer) in operations {
        let called = judge.call(b"key", ask.clone());
        judge.answer(b"key", called, ask.clone(), answer.clone());
    }
    judge
}

#[test]
fn both_find_what_is_wrong() {
    let value = |number: u64| number.to_le_bytes().to_vec();
    let inserted = (Ask::Insert(value(1)), Answer::Done);
    let found = |number| (Ask::Get, Answer::Value(Some(value(number))));
    let none = (Ask::Get, Answer::Value(None));
    let deleted = (Ask::Delete, Answer::Done);
    let updated = (Ask::Update(value(2)), Answer::Done);
    let added = (Ask::Increment(1), Answer::Sum(2));
    let set = (Ask::CompareAndSet(value(1), value(3)), Answer::Done);
    let refused = |ask, error| (ask, Answer::No(error));
    for right in [
        vec![none.clone(), inserted.clone(), found(1), updated.clone(), found(2), deleted.clone()],
        vec![inserted.clone(), added.clone(), found(2)],
        vec![inserted.clone(), set.clone(), found(3)],
        vec![inserted.clone(), refused(Ask::Insert(value(9)), WriteError::Exists), found(1)],
        vec![refused(Ask::Delete, WriteError::NotFound), (Ask::Upsert(vec![]), Answer::Done)],
    ] {
        assert!(!agreed(&one_after_the_other(&right)), "{right:?}");
    }
    for wrong in [
        // A value that nobody wrote, one that was replaced, one that was deleted.
        vec![found(1)],
        vec![inserted.clone(), updated.clone(), found(1)],
        vec![inserted.clone(), deleted.clone(), found(1)],
        // A write that is lost, a key that is there twice, a change that is made twice.
        vec![inserted.clone(), none],
        vec![inserted.clone(), inserted.clone()],
        vec![inserted.clone(), added.clone(), added],
        vec![inserted.clone(), deleted.clone(), deleted],
        vec![updated],
        vec![inserted.clone(), set.clone(), set],
        vec![inserted, refused(Ask::Update(value(2)), WriteError::NotFound)],
    ] {
        assert!(agreed(&one_after_the_other(&wrong)), "{wrong:?}");
    }
}

/// Two writes under way at once: two reads, one after the other, must not see them in both orders.
#[test]
fn both_find_reads_that_contradict_each_other() {
    let value = |number: u64| number.to_le_bytes().to_vec();
    for (seen, wrong) in [([1, 2], false), ([1, 1], false), ([2, 1], false)] {
        assert_eq!(agreed(&reads_beside_writes(&seen, &value)), wrong, "{seen:?}");
    }
    for seen in [[1, 2, 1], [2, 1, 2]] {
        assert!(agreed(&reads_beside_writes(&seen, &value)), "{seen:?}");
    }
}

fn reads_beside_writes(seen: &[u64], value: &impl Fn(u64) -> Vec<u8>) -> Judge {
    let mut judge = Judge::default();
    let writes = [1, 2].map(|number| {
        let ask = Ask::Upsert(value(number));
        (judge.call(b"key", ask.clone()), ask)
    });
    for &number in seen {
        let called = judge.call(b"key", Ask::Get);
        judge.answer(b"key", called, Ask::Get, Answer::Value(Some(value(number))));
    }
    // The second one never returns.
    let [(called, ask), _] = writes;
    judge.answer(b"key", called, ask, Answer::Done);
    judge
}
