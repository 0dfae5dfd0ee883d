//! Every mode of the checker, on a small scale, and the runs that it has found.

use super::faults::Faults;
use super::hunt::Mix;
use super::*;

fn no_bars() -> MultiProgress {
    MultiProgress::with_draw_target(indicatif::ProgressDrawTarget::hidden())
}

/// Two clients that acquire once each.
fn two(mode: Mode) -> CheckArgs {
    CheckArgs {
        protocol: "all".to_owned(),
        but: Vec::new(),
        mode,
        clients: Some(2),
        acquisitions: 1,
        crashes: 0,
        cancels: 0,
        pauses: 0,
        stops: 0,
        tries: None,
        visits: false,
        quits: false,
        losses: 0,
        restarts: 0,
        updates: false,
        converts: false,
        divides: false,
        tunes: Vec::new(),
        refines: false,
        transactions: false,
        near_wrap: 0,
        ranges: Vec::new(),
        locks: 1,
        tasks: 1,
        budget: None,
        partial: false,
        seed: 1,
        json: false,
    }
}

/// A pass is one of what was asked for.
#[test]
fn what_was_not_checked_has_a_status_of_its_own() {
    let of = |subject: &str, args: CheckArgs| CheckArgs { protocol: subject.to_owned(), ..args };
    let explored = two(Mode::Exhaustive);
    let hurried =
        CheckArgs { acquisitions: 2, budget: Some(Budget::Schedules(10)), ..explored.clone() };
    for args in [
        of("mcs", hurried.clone()),
        of("mcs", CheckArgs { stops: 1, ..explored.clone() }),
        of("mcs", CheckArgs { updates: true, ..explored.clone() }),
        of("mcs", CheckArgs { converts: true, ..explored.clone() }),
        of("mcs", CheckArgs { divides: true, ..explored.clone() }),
        of("mcs", CheckArgs { tunes: vec!["2:9000".parse().expect("m, T")], ..explored.clone() }),
        of("rpc", CheckArgs { crashes: 1, ..explored.clone() }),
        of("rpc", two(Mode::Crash)),
        of("drtm", CheckArgs { pauses: 1, ..explored.clone() }),
        of("cas", CheckArgs { near_wrap: 2, ..explored.clone() }),
        of("cas", CheckArgs { crashes: 3, ..explored.clone() }),
        of("cas", CheckArgs { crashes: 1, ..two(Mode::Pct) }),
        of("cas", CheckArgs { tries: Some(Tried::Mixed), ..two(Mode::Crash) }),
        of("lost-wake-up", CheckArgs { locks: 3, ..two(Mode::Museum) }),
        of("no-such-exhibit", CheckArgs { clients: None, ..two(Mode::Museum) }),
        of("no-such-lock", explored.clone()),
        of("all", CheckArgs { but: vec!["no-such-lock".to_owned()], ..explored.clone() }),
        of("mcs", CheckArgs { transactions: true, ..explored.clone() }),
    ] {
        let ended = run(&args).expect_err("it was not checked");
        assert!(ended.is::<Unchecked>(), "{ended:#}");
    }
    run(&of("mcs", CheckArgs { partial: true, ..hurried })).expect("as far as it goes");
    run(&of("mcs", explored)).expect("whole");
    assert!("0".parse::<Budget>().is_err() && "0s".parse::<Budget>().is_err());
}

/// Nobody objects to this run.
fn is_in_order(line: &str) {
    let line: Line = line.parse().expect("a line");
    let player = subjects::player(&line.scenario.subject).expect("a registered lock");
    let (verdict, _) = hunt::replay(&player, &line);
    assert_eq!(verdict.finding, None, "{line}");
}

/// The rows of all locks, by all processors: one slow lock does not keep a test for itself.
fn rows(args: CheckArgs) -> Vec<Row> {
    let mut rows = Vec::new();
    let told = |row| {
        rows.push(row);
        Ok(())
    };
    check_all(&args, &subjects::all(&args), &no_bars(), told).expect("registered locks");
    rows
}

#[test]
fn every_schedule_of_two_clients_is_explored_and_only_the_canary_fails() {
    for row in rows(CheckArgs { acquisitions: 2, ..two(Mode::Exhaustive) }) {
        assert_eq!(row.complete, row.protocol != "none", "{row:?}");
        pass(&row, 2).expect("locks pass and the canary does not");
    }
}

#[test]
fn every_death_of_one_of_two_clients_is_explored_and_repaired() {
    for row in rows(CheckArgs { crashes: 1, ..two(Mode::Exhaustive) }) {
        pass(&row, 2).expect("locks pass and the canary does not");
        let player = subjects::player(&row.protocol).expect("a registered lock");
        let repaired = row.recoveries > 0 || !player.outlives;
        assert!(row.protocol == "none" || row.complete && repaired, "{row:?}");
    }
}

/// Readers of one client join a hold of it, and it is handed on, under every fault.
#[test]
fn tasks_hand_locks_on_and_share_them_whatever_befalls_them() {
    for subject in ["local:shiftlock", "local:dslr", "local:cas", "local:rma-rw"] {
        let player = subjects::player(subject).expect("a registered lock");
        let args = CheckArgs { clients: Some(4), acquisitions: 2, ..two(Mode::Pct) };
        let row = check(&args, subject, &player, Budget::Schedules(4_000), 0, &no_bars());
        pass(&row, 4).expect("whoever lives is granted");
        assert!(row.befell.given_up > 0 && row.befell.pauses > 0, "{row:?}");
    }
}

/// Nothing is called complete of which a part may be missing.
#[test]
fn a_lock_whose_states_look_alike_is_not_explored() {
    let named = |mode| CheckArgs { protocol: "local:shiftlock".to_owned(), ..two(mode) };
    let refused = run(&named(Mode::Exhaustive)).expect_err("it cannot be complete");
    assert!(refused.to_string().contains("local:mcs"), "{refused}");
    run(&CheckArgs { budget: Some(Budget::Schedules(100)), ..named(Mode::Pct) })
        .expect("it is played");
}

/// Whatever is given up at whatever moment is withdrawn or released, and nobody waits for it.
#[test]
fn two_clients_give_up_wherever_they_wait() {
    let args = CheckArgs { cancels: 2, ..two(Mode::Exhaustive) };
    for row in rows(args) {
        pass(&row, 2).expect("locks pass and the canary does not");
        let explored = row.complete && row.befell.given_up > 0;
        assert!(row.protocol == "none" || explored, "{row:?}");
    }
}

/// A client that does not know what became of a verb ends; then its lock is repaired as after a
/// death.
#[test]
fn any_completion_of_two_clients_is_lost() {
    let args = CheckArgs { losses: 1, ..two(Mode::Exhaustive) };
    for row in rows(args) {
        pass(&row, 2).expect("locks pass and the canary does not");
        let player = subjects::player(&row.protocol).expect("a registered lock");
        let lost = row.befell.lost > 0 || !player.outlives;
        assert!(row.protocol == "none" || row.complete && lost, "{row:?}");
    }
}

/// Nobody of the old incarnation succeeds in anything, those of the new one are granted, with
/// higher tokens, whatever the old one has left in the memory. (Trees of ranges have 300,000
/// schedules here, which the optimised build plays in the step `checker`.)
#[test]
fn the_memory_restarts_at_any_verb_of_two_clients() {
    let but = ["citron", "citron-rw"].map(str::to_owned).into();
    let args = CheckArgs { restarts: 1, but, ..two(Mode::Exhaustive) };
    for row in rows(args) {
        pass(&row, 2).expect("locks pass and the canary does not");
        let player = subjects::player(&row.protocol).expect("a registered lock");
        let came_back = row.befell.came_back > 0 || !player.outlives;
        assert!(row.protocol == "none" || row.complete && came_back, "{row:?}");
    }
}

/// A completion that is lost while its client settles what it gave up: `settle` reports
/// nothing, but the client says that it is broken.
#[test]
fn a_loss_in_settling_is_no_secret() {
    let args = CheckArgs { losses: 1, cancels: 1, ..two(Mode::Exhaustive) };
    let player = subjects::player("mcs").expect("a registered lock");
    let row = check(&args, "mcs", &player, Budget::Schedules(u64::MAX), 0, &no_bars());
    pass(&row, 2).expect("nobody waits for ever");
    assert!(row.complete && row.befell.lost > 0 && row.befell.given_up > 0, "{row:?}");
}

/// Who is stopped keeps what it has, unless it has a lease, and nobody else is the worse for
/// it.
#[test]
fn two_clients_are_stopped_at_any_verb() {
    let args = CheckArgs { pauses: 2, ..two(Mode::Exhaustive) };
    for row in rows(args) {
        pass(&row, 2).expect("locks pass and the canary does not");
        let timed = subjects::word_tells_time(&row.protocol);
        let explored = row.complete && (row.befell.pauses > 0 || timed);
        assert!(row.protocol == "none" || explored, "{row:?}");
        assert_eq!(
            row.befell.overstayed > 0,
            subjects::leased().contains(&row.protocol),
            "{row:?}"
        );
    }
}

#[test]
fn counts_wrap_in_every_schedule_and_change_nothing() {
    let args = CheckArgs { crashes: 1, near_wrap: 1, ..two(Mode::Exhaustive) };
    for row in rows(args) {
        pass(&row, 2).expect("locks pass and the canary does not");
        let lock = row.protocol.strip_prefix(subjects::LOCAL).unwrap_or(&row.protocol);
        let counts = registry::kind(lock).expect("a registered lock").near_wrap(1) != 0;
        assert_eq!(row.befell.wraps > 0, counts, "{row:?}");
        assert!(row.protocol == "none" || row.complete, "{row:?}");
    }
}

#[test]
fn a_few_schedules_with_everything_that_can_go_wrong() {
    let budget = Some(Budget::Schedules(400 * subjects::all(&two(Mode::Pct)).len() as u64));
    let twice = |mode| CheckArgs { acquisitions: 2, budget, ..two(mode) };
    for row in [rows(twice(Mode::Pct)), rows(twice(Mode::Random))].concat() {
        pass(&row, 2).expect("locks pass and the canary does not");
    }
}

/// A pause short of a lease, around it and beyond it, at any verb: a holder that overstays its
/// lease knows, and nobody is let in beside a holder whose lease has not ended.
#[test]
fn a_holder_that_is_paused_beyond_its_lease_has_lost_the_lock() {
    for subject in &subjects::leased() {
        let player = subjects::player(subject).expect("a registered lock");
        let mut hunt = Hunt::new(&player, Mix::Standard, 3);
        let (base, faults) = (Scenario::plain(subject, 3, 2), player.faults(true));
        let catch = hunt.search(&base, faults, Budget::Schedules(3_000), |_| {});
        assert_eq!(catch.map(|catch| catch.line.to_string()), None);
        assert!(hunt.befell.pauses > 100 && hunt.befell.overstayed > 10, "{:?}", hunt.befell);
    }
}

/// Clocks decide nothing where there are no leases, however they jump. With leases they decide
/// who is inside as long as they go as the contract says, and tokens decide beyond that.
#[test]
fn clocks_that_go_wrong_cost_nobody_but_tokens_tell() {
    for subject in
        &[["cas", "mcs", "dslr"].map(str::to_owned).to_vec(), subjects::leased()].concat()
    {
        let player = subjects::player(subject).expect("a registered lock");
        let mut hunt = Hunt::new(&player, Mix::Standard, 5);
        let (base, faults) = (Scenario::plain(subject, 3, 2), player.faults(true));
        let catch = hunt.search(&base, faults, Budget::Schedules(4_000), |_| {});
        assert_eq!(catch.map(|catch| catch.line.to_string()), None);
        assert!(hunt.befell.bad_clocks > 500, "{subject}: {:?}", hunt.befell);
    }
}

/// A client learns of its grant after three leases, of which its slow clock shows less than
/// one. Meanwhile another has taken the lock away, and given it back.
#[test]
fn who_learns_of_its_grant_too_late_has_the_lower_token() {
    const LEASED: &str = "dslr:lease=10000000";
    let line = format!("{LEASED}/2x1/m0.0.pause.30000000/k0.-900000000/0");
    let player = subjects::player(LEASED).expect("a registered lock");
    let (verdict, _) = hunt::replay(&player, &line.parse().expect("a line"));
    assert_eq!((verdict.finding, verdict.befell.stale), (None, 1));
}

/// A reader with a fast clock loses patience with a writer, takes the lock away and reads. Then
/// the writer, whose slow clock shows that its lease has not ended, learns of its grant: its
/// token is below the reader's, and nobody else's was higher. The judge compared with writers'
/// tokens alone, and took what comes late for what is granted out of order.
#[test]
fn a_reader_may_have_the_higher_token_before_which_a_writer_comes_late() {
    let line = "shiftlock:lease=10000000:strict/2x1/s1/m1.0.pause.10000001/\
                k0.9000000000+1.-900000000/0.w";
    let player = subjects::player("shiftlock:lease=10000000:strict").expect("a registered lock");
    let (verdict, _) = hunt::replay(&player, &line.parse().expect("a line"));
    assert_eq!((verdict.finding, verdict.befell.stale), (None, 1));
}

/// Without `strict` a reader's release adds, and far beyond the contract of clocks it comes
/// after a reset, hides a reader of the next generation from a writer, and so gives both the
/// same token. That is what the page says; writers' tokens grow all the same.
#[test]
fn readers_that_add_too_late_spoil_readers_tokens_alone() {
    for line in [
        "shiftlock:lease=10000000/3x2/sc/hasty/k2.9000000000/\
         0.w-2.1c-2.1c-1.g-2.g-1.1c-1.g-1.g-1.1c-1.w-3.1c",
        "shiftlock:lease=10000000/3x2/s30/hasty-slow/m2.1.pause.5000000/k1.-900000000/\
         0.1c-1.g-1.w-1.g-5.w-1.g-1.w-1.1c-1.1c-1.w-1.w-2.g-3.w-6.w",
    ] {
        let player = subjects::player("shiftlock:lease=10000000").expect("a registered lock");
        let (verdict, _) = hunt::replay(&player, &line.parse().expect("a line"));
        assert_eq!(verdict.finding, None, "{line}");
    }
}

#[test]
fn what_is_found_is_shrunk_and_its_line_shows_it_again() {
    let player = subjects::player("none").expect("a registered lock");
    let mut hunt = Hunt::new(&player, Mix::Standard, 7);
    let base = Scenario::plain("none", 4, 3);
    let found = hunt.search(&base, Faults::ALL, Budget::Schedules(100), |_| {});
    let small = shrink(&player, found.expect("the canary is found at once"));
    assert_eq!((small.line.scenario.clients, small.line.scenario.acquisitions), (2, 1));
    assert!(small.line.trail.len() <= 2, "{}", small.line);
    let line: Line = small.line.to_string().parse().expect("a line is a line");
    let (verdict, _) = hunt::replay(&player, &line);
    assert_eq!(verdict.finding, Some(small.finding));
}

/// A reader that was stopped around its claim stood for another that had died inside, and a
/// message found no room beside those that asked for a sign of life.
#[test]
fn nobody_waits_for_the_doubtful_or_for_what_found_no_room() {
    for line in [
        "claim:bypass=1/2x2/s6/dany1/many1.stop/\
         6.w-3.g-2.w-3.g-2.w-3.g-2.w-3.g-3.w-1.1-2.g-2.w-1.1-3.1",
        "claim:bypass=1/2x2/s5/y2fca31ef6fca31e9/slow/h1000000/m0.1.pause.30000000/visited/\
         0.w-5.g-4.w",
        "claim:bypass=1/2x2/s5/y2393ab30e393ab31/h1000000/m0.1.stop+0.3.stop/visited/0.w-3.g",
        "claim/3x1/s2/many2.stop/\
         4.w-2.1c-2.g-1.w-2.1c-2.g-1.w-2.1c-2.g-1.w-2.1c-3.1-1.1c-8.1c-8.1c-g.1c-8.1c-c.w-1.1-\
         1.1c",
        "claim:bypass=1/3x2/s31/t2.o0/hasty-slow/recorded/\
         0.1c-1.w-9.w-3.g-1.1c-6.w-1.1-3.1-n.1-3.1-2.w-1.1c-8.1-b.w-8.1c-2.1-9.1-d.1c-1.1-9.1-\
         8.g",
    ] {
        is_in_order(line);
    }
}

/// A reader that is stopped with its claim has a mailbox full of requests for a sign of life, in
/// which a doubt finds no room: it stood for a reader that had died inside.
#[test]
fn a_full_mailbox_keeps_nobody_from_being_doubted() {
    is_in_order(
        "claim:bypass=1/4x4/s110/y25999eed2599100c/t2.o0/slow/d1.16.late/m2.5.stop/\
         1.w-1.1s-1.1c-3.1s-1.g-1.w-1.1c-1.g-1.w-1.g-2.w-1.1s-1.1-3.1-1.1c-1.g-1.1s-2.1c-2.1-3.1-\
         1.g-3.1s-1.1c-1.g-1.1c-3.1s",
    );
}

/// A try is stopped for good while the waiter that was stopped before it goes on: then that waiter
/// is in its way.
#[test]
fn a_waiter_that_goes_on_is_a_reason_to_refuse_a_try() {
    is_in_order(
        "claim:bypass=1/2x2/y3edc69a63edc69a2/hasty/m1.1.stop-in-wait+0.11.stop-in-wait/\
         k1.-900000000/0.w-3.g-1.w-4.w-2.1",
    );
}

/// The halves of a word that is read are of different moments: what was seen of the holders was
/// of one before the count, and the lock came round to the same. A search for the dead
/// looks at the holders again.
#[test]
fn nobody_is_buried_by_halves_of_a_word_that_are_of_different_moments() {
    for line in [
        "claim/6x2/s15d/t4.o0/hasty/l3.d7747048cc24e8af.10.10/x2/c0.0.1/m1.2.pause.5000000/0.1\
         d-1.h-1.29-1.g-1.1c-2.h-2.g-4.1c-1.28-1.1c-1.1d-1.h-1.29-1.g-2.28-2.h-2.28-3.g-1.28-1\
         .h-1.28-2.29-1.29-2.g-3.1c-1.h-2.1-3.1-1.1c-1.1d-2.g-1.1-4.28-2.g-1.1c-2.g-1.h-2.1c-1\
         .28-1.1d-1.28-2.29-1.1c-1.28-1.1-4.1d-2.28-3.g-2.h-1.1c-1.28-1.g-2.1d-1.1-3.1-1.29-1.\
         g-1.1-3.2-3.28-1.29-1.1d-1.28-2.29-1.1c-2.1d-1.28-1.g-2.28-2.1c-2.1d-1.g-j.29-1.1c-2.\
         29-7.1-4.1c-6.28-1.1-9.1c",
        "claim/6x2/sa6/t4.o0/hasty/l3.fdecc2ca76ab7a0e.400.400/x2/c5.0.8/m4.21.pause.5000000+4\
         .1.pause.22500000+0.11.pause.100000000/recorded/0.1d-2.29-1.1d-1.g-1.h-1.28-2.1c-1.h-\
         1.1d-1.g-1.28-1.h-2.h-1.1c-1.28-1.1c-1.1d-1.29-1.29-2.h-3.1c-2.1d-1.g-5.1d-1.h-1.1c-1\
         .1d-1.g-1.g-1.h-2.28-1.g-2.28-1.1c-1.h-1.1c-1.g-2.28-1.h-1.1c-1.28-a.g-1.28-5.29-1.1c\
         -1.1d-2.28-2.1c-1.29-2.1d-1.29-4.g-1.h-3.28-1.29-1.29-4.1c-1.g-1.28-5.1d-1.h-1.28-1.2\
         9-3.1-4.g-7.1-3.1-3.28-2.1-7.1-1.h-2.1-8.28-1.1-4.h-5.1-3.1-j.h-l.1-4.h-1.28-1.h-a.1-\
         5.1-a.1-6.29",
    ] {
        is_in_order(line);
    }
}

/// A client that holds one lock and awaits another, in every schedule with a death, and with a
/// lost completion beside a client that gives up.
#[test]
fn who_holds_one_lock_and_awaits_another_is_explored_whole() {
    let two = CheckArgs { locks: 2, ..two(Mode::Exhaustive) };
    for args in [
        CheckArgs { acquisitions: 2, crashes: 1, ..two.clone() },
        CheckArgs { losses: 1, cancels: 1, ..two },
    ] {
        // Of all locks the step `worlds` explores the same.
        for subject in ["mcs", "cas"] {
            let player = subjects::player(subject).expect("a registered lock");
            let budget = Budget::Schedules(u64::MAX);
            let row = check(&args, subject, &player, budget, 0, &no_bars());
            assert!(row.complete && row.violations + row.stalls == 0, "{row:?}");
        }
    }
}

/// Clients of several slots each, at several locks, under every fault.
#[test]
fn slots_of_one_client_are_clients_to_each_other() {
    for mode in [Mode::Pct, Mode::Random, Mode::Mixed] {
        let args = CheckArgs { clients: Some(6), acquisitions: 2, locks: 3, tasks: 2, ..two(mode) };
        for subject in ["claim", "mcs", "dslr", "local:shiftlock"] {
            let player = subjects::player(subject).expect("a registered lock");
            let row = check(&args, subject, &player, Budget::Schedules(2_000), 0, &no_bars());
            pass(&row, 6).expect("whoever lives is granted");
            assert!(row.befell.given_up > 0 && row.befell.pauses > 0, "{row:?}");
        }
    }
}

/// A holder, a waiter behind it, and a dead client behind both. The client that came next began a
/// new generation and died before it had told the waiter. The holder found its lock repaired, had
/// nothing left to release, and went; the waiter watched the holder, which lived, for ever.
/// A client that leaves a broken line without handing over now tells the rest of it.
#[test]
fn a_waiter_is_not_forgotten_when_the_repairer_dies_before_it_tells() {
    for line in [
        "shiftlock/4x1/s0/t0.o0/plain/d1.5.never+2.1.executed/c/1.1s-2.1c",
        "mcs/4x2/s0/t0.o0/slow/d0.5.never+2.9.never/c/\
         0.w-1.g-3.1s-e.g-1.w-2.g-3.1s-6.1c-3.w-1.1c-1.w-2.1s",
    ] {
        is_in_order(line);
    }
}

/// A reader of a replay need not know where a run keeps its words.
#[test]
fn a_replay_names_what_happens() {
    let said = |line: &str| {
        let line: Line = line.parse().expect("a line");
        let player = subjects::player(&line.scenario.subject).expect("a subject");
        let mut log = RunLog { timeline: Some(Vec::new()), ..RunLog::default() };
        let oracle = Director::new(Replay::new(line.trail.clone())).begin().expect("one run");
        player.play_noting(&line.scenario, oracle, &mut log);
        log.timeline.expect("it was asked for").join("\n")
    };
    let said_of = |line: &str, parts: &[&str]| {
        let said = said(line);
        for part in parts {
            assert!(said.contains(part), "{part} is not in:\n{said}");
        }
    };
    said_of(
        "mcs/2x1/t0.o0/d0.1.late/0.1e",
        &[
            "client 0  dies",
            "client 0  its verb on the way takes effect late",
            "is known to be dead",
        ],
    );
    said_of(
        "mcs/2x1/t0.o0/m0.0.lost.executed/0.1e",
        &["client 0  will not learn of its next verb"],
    );
    said_of(
        "shiftlock:poll=15000000/2x1/t0.o0/0.1e",
        &["tail nobody -> client 0", "epoch 0 -> 1", "visitor  masked-cas128 lock  tail nobody"],
    );
    said_of("claim/2x1/t0.o0/d0.1.never/0.1e", &["client 0's record: held, exclusive"]);
    said_of("dslr-64/2x1/t0.o0/0.1e", &["max_x 0 -> 1"]);
}
