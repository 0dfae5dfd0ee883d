//! The subjects of the checker: every lock of the registry, every exhibit of the museum.

use anyhow::Context;
use farlock_fabric::Nanos;
use farlock_locks::museum::exhibits::{self, Claim, EXHIBITS, Exhibit, ExhibitVisitor};
use farlock_locks::museum::flaws::Sound;
use farlock_locks::museum::tampered::Tampered;
use farlock_locks::record::bakery::LEASE_NS;
use farlock_locks::registry::{self, LockInfo, RECORD_LOCKS, Visitor};
use farlock_locks::{Lock, Promises, Proof, Token};
use farlock_sim::check::Register;

use crate::args::{CheckArgs, Mode};
use crate::client::{CheckedLock, checked};
use crate::faults::Declares;
use crate::order::Order;
use crate::points::Watched;
use crate::trial::{Actor, Asks, Crew, Player, Settles, Subject, Terms};

/// Before the name of a lock that a client's tasks hand on among themselves.
pub const LOCAL: &str = "local:";

/// The clients there.
const CREW: Crew = Crew { tasks: 2, handovers_max: 1, tells_turns: true };

/// The leases of the locks that are checked with leases, in nanoseconds.
const LEASES_NS: Nanos = LEASE_NS;

/// So many rounds of readers pass a writer of the range lock in trees of three levels, and more
/// hardly ever: it promises a multiple.
const FEW_ROUNDS: u16 = 4;

/// So many rounds of others pass a waiter for units that calls at once, and more hardly ever: of 4
/// to 8 clients 7 were the most.
#[cfg(test)]
const FEW: u16 = 8;

/// The names of every lock of the registry under the options that this picks of its proof.
fn names(pick: impl Fn(&Proof) -> &'static [&'static str]) -> Vec<String> {
    let of = |lock: &LockInfo| {
        let name = lock.name;
        let spec = |options: &&str| spec([name, options]);
        pick(&proof(name)).iter().map(spec).collect::<Vec<_>>()
    };
    RECORD_LOCKS.iter().flat_map(of).collect()
}

/// A name with options, of which some may be none.
fn spec<const PARTS: usize>(parts: [&str; PARTS]) -> String {
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(":")
}

/// How a registered lock is proved.
fn proof(name: &str) -> Proof {
    promises(name).proof
}

fn promises(spec: &str) -> Promises {
    let lock = spec.strip_prefix(LOCAL).unwrap_or(spec);
    registry::promises(lock).unwrap_or(Promises::EXCLUSION)
}

/// Every lock of the registry, and its variants, without leases.
pub fn plain() -> Vec<String> {
    let names_of_all = RECORD_LOCKS.iter().map(|lock| lock.name.to_owned());
    names_of_all.chain(names(|proof| proof.variants)).collect()
}

/// Locks whose holders hold until a time.
pub fn leased() -> Vec<String> {
    let lease = format!("lease={LEASES_NS}");
    let of = |lock: &LockInfo| {
        let leased = proof(lock.name).leased;
        leased.iter().map(|options| spec([lock.name, options, &lease])).collect::<Vec<_>>()
    };
    RECORD_LOCKS.iter().flat_map(of).collect()
}

/// Whether the word of this lock tells the time.
pub fn word_tells_time(subject: &str) -> bool {
    promises(subject).proof.word_tells_time
}

/// Names of all locks that are checked so where none is named, the canary last.
pub fn all(args: &CheckArgs) -> Vec<String> {
    let (mut all, canary): (Vec<_>, Vec<_>) =
        plain().into_iter().partition(|name| promises(name).excludes);
    all.extend(leased());
    all.extend(names(|proof| proof.handed_on).iter().map(|lock| format!("{LOCAL}{lock}")));
    all.extend(canary);
    if args.mode == Mode::Exhaustive {
        let ends = args.clients() > 2 && args.crashes + args.losses > 0 || args.restarts > 0;
        let faults = args.crashes + args.losses + args.cancels + args.pauses + args.stops;
        let is_long = args.clients() > 2 && (args.acquisitions > 1 || faults > 0)
            || args.acquisitions > 2 && faults > 0
            || args.acquisitions > 1 && faults + u32::from(args.locks) - 1 > 1;
        let waits_holding = args.locks > 1 && args.acquisitions > 1;
        all.retain(|lock| {
            let (promises, explores) = (promises(lock), can_explore(lock));
            let (proof, is_leased) = (promises.proof, promises.lease_ns.is_some());
            let left_out = waits_holding && proof.word_tells_time
                || ends && proof.waits_for_void && is_leased
                || is_long && args.budget.is_none() && proof.has_many_verbs;
            explores && !left_out
        });
    }
    all
}

/// Whether every schedule of this lock can be told from every other. Two tasks of a client that do
/// the same at once, as readers do, look like one to a world's state: an exploration would turn
/// back where it must not.
pub fn can_explore(subject: &str) -> bool {
    let Some(lock) = subject.strip_prefix(LOCAL) else { return true };
    registry::kind(lock).is_ok_and(|kind| !kind.shares())
}

/// An exhibit that is no lock, and its player.
type Other = (Exhibit, fn() -> anyhow::Result<Player>);

/// Every one of them.
const OTHERS: [Other; 8] = [
    // What is behind a lock, and does not look at tokens.
    (other("unfenced", "a register outside takes late writes of former holders", 1), || {
        around_mcs(MakePlayer { register: Register::UNFENCED, ..MakePlayer::SOUND })
    }),
    // Clients that attach to a restarted memory node, and do not look which incarnation it is.
    (
        other("stale-incarnation", "the memory restarts and counts anew, and tokens with it", 1),
        || around_mcs(MakePlayer { looks_at_incarnation: false, ..MakePlayer::SOUND }),
    ),
    // Tasks that hand a hold on, and do not tell their turns.
    (other("same-token", "tasks to which a hold is handed on all have its one token", 1), || {
        let crew = Crew { tells_turns: false, ..CREW };
        around_mcs(MakePlayer { crew, ..MakePlayer::SOUND })
    }),
    // Tasks that hand a hold on as often as they like.
    (
        other("never-back", "tasks of a client relieve each other while another client waits", 1),
        || {
            let crew = Crew { handovers_max: (1 << Token::TURN_BITS) - 1, ..CREW };
            let order = Some(Order { passes: Some(1 + CREW.handovers_max), ..Order::default() });
            around_mcs(MakePlayer { crew, order, ..MakePlayer::SOUND })
        },
    ),
    // Transactions that ask for a lock twice.
    (
        other(
            "weaker-mode",
            "a transaction that asks for a lock in two modes has it in the weaker one",
            2,
        ),
        || player_asking("shiftlock", Asks::ForTheWeaker),
    ),
    (
        other(
            "first-mode",
            "a transaction that asks for a lock in two modes has it in the one that it named first",
            2,
        ),
        || player_asking("shiftlock", Asks::ForTheFirst),
    ),
    // Clients that forget a slot.
    (
        other(
            "settles-one",
            "of two locks that a client gave up it settles the one in its first slot alone",
            2,
        ),
        || around_mcs(MakePlayer { settles: Settles::One { last: false }, ..MakePlayer::SOUND }),
    ),
    (
        other(
            "settles-last",
            "of two locks that a client gave up it settles the one in its last slot alone",
            2,
        ),
        || around_mcs(MakePlayer { settles: Settles::One { last: true }, ..MakePlayer::SOUND }),
    ),
];

const fn other(name: &'static str, story: &'static str, locks: u16) -> Exhibit {
    Exhibit { name, story, settles: true, repairs: true, order: Claim::Nothing, locks }
}

/// Every exhibit.
pub fn exhibits() -> impl Iterator<Item = &'static Exhibit> {
    EXHIBITS.iter().chain(OTHERS.iter().map(|(exhibit, _)| exhibit))
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
    let proof = registry::promises(lock)?.proof;
    let (name, options) = lock.split_once(':').unwrap_or((lock, ""));
    // Of an option that is given twice the last counts: what is asked for is what is checked.
    let (pause_ns, spec) = (proof.pause_ns, spec([name, proof.patient, options]));
    let crew = if lock == subject { Crew::ALONE } else { CREW };
    Ok(registry::visit(&spec, MakePlayer { pause_ns, crew, asks, ..MakePlayer::SOUND })?)
}

/// A player of a sound lock, around which something else is wrong.
fn around_mcs(maker: MakePlayer) -> anyhow::Result<Player> {
    Ok(registry::visit("mcs", maker)?)
}

fn exhibit(name: &str) -> anyhow::Result<Player> {
    if let Some((_, player)) = OTHERS.iter().find(|(exhibit, _)| exhibit.name == name) {
        return player();
    }
    let exhibit = EXHIBITS.iter().find(|exhibit| exhibit.name == name);
    let exhibit = exhibit.with_context(|| format!("the museum has no exhibit named '{name}'"))?;
    exhibits::visit(name, maker_of(exhibit)).context("an exhibit that is listed can be visited")
}

/// A player of the same lock without its flaw, if that is what is wrong with an exhibit.
pub fn twin(exhibit: &Exhibit) -> Option<Player> {
    exhibits::visit_twin(exhibit.name, maker_of(exhibit))
}

/// A player of this lock, any waiter of which few rounds of others are to pass.
#[cfg(test)]
pub fn passed_by_few(lock: impl Lock<Actor>) -> Player {
    let order = Order { rounds: Some(FEW), rounds_of_all: true, ..Order::default() };
    let pause_ns = Proof::PLAIN.pause_ns;
    Visitor::visit(MakePlayer { order: Some(order), pause_ns, ..MakePlayer::SOUND }, lock)
}

fn maker_of(exhibit: &Exhibit) -> MakePlayer {
    let order = Some(match exhibit.order {
        Claim::Nothing | Claim::TriesTellTruth | Claim::Withdraws | Claim::PassesOverStopped => {
            Order::default()
        }
        Claim::WritersInOrder => Order { writers: Some(0), ..Order::default() },
        Claim::OneMayPass => Order { writers: Some(1), ..Order::default() },
        Claim::FewRoundsPass => Order { rounds: Some(FEW_ROUNDS), ..Order::default() },
        Claim::WritersKeepReadersOut => Order { readers: Some(u16::MAX), ..Order::default() },
    });
    let settles = if exhibit.settles { Settles::All } else { Settles::Nothing };
    let claim = exhibit.order;
    MakePlayer { settles, order, claim, pause_ns: Proof::PLAIN.pause_ns, ..MakePlayer::SOUND }
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
    fn declares(&self, promises: &Promises) -> Declares {
        if promises.lease_ns.is_some() || self.crew != Crew::ALONE {
            return Declares::NOTHING;
        }
        Declares {
            tries: promises.tries_tell_truth || self.claim == Claim::TriesTellTruth,
            withdraws: promises.withdraws || self.claim == Claim::Withdraws,
            passes: promises.passes_over_stopped || self.claim == Claim::PassesOverStopped,
        }
    }

    fn terms(&self, lock: &dyn CheckedLock<Actor>) -> Terms {
        let promises = lock.kind().promises();
        let order = self.order.unwrap_or_else(|| match self.crew {
            Crew::ALONE => Order::promised(promises.order),
            crew => Order::handed_on(promises.order, crew.handovers_max),
        });
        let (outlives, lease_ns) = (promises.outlives_clients, promises.lease_ns);
        Terms {
            order,
            settles: self.settles,
            outlives,
            parts: promises.proof.in_parts,
            looks_at_incarnation: self.looks_at_incarnation,
            order_outlives_pauses: promises.order.outlives_pauses,
            leaves_mail: promises.leaves_mail,
            register: self.register,
            lease_ns,
            adds_within_ns: promises.adds_within_ns,
            waits_out_ns: promises.waits_out_ns,
            pause_ns: lease_ns.or(promises.waits_out_ns).unwrap_or(self.pause_ns),
            crew: self.crew,
            updates: lock.updates() && self.crew == Crew::ALONE,
            converts: lock.converts() && self.crew == Crew::ALONE,
            divides: lock.divides() && self.crew == Crew::ALONE,
            tunes: lock.is_tuned() && self.crew == Crew::ALONE,
            declares: self.declares(&promises),
            asks: self.asks,
        }
    }
}

impl Visitor<Actor> for MakePlayer {
    type Output = Player;

    fn asks_for_size(&self) -> bool {
        true
    }

    fn visit<L: Lock<Actor>>(self, lock: L) -> Player {
        ExhibitVisitor::visit(self, lock, Tampered::with::<Sound>)
    }
}

impl ExhibitVisitor<Watched> for MakePlayer {
    type Output = Player;

    fn visit<L: Lock<Actor>>(self, lock: L, wrap: fn(Watched) -> Actor) -> Player {
        let lock = checked(lock);
        let terms = self.terms(&*lock);
        Player::new(Subject { lock, wrap }, terms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::campaign;
    use crate::exhaustive::{Explored, explore};
    use crate::hunt::{Budget, Hunt, Mix};
    use crate::lapse::Lapse;
    use crate::mishap::What;
    use crate::scenario::{Scenario, VISITED_NS};
    use crate::verdict::Objection;

    /// How far clocks lie apart that go as the contract says, in nanoseconds.
    const CLOCKS_APART_NS: Nanos = 100_000;

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

    /// A client dies, another tries; then, where all live, a client tries beside the living.
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

    /// A player of a lock that no list has, of one file, which leases and counts.
    fn unlisted(clock_error_ns: Nanos) -> Player {
        let lock = Lapse { lease_ns: LEASES_NS, clock_error_ns, poll_ns: LEASES_NS / 2 };
        Visitor::visit(MakePlayer::SOUND, lock)
    }

    /// What is caught of it in drawn schedules.
    fn hunted(player: &Player) -> (Hunt<'_>, bool) {
        let mut hunt = Hunt::new(player, Mix::Standard, 1);
        let (base, faults) = (Scenario::plain("lapse", 4, 2), player.faults(true));
        let caught = hunt.search(&base, faults, Budget::Schedules(10_000), |_| {}).is_some();
        (hunt, caught)
    }

    /// The checker needs to know nothing of a lock that its own file does not say.
    #[test]
    fn a_lock_of_one_file_is_checked_as_it_is() {
        let player = unlisted(CLOCKS_APART_NS);
        let plain = Scenario::plain("lapse", 2, 2);
        for scenario in [
            Scenario { anywhere: 1, ..plain.clone() },
            Scenario { near_wrap: 1, ..plain.clone() },
            Scenario { cancel_anywhere: 1, ..plain },
        ] {
            let explored = explore(&player, &scenario, Budget::Schedules(u64::MAX), |_| {});
            assert!(explored.catch.is_none() && explored.complete, "{:?}", explored.catch);
        }
        let (hunt, caught) = hunted(&player);
        let befell = &hunt.befell;
        assert!(!caught, "{befell:?}");
        assert!(befell.wraps.min(befell.overstayed).min(befell.stale_refused) > 100, "{befell:?}");
        let base = Scenario::plain("lapse", 3, 2);
        let came = campaign(&player, &base, Budget::Schedules(5_000), 1, |_| {});
        assert!(came.catch.is_none(), "{:?}", came.catch);
        assert_eq!((came.covered, came.pairs_covered), (came.points, came.pairs));
        assert!(came.pairs > 0, "who repairs may die");
    }

    /// And it is held to what that says: by clocks that lie further apart than it believes it lets
    /// two in.
    #[test]
    fn a_lock_of_one_file_that_trusts_clocks_too_far_is_caught() {
        assert!(hunted(&unlisted(0)).1);
    }
}
