//! Specification: schedules find what they should, end when everything was seen, and replay.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use farlock_fabric::{Addr, Endpoint, Link, Verb, Wait};
use farlock_sim::schedule::{Director, Exhaustive, Pct, Random, Replay, Schedule, Trail};
use farlock_sim::{Config, Ended, Mode, Ratio, Weakness, World};

fn config() -> Config {
    Config {
        mode: Mode::Explored,
        weakness: Weakness::NONE,
        endpoints: 4,
        slots_per_endpoint: 1,
        events_max: Some(1_000),
        ..Config::default()
    }
}

/// Runs `case` in a world of its own for each schedule, until `stop` says so of what it returned.
fn find<S: Schedule + 'static, T>(
    director: &Director<S>,
    runs_max: u64,
    case: impl Fn(&World, Addr) -> T,
    stop: impl Fn(&T) -> bool,
) -> (u64, Option<(T, u64)>) {
    for run in 0..runs_max {
        let Some(oracle) = director.begin() else { return (run, None) };
        let world = World::with_oracle(config(), oracle);
        let base = world.region(world.node(), 256);
        let result = case(&world, base);
        if stop(&result) {
            return (run + 1, Some((result, world.trace_hash())));
        }
    }
    (runs_max, None)
}

/// Three clients, one spin lock, two rounds; in the end how they ended, and the protected sum.
fn spin_lock(world: &World, base: Addr) -> (Ended, u64) {
    let (lock, sum) = (base, base.plus(64));
    for _ in 0..3 {
        let endpoint = world.endpoint();
        world.spawn(endpoint.id(), async move {
            for round in 0..2 {
                endpoint.checkpoint(&[round]);
                loop {
                    endpoint.cas64(lock, 0, 1).await.expect("the word exists");
                    if endpoint.old() == 0 {
                        break;
                    }
                    endpoint.checkpoint(&[]);
                    endpoint.wait(Wait { word: Some((lock, 1)), ..Wait::default() }).await;
                }
                endpoint.read64(sum).await.expect("the word exists");
                let data = [endpoint.old() as u64 + 1];
                endpoint.verb(Verb::Write { addr: sum, data: &data }).await.expect("it exists");
                endpoint.verb(Verb::Write { addr: lock, data: &[0] }).await.expect("it exists");
            }
        });
    }
    (world.run(), world.peek(sum))
}

#[test]
fn every_schedule_of_a_spin_lock_is_seen_in_few_runs() {
    let director = Director::new(Exhaustive::new());
    let ends = RefCell::new(BTreeSet::new());
    let (runs, _) = find(&director, u64::MAX, spin_lock, |(ended, sum)| {
        if *ended != Ended::Abandoned {
            ends.borrow_mut().insert((format!("{ended:?}"), *sum));
        }
        false
    });
    let states = director.with(|schedule| schedule.states());
    assert_eq!(ends.into_inner(), BTreeSet::from([("Finished".to_owned(), 6)]));
    assert!((100..20_000).contains(&states), "{states} states");
    assert!(runs < states * 3, "{runs} runs for {states} states");
}

/// A word goes from 0 to 1 and back unseen: one client reads, the other changes and restores, the
/// first takes the word for unchanged. The bug needs four turns in a row at the right moments among
/// twenty clients' steps of no consequence.
fn aba(world: &World, base: Addr) -> bool {
    let (word, noise) = (base, base.plus(64));
    let fooled = Rc::new(RefCell::new(false));
    for who in 0..4 {
        let (endpoint, fooled) = (world.endpoint(), Rc::clone(&fooled));
        world.spawn(endpoint.id(), async move {
            for _ in 0..12 {
                endpoint.faa64(noise, 1).await.expect("the word exists");
            }
            if who == 0 {
                endpoint.read64(word).await.expect("the word exists");
                let before = endpoint.old() as u64;
                endpoint.read64(word.plus(8)).await.expect("the word exists");
                let version = endpoint.old();
                endpoint.cas64(word, before, 9).await.expect("the word exists");
                let same = endpoint.old() as u64 == before && before == 0;
                endpoint.read64(word.plus(8)).await.expect("the word exists");
                *fooled.borrow_mut() |= same && endpoint.old() >= version + 10;
            } else if who == 1 {
                for _ in 0..10 {
                    endpoint.cas64(word, 0, 1).await.expect("the word exists");
                    endpoint.cas64(word, 1, 0).await.expect("the word exists");
                    endpoint.faa64(word.plus(8), 1).await.expect("the word exists");
                }
            }
        });
    }
    assert_eq!(world.run(), Ended::Finished);
    *fooled.borrow()
}

#[test]
fn few_preemptions_find_what_chance_does_not() {
    let pct = Director::new(Pct::new(1, 3));
    let (runs, found) = find(&pct, 5_000, aba, |&fooled| fooled);
    assert!(found.is_some(), "not in {runs} runs of depth 3");
    let random = Director::new(Random::new(1));
    let (_, found) = find(&random, runs * 4, aba, |&fooled| fooled);
    assert!(found.is_none(), "chance found it in {runs} runs: the test shows nothing");
}

#[test]
fn a_printed_trail_replays_the_run() {
    for seed in 0..50 {
        let random = Director::new(Random::new(seed));
        let (_, found) = find(&random, 1, spin_lock, |_| true);
        let (result, hash) = found.expect("it stops at once");
        let trail: Trail = random.trail().to_string().parse().expect("a trail is a trail");
        let replay = Director::new(Replay::new(trail.clone()));
        let (runs, found) = find(&replay, 9, spin_lock, |_| true);
        assert_eq!((runs, found), (1, Some((result, hash))), "seed {seed}");
        assert_eq!(replay.trail(), trail);
    }
}

#[test]
fn the_obvious_run_preempts_nobody() {
    let replay = Director::new(Replay::new(Trail::default()));
    let (_, found) = find(&replay, 1, spin_lock, |_| true);
    assert_eq!(found.map(|(result, _)| result), Some((Ended::Finished, 6)));
    assert_eq!(replay.trail(), Trail::default());
}

/// Two clients that politely wait for each other: each sets its flag, looks at the other's, and
/// takes its own back. It is content if the other's was not set; if they are never content they go
/// round in circles.
fn polite(world: &World, base: Addr, content: bool) -> Ended {
    for who in 0..2_u64 {
        let endpoint = world.endpoint();
        let (own, other) = (base.plus(who * 8), base.plus((1 - who) * 8));
        world.spawn(endpoint.id(), async move {
            loop {
                endpoint.checkpoint(&[]);
                endpoint.cas64(own, 0, 1).await.expect("the word exists");
                endpoint.read64(other).await.expect("the word exists");
                let free = endpoint.old() == 0;
                endpoint.cas64(own, 1, 0).await.expect("the word exists");
                if free && content {
                    return;
                }
            }
        });
    }
    world.run()
}

/// How many states there are from which nobody comes to an end, and the trail to the first.
fn doomed(content: bool) -> (usize, Option<Trail>) {
    let explore = |exhaustive| {
        let (director, trail) = (Director::new(exhaustive), RefCell::new(None));
        let case = |world: &World, base| polite(world, base, content);
        find(&director, u64::MAX, case, |ended| {
            if *ended == Ended::Finished {
                director.with(Exhaustive::ended);
            }
            trail.replace(Some(director.trail()));
            false
        });
        (director.with(|schedule| schedule.doomed()), trail.into_inner())
    };
    let (states, _) = explore(Exhaustive::new());
    let count = states.len();
    let trail = (count > 0).then(|| explore(Exhaustive::until(states)).1);
    (count, trail.flatten())
}

#[test]
fn who_goes_round_in_circles_for_ever_is_told_from_who_may_come_to_an_end() {
    assert_eq!(doomed(true), (0, None), "from every state a lucky schedule ends");
    let (count, trail) = doomed(false);
    assert!(count > 0 && trail.is_some(), "no schedule makes them content");
}

#[test]
fn a_death_anywhere_is_at_every_verb_with_every_end() {
    let director = Director::new(Exhaustive::new());
    let ends = RefCell::new(BTreeSet::new());
    let case = |world: &World, base: Addr| {
        let (one, two) = (world.endpoint(), world.endpoint());
        let ids = [one.id(), two.id()];
        for endpoint in [one, two] {
            world.spawn(endpoint.id(), async move {
                endpoint.faa64(base, 1).await.expect("the word exists");
                endpoint.faa64(base, 16).await.expect("the word exists");
            });
        }
        world.crash_anywhere(1, Ratio::one_in(2));
        let ended = world.run();
        (ended, ids.map(|id| world.crashed_at(id).is_some()), world.peek(base))
    };
    find(&director, u64::MAX, case, |(ended, dead, sum)| {
        if *ended == Ended::Finished {
            ends.borrow_mut().insert((*dead, *sum));
        }
        false
    });
    let one_dies = |dead| [17, 18, 34].map(|sum| (dead, sum));
    let mut all = vec![([false, false], 34)];
    all.extend(one_dies([true, false]));
    all.extend(one_dies([false, true]));
    assert_eq!(ends.into_inner(), BTreeSet::from_iter(all));
}

/// The story of an exploration that took two states for one: of two writes that had both written
/// their first word, the next word of one was the second and of the other the third. So whatever
/// follows from the one that came later was never seen.
#[test]
fn words_of_a_torn_write_come_in_every_order() {
    /// The words in the order in which they are to be written.
    const ORDERS: [[u64; 3]; 6] =
        [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for [first, second, third] in ORDERS {
        let director = Director::new(Exhaustive::new());
        let torn = Ratio::one_in(2);
        let mut seen = BTreeSet::new();
        while let Some(oracle) = director.begin() {
            let weakness = Weakness { torn, ..Weakness::NONE };
            let world = World::with_oracle(Config { weakness, ..config() }, oracle);
            let base = world.region(world.node(), 256);
            let (writer, reader) = (world.endpoint(), world.endpoint());
            world.spawn(writer.id(), async move {
                writer.verb(Verb::Write { addr: base, data: &[1; 3] }).await
            });
            let task = world.spawn(reader.id(), async move {
                let mut found = Vec::new();
                for word in [first, second, second, third] {
                    reader.read64(base.plus(word * 8)).await.expect("the word exists");
                    found.push(reader.old());
                }
                found
            });
            if world.run() == Ended::Finished {
                seen.insert(task.take().expect("it has finished"));
            }
        }
        assert!(seen.contains(&vec![1, 0, 1, 0]), "{first}, {second}, {third}: {seen:?}");
    }
}

/// The story of another: a chain's verb that has come to its fence was taken for one that has not
/// yet, and what follows was never seen.
#[test]
fn a_chain_goes_on_behind_its_fence() {
    for overtaken in [Ratio::NEVER, Ratio::one_in(2)] {
        let director = Director::new(Exhaustive::new());
        let weakness = Weakness { overtaken, overtaken_ns_max: 1, ..Weakness::NONE };
        let mut seen = BTreeSet::new();
        while let Some(oracle) = director.begin() {
            let world = World::with_oracle(Config { weakness, ..config() }, oracle);
            let base = world.region(world.node(), 256);
            let (writer, reader) = (world.endpoint(), world.endpoint());
            world.spawn(writer.id(), async move {
                for _ in 0..2 {
                    writer.faa64(base, 1).await.expect("the word exists");
                }
            });
            let task = world.spawn(reader.id(), async move {
                let read = Verb::Read { addr: base, words: 1 };
                let chain = [read.into(), Link::fenced(read), Link::fenced(read)];
                reader.chain(&chain).await.expect("the word exists");
                [0, 1, 2].map(|link| reader.link(link).old)
            });
            if world.run() == Ended::Finished {
                seen.insert(task.take().expect("it has finished"));
            }
        }
        let below =
            |first| (first..3).flat_map(move |then| (then..3).map(move |last| [then, last]));
        let all =
            (0..3).flat_map(|first| below(first).map(move |[then, last]| [first, then, last]));
        assert_eq!(seen, all.collect());
    }
}
