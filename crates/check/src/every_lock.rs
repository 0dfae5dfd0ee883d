//! Every lock in the small, within seconds also where nothing is optimised: the first judge of a
//! text that has just been changed. The steps of `cargo xtask ci` explore the same further.

use crate::CheckArgs;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: CheckArgs,
}

/// Fails where a judge objects to a lock.
#[track_caller]
fn check(line: &str) {
    let words = ["check", "--json", "--mode"].into_iter().chain(line.split(' '));
    let line = Line::try_parse_from(words).expect("a line of the checker");
    crate::run(&line.args).expect("no judge objects");
}

#[test]
fn every_schedule_of_two_with_a_death_and_one_that_gives_up() {
    check("exhaustive --clients 2 --acquisitions 1 --crashes 1 --cancels 1");
}

#[test]
fn every_schedule_of_two_whose_counts_soon_wrap() {
    check("exhaustive --clients 2 --near-wrap 1");
}

#[test]
fn schedules_of_four_with_everything_that_may_befall_them() {
    check("mixed --budget 20000");
}

#[test]
fn schedules_of_three_that_hold_one_lock_and_await_another() {
    check("mixed --clients 3 --locks 2 --budget 10000");
}

#[test]
fn schedules_of_slots_that_are_used_at_once() {
    check("mixed --clients 3 --locks 2 --tasks 2 --but drtm --budget 10000");
}
