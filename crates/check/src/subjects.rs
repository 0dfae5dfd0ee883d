//! The subjects of the checker: every lock of the registry, every exhibit of the museum.

use anyhow::Context;
use farlock_fabric::{Nanos, WideAtomics};
use farlock_locks::museum::exhibits::{self, Claim, EXHIBITS, Exhibit, ExhibitVisitor};
use farlock_locks::record::bakery::LEASE_NS;
use farlock_locks::registry::{self, RECORD_LOCKS, Visitor};
use farlock_locks::{RecordLock, Token};
use farlock_sim::check::Register;

use crate::order::Order;
use crate::points::Watched;
use crate::scenario::Declares;
use crate::trial::{Asks, Crew, Player, Settles, Terms};
use crate::{CheckArgs, Mode};

/// What an option of a lock must be so that waiting for the dead takes few events: ShiftLock trusts
/// readers for 30 ms, and looks at them as often as its polling interval says. DrTM tries at once;
/// besides, it must be told how far clocks may lie apart that the checker lets drift.
const PATIENT: &[(&str, &str)] = &[
    ("drtm", "retry=500000:delta=100000"),
    ("shiftlock", "poll=15000000"),
    ("dslr", "omega=2500000"),
    ("dslr-64", "omega=2500000"),
    ("claim", "poll=15000000"),
];

/// Locks whose clients sleep until somebody wakes them, or poll seldom: where they have no lease,
/// pauses are measured by this. Of the others, who poll almost without a pause, they are short: no
/// pause must use up a run's events.
const SLEEPERS: [&str; 7] = ["dslr", "dslr-64", "mcs", "shiftlock", "claim", "rpc", "rpc-ro"];
/// By what pauses are measured of sleepers, of cas, which waits ever longer, and of the others.
const PAUSE_NS: [Nanos; 3] = [LEASE_NS, 100_000, 100];

/// Locks whose holders hold until a time.
pub const LEASED: [&str; 4] = [
    "dslr:lease=10000000",
    "shiftlock:lease=10000000",
    "shiftlock:lease=10000000:strict",
    "dslr-64:lease=10000000",
];

/// Locks of which every schedule takes too long for every change where one of three clients ends,
/// or the memory restarts: whoever looks late waits for all to be void. That is explored at night.
const WIDE: [&str; 1] = [LEASED[3]];

/// Locks of which every schedule takes too long for every change where three clients acquire twice,
/// or acquire thrice or are three while something befalls one: their verbs are many. Lines of their
/// own explore some of that.
const MANY_VERBED: [&str; 2] = ["claim", "claim:bypass=1"];

/// Before the name of a lock that a client's tasks hand on among themselves.
pub const LOCAL: &str = "local:";

/// Such locks: one whose holds are all handed on, one with readers, and such whose holds end.
const LOCALS: [&str; 4] =
    ["local:mcs", "local:shiftlock", "local:dslr:lease=10000000", "local:shiftlock:lease=10000000"];

/// The clients there.
const CREW: Crew = Crew { tasks: 2, handovers_max: 1, tells_turns: true };

/// Options worth a row of their own.
const VARIANTS: &[&str] = &[
    "shiftlock:n=1",
    "shiftlock:n=1:keep",
    "shiftlock:bypass=1",
    "shiftlock:bypass=1:newcomer-yields=1",
    "claim:bypass=1",
    "shiftlock:strict",
    "shiftlock:attempts=2",
    "dslr-64:max=3",
];

/// Locks whose word tells the time: while somebody is paused, or waits as the holder of another
/// lock, others find new words without end, so that only modes which draw scenarios play that.
pub const TIMED: [&str; 1] = ["drtm"];

/// Names of all locks that are checked so where none is named, the canary last.
pub fn all(args: &CheckArgs) -> Vec<String> {
    let names = RECORD_LOCKS.iter().map(|lock| lock.name);
    let (canary, locks): (Vec<_>, Vec<_>) = names.partition(|&name| name == "none");
    let mut all: Vec<String> = locks.into_iter().map(str::to_owned).collect();
    all.extend(VARIANTS.iter().map(|&name| name.to_owned()));
    all.extend(LEASED.map(str::to_owned));
    all.extend(LOCALS.map(str::to_owned));
    all.extend(canary.into_iter().map(str::to_owned));
    if args.mode == Mode::Exhaustive {
        let ends = args.clients() > 2 && args.crashes + args.losses > 0 || args.restarts > 0;
        let faults = args.crashes + args.losses + args.cancels + args.pauses + args.stops;
        let is_long = args.clients() > 2 && (args.acquisitions > 1 || faults > 0)
            || args.acquisitions > 2 && faults > 0
            || args.acquisitions > 1 && faults + u32::from(args.locks) - 1 > 1;
        let waits_holding = args.locks > 1 && args.acquisitions > 1;
        all.retain(|lock| {
            let left_out = waits_holding && TIMED.contains(&&**lock)
                || ends && WIDE.contains(&&**lock)
                || is_long && args.budget.is_none() && MANY_VERBED.contains(&&**lock);
            can_explore(lock) && !left_out
        });
    }
    all
}

/// Whether every schedule of this lock can be told from every other. Two tasks of a client that do
/// the same at once, as readers do, look like one to a world's state: an exploration would turn
/// back where it must not.
pub fn can_explore(subject: &str) -> bool {
    !subject.starts_with(LOCAL) || subject == LOCALS[0]
}

/// An exhibit that is no lock: what is behind one, and does not look at tokens.
pub const UNFENCED: Exhibit = Exhibit {
    name: "unfenced",
    story: "a register outside takes late writes of former holders",
    settles: true,
    repairs: true,
    order: Claim::Nothing,
    locks: 1,
};

/// Another one: clients that attach to a restarted memory node, and do not look which incarnation
/// it is.
pub const STALE_INCARNATION: Exhibit = Exhibit {
    name: "stale-incarnation",
    story: "the memory restarts and counts anew, and tokens with it",
    ..UNFENCED
};

/// Another one: tasks that hand a hold on, and do not tell their turns.
pub const SAME_TOKEN: Exhibit = Exhibit {
    name: "same-token",
    story: "tasks to which a hold is handed on all have its one token",
    ..UNFENCED
};

/// Another one: tasks that hand a hold on as often as they like.
pub const NEVER_BACK: Exhibit = Exhibit {
    name: "never-back",
    story: "tasks of a client relieve each other while another client waits",
    ..UNFENCED
};

/// Another one: transactions that ask for a lock twice.
pub const WEAKER_MODE: Exhibit = Exhibit {
    name: "weaker-mode",
    story: "a transaction that asks for a lock in two modes has it in the weaker one",
    locks: 2,
    ..UNFENCED
};

/// Another one, likewise.
pub const FIRST_MODE: Exhibit = Exhibit {
    name: "first-mode",
    story: "a transaction that asks for a lock in two modes has it in the one that it named first",
    ..WEAKER_MODE
};

/// Another one: clients that forget a slot.
pub const SETTLES_ONE: Exhibit = Exhibit {
    name: "settles-one",
    story: "of two locks that a client gave up it settles the one in its first slot alone",
    locks: 2,
    ..UNFENCED
};

/// Another one, likewise.
pub const SETTLES_LAST: Exhibit = Exhibit {
    name: "settles-last",
    story: "of two locks that a client gave up it settles the one in its last slot alone",
    ..SETTLES_ONE
};

/// Exhibits that are no locks.
const OTHERS: [&Exhibit; 8] = [
    &UNFENCED,
    &STALE_INCARNATION,
    &SAME_TOKEN,
    &NEVER_BACK,
    &WEAKER_MODE,
    &FIRST_MODE,
    &SETTLES_ONE,
    &SETTLES_LAST,
];

/// Every exhibit.
pub fn exhibits() -> impl Iterator<Item = &'static Exhibit> {
    EXHIBITS.iter().chain(OTHERS)
}

/// Before the name of an exhibit.
pub const MUSEUM: &str = "museum:";

/// A player of this subject.
pub fn player(subject: &str) -> anyhow::Result<Player> {
    match subject.strip_prefix(MUSEUM) {
        Some(name) => exhibit(name),
        None => player_asking(subject, Asks::ForAll),
    }
}

/// A player of this lock, whose clients' transactions ask for their locks so.
fn player_asking(subject: &str, asks: Asks) -> anyhow::Result<Player> {
    let lock = subject.strip_prefix(LOCAL).unwrap_or(subject);
    let name = lock.split(':').next().unwrap_or(lock);
    let [sleeper, cas, other] = PAUSE_NS;
    let pause_ns = match name {
        "cas" => cas,
        _ if SLEEPERS.contains(&name) => sleeper,
        _ => other,
    };
    let option = PATIENT.iter().find(|(patient, _)| *patient == name);
    let spec = option.map_or(lock.to_owned(), |(_, option)| format!("{lock}:{option}"));
    let crew = if lock == subject { Crew::ALONE } else { CREW };
    Ok(registry::visit(&spec, MakePlayer { pause_ns, crew, asks, ..MakePlayer::SOUND })?)
}

fn exhibit(name: &str) -> anyhow::Result<Player> {
    if name == UNFENCED.name {
        let maker = MakePlayer { register: Register::UNFENCED, ..MakePlayer::SOUND };
        return Ok(registry::visit("mcs", maker)?);
    }
    if name == STALE_INCARNATION.name {
        let maker = MakePlayer { looks_at_incarnation: false, ..MakePlayer::SOUND };
        return Ok(registry::visit("mcs", maker)?);
    }
    let asks = [(WEAKER_MODE, Asks::ForTheWeaker), (FIRST_MODE, Asks::ForTheFirst)];
    if let Some((_, asks)) = asks.into_iter().find(|(exhibit, _)| exhibit.name == name) {
        return player_asking("shiftlock", asks);
    }
    if name == SETTLES_ONE.name || name == SETTLES_LAST.name {
        let settles = Settles::One { last: name == SETTLES_LAST.name };
        let maker = MakePlayer { settles, ..MakePlayer::SOUND };
        return Ok(registry::visit("mcs", maker)?);
    }
    if name == SAME_TOKEN.name {
        let crew = Crew { tells_turns: false, ..CREW };
        return Ok(registry::visit("mcs", MakePlayer { crew, ..MakePlayer::SOUND })?);
    }
    if name == NEVER_BACK.name {
        let crew = Crew { handovers_max: (1 << Token::TURN_BITS) - 1, ..CREW };
        let order = Order { passes: Some(1 + CREW.handovers_max), ..Order::default() };
        let maker = MakePlayer { crew, order: Some(order), ..MakePlayer::SOUND };
        return Ok(registry::visit("mcs", maker)?);
    }
    let exhibit = EXHIBITS.iter().find(|exhibit| exhibit.name == name);
    let exhibit = exhibit.with_context(|| format!("the museum has no exhibit named '{name}'"))?;
    exhibits::visit(name, maker_of(exhibit)).context("an exhibit that is listed can be visited")
}

/// A player of the same lock without its flaw, if that is what is wrong with an exhibit.
pub fn twin(exhibit: &Exhibit) -> Option<Player> {
    exhibits::visit_twin(exhibit.name, maker_of(exhibit))
}

fn maker_of(exhibit: &Exhibit) -> MakePlayer {
    let order = Some(match exhibit.order {
        Claim::Nothing | Claim::TriesTellTruth | Claim::Withdraws | Claim::PassesOverStopped => {
            Order::default()
        }
        Claim::WritersInOrder => Order { writers: Some(0), ..Order::default() },
        Claim::OneMayPass => Order { writers: Some(1), ..Order::default() },
        Claim::WritersKeepReadersOut => Order { readers: Some(u16::MAX), ..Order::default() },
    });
    let settles = if exhibit.settles { Settles::All } else { Settles::Nothing };
    let claim = exhibit.order;
    MakePlayer { settles, order, claim, pause_ns: PAUSE_NS[2], ..MakePlayer::SOUND }
}

struct MakePlayer {
    settles: Settles,
    /// The order that the lock is held to; `None`: to that which it promises.
    order: Option<Order>,
    /// The register outside.
    register: Register,
    /// Clients begin with the incarnation of the memory as it is.
    looks_at_incarnation: bool,
    /// By what pauses are measured if it has no lease, in nanoseconds.
    pause_ns: Nanos,
    /// Tasks of each client.
    crew: Crew,
    /// What an exhibit claims.
    claim: Claim,
    /// What transactions make of the locks that are asked of them.
    asks: Asks,
}

impl MakePlayer {
    /// Of a lock as it is.
    const SOUND: Self = Self {
        settles: Settles::All,
        order: None,
        register: Register::FENCED,
        looks_at_incarnation: true,
        pause_ns: LEASE_NS,
        crew: Crew::ALONE,
        claim: Claim::Nothing,
        asks: Asks::ForAll,
    };

    /// What the lock says of tries, withdrawals and stops, or an exhibit claims.
    fn declares<W: WideAtomics, L: RecordLock<W>>(&self, leased: bool) -> Declares {
        if leased || self.crew != Crew::ALONE {
            return Declares::NOTHING;
        }
        Declares {
            tries: L::TRIES_TELL_TRUTH || self.claim == Claim::TriesTellTruth,
            withdraws: L::WITHDRAWS || self.claim == Claim::Withdraws,
            passes: L::PASSES_OVER_STOPPED || self.claim == Claim::PassesOverStopped,
        }
    }

    fn terms<W: WideAtomics, L: RecordLock<W>>(&self, lock: &L) -> Terms {
        let order = self.order.unwrap_or_else(|| match self.crew {
            Crew::ALONE => Order::promised(lock),
            crew => Order::handed_on(lock, crew.handovers_max),
        });
        let (outlives, lease_ns) = (L::OUTLIVES_CLIENTS, lock.lease_ns());
        Terms {
            order,
            settles: self.settles,
            outlives,
            looks_at_incarnation: self.looks_at_incarnation,
            order_outlives_pauses: L::ORDER_OUTLIVES_PAUSES,
            leaves_mail: L::LEAVES_MAIL,
            register: self.register,
            lease_ns,
            adds_within_ns: lock.adds_within_ns(),
            pause_ns: lease_ns.unwrap_or(self.pause_ns),
            crew: self.crew,
            updates: L::UPDATES && self.crew == Crew::ALONE,
            declares: self.declares::<W, L>(lease_ns.is_some()),
            asks: self.asks,
        }
    }
}

impl Visitor<Watched> for MakePlayer {
    type Output = Player;

    fn visit<L: RecordLock<Watched>>(self, lock: L) -> Player {
        let terms = self.terms::<Watched, L>(&lock);
        Player::new(lock, terms, |endpoint| endpoint)
    }
}

impl ExhibitVisitor<Watched> for MakePlayer {
    type Output = Player;

    fn visit<W: WideAtomics, L: RecordLock<W>>(self, lock: L, wrap: fn(Watched) -> W) -> Player {
        let terms = self.terms::<W, L>(&lock);
        Player::new(lock, terms, wrap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exhaustive::{Explored, explore};
    use crate::hunt::Budget;
    use crate::mishap::What;
    use crate::scenario::{Scenario, VISITED_NS};
    use crate::verdict::Objection;

    /// What comes of a lock that is held to this, whatever it says of itself.
    fn explored(lock: &str, claim: Claim, scenario: &Scenario) -> Explored {
        let maker = MakePlayer { claim, ..MakePlayer::SOUND };
        let player = registry::visit(lock, maker).expect("a registered lock");
        explore(&player, scenario, Budget::Schedules(u64::MAX), |_| {})
    }

    fn stopped(lock: &str, clients: u16, times: u32) -> Scenario {
        let mishaps_anywhere = vec![(times, What::Stop)];
        Scenario { mishaps_anywhere, ..Scenario::plain(lock, clients, 1) }
    }

    /// Nobody stands in line before such a lock. Who was stopped with the verb that acquired it
    /// holds it, and is not to be passed over.
    #[test]
    fn a_stopped_waiter_before_no_line_is_in_nobodys_way() {
        let scenario = stopped("cas-nb", 3, 2);
        let explored = explored("cas-nb", Claim::PassesOverStopped, &scenario);
        assert!(explored.catch.is_none() && explored.complete, "{:?}", explored.catch);
        let befell = explored.befell;
        assert!(befell.stops > 100 && befell.pauses > 20, "{befell:?}");
    }

    #[test]
    fn a_stopped_waiter_in_a_line_is_in_the_way_of_those_behind_it() {
        // A holder of the first two waits for the report of who is behind it.
        for (lock, clients) in
            [("mcs", 2), ("shiftlock:poll=15000000", 2), ("dslr:omega=2500000", 3)]
        {
            let scenario = stopped(lock, clients, 1);
            let explored = explored(lock, Claim::PassesOverStopped, &scenario);
            let finding = explored.catch.expect("there is a line").finding;
            assert_eq!(finding.objection, Objection::Stall, "{lock}: {}", finding.story);
        }
    }

    /// A reader, and a writer that gives up.
    fn withdrawn(lock: &str, quits: bool) -> Scenario {
        let plain = Scenario::plain(lock, 2, 1);
        let (shared, cancel_anywhere) = (0b01, 1);
        Scenario { shared, cancel_anywhere, visited: true, quits, hold_ns: VISITED_NS, ..plain }
    }

    #[test]
    fn a_newcomer_finds_who_withdrew_and_keeps_readers_out() {
        let lock = "shiftlock:poll=15000000";
        let scenario = withdrawn(lock, false);
        let found = explored(lock, Claim::Withdraws, &scenario).catch.expect("it is a ghost");
        assert_eq!(found.finding.objection, Objection::Violation, "{}", found.finding.story);
        // A lock that is not held to it may.
        let explored = explored(lock, Claim::Nothing, &scenario);
        assert!(explored.catch.is_none() && explored.complete, "{:?}", explored.catch);
    }

    /// Somebody dies, somebody tries; then, where all live, somebody tries beside the living.
    #[test]
    fn a_refusal_beside_the_dead_is_found_and_beside_the_living_is_none() {
        for (anywhere, found) in [(1, true), (0, false)] {
            let scenario = Scenario { anywhere, ..Scenario::plain("cas-nb", 3, 1).trying(false) };
            let explored = explored("cas-nb", Claim::TriesTellTruth, &scenario);
            assert_eq!(explored.catch.is_some(), found, "{:?}", explored.catch);
            assert!(explored.befell.tries_refused > 0, "{:?}", explored.befell);
        }
    }

    /// A lock that says all three is right, in every schedule of two clients.
    #[test]
    fn who_keeps_what_it_says_is_not_objected_to() {
        let lock = "claim";
        let player = player(lock).expect("a registered lock");
        let all = Declares { tries: true, withdraws: true, passes: true };
        assert_eq!(player.declares(), all);
        let trying = Scenario::plain(lock, 2, 1).mixed().trying(false);
        for scenario in [
            stopped(lock, 2, 2),
            withdrawn(lock, false),
            withdrawn(lock, true),
            Scenario { cancel_anywhere: 2, ..withdrawn(lock, false) },
            Scenario { anywhere: 1, ..trying },
        ] {
            let explored = explore(&player, &scenario, Budget::Schedules(u64::MAX), |_| {});
            assert!(explored.catch.is_none() && explored.complete, "{:?}", explored.catch);
            let befell = explored.befell;
            assert!(befell.tries > 0 && befell.stops + befell.given_up > 0 || scenario.tries != 0);
        }
    }
}
