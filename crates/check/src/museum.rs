//! The checker's own test: planted bugs, each to be found within a budget by the standard mix.

use anyhow::{Context, bail, ensure};
use farlock_locks::museum::Exhibit;
use farlock_locks::museum::exhibits::Claim;

use crate::args::CheckArgs;
use crate::hunt::{Budget, Hunt, Mix, seed_of, shrink};
use crate::out::say;
use crate::report::{self, ExhibitRow};
use crate::scenario::Scenario;
use crate::subjects::{self, MUSEUM};
use crate::unchecked::Unchecked;

/// Schedules within which each exhibit must be found.
pub const BUDGET: u64 = 100_000;
/// Of each run: the least in which every exhibit can show itself.
const CLIENTS: u16 = 4;
const ACQUISITIONS: u16 = 2;
/// The same where many rounds of readers are to pass.
const ROUNDS: u16 = 8;

/// Looks for every exhibit, or the one that `--protocol` names, and fails if one is not found.
pub fn run(args: &CheckArgs) -> anyhow::Result<()> {
    let wanted = |name: &str| args.protocol == "all" || args.protocol == name;
    let budget = match args.budget {
        None => BUDGET,
        Some(Budget::Schedules(schedules)) => schedules,
        Some(Budget::Time(_)) => {
            bail!(Unchecked("the museum's budget is a number of schedules".to_owned()))
        }
    };
    let mut rows = Vec::new();
    for (number, exhibit) in subjects::exhibits().enumerate().filter(|(_, e)| wanted(e.name)) {
        let row = find(exhibit, budget, seed_of(args.seed, number))?;
        if args.json {
            say(serde_json::to_string(&row).context("a row is plain data")?)?;
        }
        rows.push(row);
    }
    ensure!(
        !rows.is_empty(),
        Unchecked(format!("the museum has no exhibit named '{}'", args.protocol))
    );
    if !args.json {
        say(report::exhibits(&rows))?;
        for row in &rows {
            if let Some(line) = &row.line {
                say(format_args!("{}: farlock-lab replay {line}", row.exhibit))?;
            }
        }
    }
    let missed: Vec<_> = rows.iter().filter(|row| !row.found).map(|row| &row.exhibit).collect();
    ensure!(missed.is_empty(), "not found: {missed:?}");
    Ok(())
}

/// From which others are drawn.
fn scenario_of(exhibit: &Exhibit, subject: &str) -> Scenario {
    let acquisitions = match exhibit.order {
        Claim::FewRoundsPass => ROUNDS,
        _ => ACQUISITIONS,
    };
    Scenario { locks: exhibit.locks, ..Scenario::plain(subject, CLIENTS, acquisitions) }
}

/// Looks for one exhibit.
pub fn find(exhibit: &Exhibit, budget: u64, seed: u64) -> anyhow::Result<ExhibitRow> {
    let subject = format!("{MUSEUM}{}", exhibit.name);
    let player = subjects::player(&subject)?;
    let faults = player.faults(exhibit.repairs);
    let base = scenario_of(exhibit, &subject);
    let mut hunt = Hunt::new(&player, Mix::Standard, seed);
    let catch = hunt.search(&base, faults, Budget::Schedules(budget), |_| {});
    // Of a run of many rounds nothing can be left out that is worth the time.
    let is_long = exhibit.order == Claim::FewRoundsPass;
    let catch = catch.map(|catch| if is_long { catch } else { shrink(&player, catch) });
    Ok(ExhibitRow {
        exhibit: exhibit.name.to_owned(),
        found: catch.is_some(),
        schedules: hunt.schedules,
        budget,
        story: catch.as_ref().map(|c| format!("{:?}: {}", c.finding.objection, c.finding.story)),
        line: catch.map(|catch| catch.line.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hunt;
    use crate::line::Line;
    use crate::verdict::Objection;

    /// It is sound until its generation wraps, so its run must begin near that.
    #[test]
    fn a_bug_of_a_wrapped_count_is_found_near_the_wrap() {
        let exhibit = subjects::exhibits().find(|exhibit| exhibit.name == "generation-by-size");
        let row = find(exhibit.expect("the museum has it"), 20_000, 1).expect("it plays");
        assert!(row.line.as_ref().is_some_and(|line| line.contains("/w")), "{row:?}");
    }

    /// They are sound as long as nobody holds longer than its lease.
    #[test]
    fn bugs_of_leases_are_found_where_holders_overstay() {
        for name in ["lease-overlooked", "late-reader", "late-writer", "late-handover"] {
            let exhibit = subjects::exhibits().find(|exhibit| exhibit.name == name);
            let row = find(exhibit.expect("the museum has it"), 20_000, 1).expect("it plays");
            assert!(row.found, "{row:?}");
        }
    }

    /// What is found in an exhibit is its flaw, not the lock that it was planted in, nor the judge.
    #[test]
    fn without_its_flaw_no_exhibit_is_objected_to() {
        let mut twins = 0;
        for exhibit in subjects::exhibits() {
            let Some(player) = subjects::twin(exhibit) else { continue };
            let base = scenario_of(exhibit, exhibit.name);
            let faults = player.faults(exhibit.repairs);
            let mut hunt = Hunt::new(&player, Mix::Standard, 1);
            let catch = hunt.search(&base, faults, Budget::Schedules(1_500), |_| {});
            let catch = catch.map(|catch| (catch.finding, catch.line.to_string()));
            assert_eq!(catch, None, "the twin of {}", exhibit.name);
            twins += 1;
        }
        assert!(twins > 20, "{twins}");
    }

    /// A client that resets DSLR's full counters must claim the word first: found with four
    /// clients, as this.
    #[test]
    fn a_word_that_came_round_to_the_same_shows_by_its_line() {
        let line: Line = "museum:reset-unclaimed/4x2/t2.o0/hasty-slow/d0.2.never/c1.0.4/\
             m3.7.pause.1000/recorded/0.1s-2.g-b.g-2.w-8.1c-1.w-8.w-5.w-3.w-o.w-1.1s-3.1s-8.1s-\
             9.1s-7.w-1.1c-5.1s-1.w-2.1c-1.w-i.w-1.1s-a.1-3.2-2.1s-1.1c-3.1s-1.1c-1.1s-2.1-6.1s-\
             t.1s"
            .parse()
            .expect("a line");
        let exhibit = subjects::exhibits().find(|exhibit| exhibit.name == "reset-unclaimed");
        let with_flaw = subjects::player(&line.scenario.subject).expect("the museum has it");
        let without = subjects::twin(exhibit.expect("the same")).expect("it has a twin");
        let (verdict, _) = hunt::replay(&with_flaw, &line);
        let found = verdict.finding.map(|finding| finding.objection);
        assert_eq!(found, Some(Objection::Violation));
        let (verdict, _) = hunt::replay(&without, &line);
        assert_eq!(verdict.finding, None);
    }

    /// Clocks that go apart no faster than the contract allows are enough to find it.
    #[test]
    fn a_trust_in_clocks_is_found_where_they_go_apart() {
        let exhibit = subjects::exhibits().find(|exhibit| exhibit.name == "leased-by-clock");
        let row = find(exhibit.expect("the museum has it"), 20_000, 1).expect("it plays");
        assert!(row.line.as_ref().is_some_and(|line| line.contains("/k")), "{row:?}");
    }

    /// Those that a few hundred schedules find; `farlock-lab check --mode museum` is for all.
    #[test]
    fn plain_bugs_are_found_soon() {
        for name in [
            "none",
            "lost-wake-up",
            "forgotten-handover",
            "suspected-is-not-dead",
            "unfenced",
            "stale-incarnation",
            "same-token",
            "never-back",
            "weaker-mode",
            "first-mode",
            "settles-one",
            "settles-last",
            "try-believes-the-dead",
            "ghost-in-line",
            "waits-for-the-stopped",
            "looks-at-once",
            "never-late",
            "calls-at-one",
            "call-unheard",
            "frees-all-leaves",
            "fast-though-late",
        ] {
            let exhibit = subjects::exhibits().find(|exhibit| exhibit.name == name);
            let row = find(exhibit.expect("the museum has it"), 5_000, 1).expect("it plays");
            assert!(row.found, "{name}");
        }
    }
}
