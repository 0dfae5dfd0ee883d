//! A run as one line of text, without spaces: what is played, and how its schedule differs from the
//! obvious one. `check` prints it, `replay` takes it.
//!
//! `mcs/3x2/s1a/t0.o4/hasty/d1.7.late/c0.1.3/3.1k-a.20`: the lock, its clients and acquisitions,
//! whatever is out of the ordinary, the trail. What is not said is as usual.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use farlock_sim::schedule::Trail;

use crate::mishap::{Mishap, Rate, What, duration, outcome_name, outcome_named};
use crate::scenario::{
    ACQUISITIONS_MAX, CLIENTS_MAX, Cancel, Death, LOCKS_MAX, Scenario, TASKS_MAX,
};
use crate::tune::Tune;
use crate::wish::Wish;

/// Before the number of those that may die at any verb, or give up at any time.
const ANYWHERE: &str = "any";

/// Holders write to a register outside, and what they do in far memory is recorded.
const FENCED: &str = "fenced";
const RECORDED: &str = "recorded";
/// A newcomer tries where holders stay, and who gives up lets go of its endpoint.
const VISITED: &str = "visited";
const QUITS: &str = "quits";
const TRANSACTS: &str = "txn";
const REFINES: &str = "refines";

/// A run: what is played, and how its schedule differs from the obvious one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// What is played.
    pub scenario: Scenario,
    /// The schedule.
    pub trail: Trail,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.scenario;
        write!(f, "{}/{}x{}", s.subject, s.clients, s.acquisitions)?;
        let asked = [('s', s.shared), ('u', s.updates)];
        let done = [('v', s.converts), ('b', s.divides), ('y', s.tries)];
        for (letter, mask) in asked.into_iter().chain(done) {
            if mask != 0 {
                write!(f, "/{letter}{mask:x}")?;
            }
        }
        if (s.torn, s.overtaken) != (0, 0) {
            write!(f, "/t{}.o{}", s.torn, s.overtaken)?;
        }
        f.write_str(match (s.hasty, s.slow) {
            (false, false) => "",
            (true, false) => "/hasty",
            (false, true) => "/slow",
            (true, true) => "/hasty-slow",
        })?;
        if !s.ranges.is_empty() {
            let ranges = s.ranges.iter().map(Wish::to_string);
            write!(f, "/e{}", ranges.collect::<Vec<_>>().join("."))?;
        } else if s.locks > 1 {
            write!(f, "/l{}.{:x}.{:x}.{:x}", s.locks, s.aims, s.nests, s.nested_shared)?;
        }
        if s.refines {
            write!(f, "/{REFINES}")?;
        }
        if s.transacts {
            write!(f, "/{TRANSACTS}")?;
        }
        if s.tasks > 1 {
            write!(f, "/x{}", s.tasks)?;
        }
        self.write_faults(f)?;
        if s.near_wrap > 0 {
            write!(f, "/w{}", s.near_wrap)?;
        }
        let words =
            [(s.visited, VISITED), (s.quits, QUITS), (s.fenced, FENCED), (s.recorded, RECORDED)];
        for (is_so, name) in words {
            if is_so {
                write!(f, "/{name}")?;
            }
        }
        write!(f, "/{}", self.trail)
    }
}

impl Line {
    /// What befalls clients, and how long they hold.
    fn write_faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.scenario;
        let named = |d: &Death| format!("{}.{}.{}", d.who, d.verb, outcome_name(d.outcome));
        let anywhere = (s.anywhere > 0).then(|| format!("{ANYWHERE}{}", s.anywhere));
        let deaths: Vec<String> = s.deaths.iter().map(named).chain(anywhere).collect();
        if !deaths.is_empty() {
            write!(f, "/d{}", deaths.join("+"))?;
        }
        let named = |c: Cancel| format!("{}.{}.{}", c.who, c.round, c.polls);
        let anywhere = (s.cancel_anywhere > 0).then(|| format!("{ANYWHERE}{}", s.cancel_anywhere));
        let cancels: Vec<String> = s.cancel.map(named).into_iter().chain(anywhere).collect();
        if !cancels.is_empty() {
            write!(f, "/c{}", cancels.join("+"))?;
        }
        if !s.tunes.is_empty() {
            let tunes: Vec<String> = s.tunes.iter().map(Tune::to_string).collect();
            write!(f, "/p{}", tunes.join("+"))?;
        }
        if s.hold_ns > 0 {
            write!(f, "/h{}", s.hold_ns)?;
        }
        let anywhere = s.mishaps_anywhere.iter();
        let anywhere = anywhere.map(|(times, what)| format!("{ANYWHERE}{times}.{what}"));
        let mishaps: Vec<String> =
            s.mishaps.iter().map(Mishap::to_string).chain(anywhere).collect();
        if !mishaps.is_empty() {
            write!(f, "/m{}", mishaps.join("+"))?;
        }
        if !s.clocks.is_empty() {
            let clocks: Vec<String> = s.clocks.iter().map(Rate::to_string).collect();
            write!(f, "/k{}", clocks.join("+"))?;
        }
        Ok(())
    }
}

impl FromStr for Line {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parts: Vec<&str> = text.trim().split('/').collect();
        let [subject, size, options @ .., trail] = &parts[..] else {
            bail!("a line is as `farlock-lab check` prints it: a lock, a size as 3x2, a trail");
        };
        let (clients, acquisitions) = size.split_once('x').context("a size is as 3x2")?;
        let mut scenario = Scenario::plain(subject, clients.parse()?, acquisitions.parse()?);
        for option in options {
            parse_option(&mut scenario, option).with_context(|| format!("in '{option}'"))?;
        }
        ensure!(
            (1..=CLIENTS_MAX).contains(&scenario.clients)
                && (1..=ACQUISITIONS_MAX).contains(&scenario.acquisitions),
            "a scenario has 1 to {CLIENTS_MAX} clients, each with 1 to {ACQUISITIONS_MAX} \
             acquisitions"
        );
        let befallen = scenario.deaths.iter().map(|death| death.who);
        let befallen = befallen.chain(scenario.cancel.map(|cancel| cancel.who));
        let befallen = befallen.chain(scenario.tunes.iter().map(|tune| tune.who));
        let mut befallen = befallen.chain(scenario.mishaps.iter().map(|mishap| mishap.who));
        let stranger = befallen.find(|&who| u32::from(who) >= u32::from(scenario.clients));
        ensure!(stranger.is_none(), "there is no client {}", stranger.unwrap_or(0));
        ensure!((1..=TASKS_MAX).contains(&scenario.tasks), "a client has 1 to {TASKS_MAX} tasks");
        Ok(Self { scenario, trail: trail.parse()? })
    }
}

/// What is out of the ordinary; its first letter says in which respect.
fn parse_option(scenario: &mut Scenario, option: &str) -> anyhow::Result<()> {
    match option {
        FENCED => scenario.fenced = true,
        RECORDED => scenario.recorded = true,
        VISITED => scenario.visited = true,
        QUITS => scenario.quits = true,
        TRANSACTS => scenario.transacts = true,
        REFINES => scenario.refines = true,
        _ => return parse_pace(scenario, option),
    }
    Ok(())
}

fn parse_pace(scenario: &mut Scenario, option: &str) -> anyhow::Result<()> {
    (scenario.hasty, scenario.slow) = match option {
        "plain" => return Ok(()),
        "hasty" => (true, scenario.slow),
        "slow" => (scenario.hasty, true),
        "hasty-slow" => (true, true),
        _ => return parse_named(scenario, option),
    };
    Ok(())
}

fn parse_named(scenario: &mut Scenario, option: &str) -> anyhow::Result<()> {
    let mut letters = option.chars();
    let (letter, rest) = (letters.next(), letters.as_str());
    match letter {
        Some('s') => scenario.shared = u64::from_str_radix(rest, 16)?,
        Some('u') => scenario.updates = u64::from_str_radix(rest, 16)?,
        Some('b') => scenario.divides = u64::from_str_radix(rest, 16)?,
        Some('v') => scenario.converts = u64::from_str_radix(rest, 16)?,
        Some('y') => scenario.tries = u64::from_str_radix(rest, 16)?,
        Some('l') => parse_locks(scenario, rest)?,
        Some('e') => {
            let ranges = rest.split('.').map(Wish::from_str).collect::<Result<Vec<_>, _>>()?;
            let with = Scenario::of_ranges(&scenario.subject, scenario.acquisitions, &ranges)?;
            ensure!(with.clients == scenario.clients, "each client has a range of its own");
            (scenario.locks, scenario.ranges) = (with.locks, with.ranges);
        }
        Some('x') => scenario.tasks = rest.parse()?,
        Some('t') => {
            let (torn, overtaken) = rest.split_once(".o").context("a weakness is as t0.o4")?;
            (scenario.torn, scenario.overtaken) = (torn.parse()?, overtaken.parse()?);
        }
        Some('d') => {
            for death in rest.split('+').filter(|death| !death.is_empty()) {
                match death.strip_prefix(ANYWHERE) {
                    Some(number) => scenario.anywhere = number.parse()?,
                    None => scenario.deaths.push(parse_death(death)?),
                }
            }
        }
        Some('c') => {
            for cancel in rest.split('+').filter(|cancel| !cancel.is_empty()) {
                match cancel.strip_prefix(ANYWHERE) {
                    Some(number) => scenario.cancel_anywhere = number.parse()?,
                    None => scenario.cancel = Some(parse_cancel(cancel)?),
                }
            }
        }
        Some('p') => {
            let tunes = rest.split('+').map(str::parse);
            scenario.tunes = tunes.collect::<Result<_, _>>()?;
        }
        Some('h') => scenario.hold_ns = duration(rest)?,
        Some('m') => {
            for mishap in rest.split('+').filter(|mishap| !mishap.is_empty()) {
                match mishap.strip_prefix(ANYWHERE) {
                    Some(any) => scenario.mishaps_anywhere.push(parse_anywhere(any)?),
                    None => scenario.mishaps.push(mishap.parse()?),
                }
            }
        }
        Some('k') => {
            let clocks = rest.split('+').filter(|clock| !clock.is_empty());
            scenario.clocks = clocks.map(str::parse).collect::<Result<_, _>>()?;
        }
        Some('w') => scenario.near_wrap = rest.parse()?,
        _ => bail!("a run has nothing of this name"),
    }
    Ok(())
}

fn parse_locks(scenario: &mut Scenario, text: &str) -> anyhow::Result<()> {
    let parts: Vec<&str> = text.split('.').collect();
    let [locks, masks @ ..] = &parts[..] else { bail!("locks are as 2.e4.3.0") };
    scenario.locks = locks.parse()?;
    ensure!((1..=LOCKS_MAX).contains(&scenario.locks), "a scenario has 1 to {LOCKS_MAX} locks");
    let masks = masks.iter().map(|mask| u64::from_str_radix(mask, 16));
    let masks = masks.collect::<Result<Vec<u64>, _>>()?;
    let [aims, nests, nested_shared] = masks[..] else { bail!("locks are as 2.e4.3.0") };
    (scenario.aims, scenario.nests, scenario.nested_shared) = (aims, nests, nested_shared);
    Ok(())
}

fn parse_anywhere(text: &str) -> anyhow::Result<(u32, What)> {
    let (times, what) = text.split_once('.').context("a mishap is as any1.pause.2000")?;
    Ok((times.parse()?, what.parse()?))
}

fn parse_death(text: &str) -> anyhow::Result<Death> {
    let parts: Vec<&str> = text.split('.').collect();
    let [who, verb, outcome] = parts[..] else { bail!("a death is as 1.7.late, or any1") };
    Ok(Death { who: who.parse()?, verb: verb.parse()?, outcome: outcome_named(outcome)? })
}

fn parse_cancel(text: &str) -> anyhow::Result<Cancel> {
    let parts: Vec<&str> = text.split('.').collect();
    let [who, round, polls] = parts[..] else { bail!("giving up is as 0.1.3, or any1") };
    Ok(Cancel { who: who.parse()?, round: round.parse()?, polls: polls.parse()? })
}

#[cfg(test)]
mod tests {
    use farlock_sim::{Choice, Oracle, Seeded};

    use super::*;
    use crate::faults::{Declares, Faults};

    #[test]
    fn a_line_survives_its_text() {
        let mut oracle = Seeded::new(3);
        for _ in 0..200 {
            let mut scenario = Scenario::plain("shiftlock:n=1", 3, 2);
            (scenario.locks, scenario.tasks) = (1 + oracle.pick(Choice::Event, 3) as u16, 2);
            let declares = Declares { tries: true, withdraws: true, passes: true };
            scenario.draw(
                &mut oracle,
                Faults {
                    updates: true,
                    converts: true,
                    divides: true,
                    tunes: true,
                    declares,
                    ..Faults::ALL
                },
            );
            scenario.anywhere = oracle.pick(Choice::Event, 3);
            scenario.cancel_anywhere = oracle.pick(Choice::Event, 3);
            scenario.mishaps_anywhere =
                scenario.mishaps.iter().map(|mishap| (2, mishap.what)).collect();
            let line = Line { scenario, trail: "3.1k-a.20".parse().expect("a trail") };
            assert_eq!(line.to_string().parse::<Line>().expect("a line"), line);
        }
    }

    #[test]
    fn ranges_survive_their_text() {
        let ranges = ["0-64", "0-1+3-5", "3-5"].map(|text| text.parse::<Wish>().expect("a range"));
        let scenario = Scenario::of_ranges("citron:m=1", 1, &ranges).expect("few parts");
        assert_eq!((scenario.locks, scenario.bounds()), (4, vec![0, 1, 3, 5, 64]));
        let line = Line { scenario, trail: Trail::default() };
        assert_eq!(line.to_string(), "citron:m=1/3x1/e0-64.0-1+3-5.3-5/0");
        assert_eq!(line.to_string().parse::<Line>().expect("a line"), line);
        let fewer = line.scenario.without(0).expect("nothing happens to it");
        assert_eq!((fewer.locks, fewer.ranges), (3, ranges[1..].to_vec()));
    }

    #[test]
    fn what_is_not_said_is_as_usual() {
        let plain = Scenario::plain("mcs", 3, 2);
        let line = Line { scenario: plain, trail: Trail::default() };
        assert_eq!(line.to_string(), "mcs/3x2/0");
        assert_eq!("mcs/3x2/s0/t0.o0/plain/d/c/0".parse::<Line>().expect("a line"), line);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "mcs/3x2",
            "mcs/3/0",
            "mcs/3x2/q/0",
            "mcs/3x2/d1.2/0",
            "mcs/3x2/m1.2.nap.3/0",
            "mcs/99x1/0",
            "mcs/2x65/0",
            "mcs/2x1/d2.1.never/0",
            "mcs/2x1/c9.1.1/0",
            "mcs/2x1/m7.1.stop/0",
            "mcs/2x1/h18446744073709551615/0",
            "mcs/2x1/m0.1.pause.18446744073709551615/0",
            "mcs/2x1/k0.9223372036854775807/0",
            "citron/2x1/e0-4.4/0",
            "citron/2x1/e0-4/0",
            "citron/2x1/e4-4.0-1/0",
        ] {
            assert!(text.parse::<Line>().is_err(), "{text}");
        }
    }
}
