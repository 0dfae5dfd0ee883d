//! Tables locked whole and by rows, beside each other: every schedule in the small, before a judge
//! that knows who excludes whom.

use std::cell::RefCell;
use std::rc::Rc;

use farlock_fabric::{Addr, Endpoint, EndpointId};
use farlock_locks::record::table::Table;
use farlock_locks::{Client, Guard, Mode, Options};
use farlock_sim::schedule::{Director, Exhaustive};
use farlock_sim::{Config, Ended, Handle, Oracle, Ratio, SimEndpoint, Weakness, World};

/// Runs that have more events go round in circles.
const EVENTS_MAX: u64 = 5_000;
/// Where what a lock protects lies, in bytes after its word.
const PROTECTED: u64 = 64;

/// How a client locks the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Role {
    S,
    Is,
    Ix,
    X,
}

const ROLES: [Role; 4] = [Role::S, Role::Is, Role::Ix, Role::X];

impl Role {
    /// Whether nobody may hold the table so while another holds it in the other way.
    fn excludes(self, other: Self) -> bool {
        let (less, more) = (self.min(other), self.max(other));
        more == Self::X || (less, more) == (Self::S, Self::Ix)
    }

    fn lock(self) -> (Table, Mode) {
        let mut lock = match self {
            Self::S | Self::X => Table::whole(),
            Self::Is | Self::Ix => Table::rows(),
        };
        // Who waits by the clock looks so seldom that waiting takes few events.
        lock.waiting.omega_ns = 2_500_000;
        let shares = matches!(self, Self::S | Self::Is);
        (lock, if shares { Mode::Shared } else { Mode::Exclusive })
    }
}

/// Who is inside, and the highest token of each way to be.
#[derive(Default)]
struct Judge {
    inside: Vec<(u16, Role)>,
    tokens: [u64; 4],
}

impl Judge {
    fn enters(&mut self, who: u16, role: Role, token: u64) {
        let beside = self.inside.iter().find(|(_, other)| role.excludes(*other));
        assert_eq!(beside, None, "{who} enters as {role:?}");
        for other in ROLES.into_iter().filter(|other| role.excludes(*other)) {
            assert!(token > self.tokens[other as usize], "{role:?} after {other:?}: {token}");
        }
        let highest = &mut self.tokens[role as usize];
        *highest = token.max(*highest);
        self.inside.push((who, role));
        self.inside.sort_unstable();
    }

    fn leaves(&mut self, who: u16) {
        self.inside.retain(|(other, _)| *other != who);
    }

    fn ghost(&self) -> u64 {
        let inside = self.inside.iter().map(|(who, role)| u64::from(*who) << 2 | *role as u64);
        inside.chain(self.tokens).fold(1, |sum, part| sum.wrapping_mul(31).wrapping_add(part))
    }
}

/// What is explored: clients with these roles, each of which comes so often.
struct Exploration {
    roles: Vec<Role>,
    rounds: u16,
    /// So many clients may die, each at any of its verbs.
    deaths: u32,
}

impl Exploration {
    fn explore(&self) {
        let director = Director::new(Exhaustive::new());
        while let Some(oracle) = director.begin() {
            if self.run(oracle) == Ended::Finished {
                director.with(Exhaustive::ended);
            }
        }
        let doomed = director.with(|schedule| schedule.doomed());
        assert!(doomed.is_empty(), "{:?}: in {} states no schedule ends", self.roles, doomed.len());
    }

    fn run(&self, oracle: Box<dyn Oracle>) -> Ended {
        let config = Config {
            mode: farlock_sim::Mode::Explored,
            weakness: Weakness { detection_ns_min: 1, detection_ns_max: 1, ..Weakness::NONE },
            endpoints: self.roles.len() as u16,
            slots_per_endpoint: 1,
            events_max: Some(EVENTS_MAX),
            ..Config::default()
        };
        let world = World::with_oracle(config, oracle);
        let (word, judge) = (world.region(world.node(), 128), Rc::new(RefCell::default()));
        let endpoints: Vec<_> = self.roles.iter().map(|_| world.endpoint()).collect();
        let ids: Rc<[EndpointId]> = endpoints.iter().map(Endpoint::id).collect();
        world.crash_anywhere(self.deaths, Ratio::one_in(16));
        for ((endpoint, &role), who) in endpoints.into_iter().zip(&self.roles).zip(0..) {
            let (id, (lock, mode)) = (endpoint.id(), role.lock());
            let client = Client::new(endpoint, lock, Options { incarnation: 1 });
            let (ids, judge, handle) = (Rc::clone(&ids), Rc::clone(&judge), world.handle());
            let member = Member { client, who, role, mode, word, ids, judge, handle };
            world.spawn(id, member.live(self.rounds));
        }
        let ended = world.run();
        assert!(matches!(ended, Ended::Finished | Ended::Abandoned), "{:?}: {ended:?}", self.roles);
        ended
    }
}

struct Member {
    client: Client<SimEndpoint, Table>,
    who: u16,
    role: Role,
    mode: Mode,
    word: Addr,
    ids: Rc<[EndpointId]>,
    judge: Rc<RefCell<Judge>>,
    handle: Handle,
}

impl Member {
    async fn live(self, rounds: u16) {
        for round in 0..rounds {
            self.client.endpoint().checkpoint(&[u64::from(round)]);
            let acquired = self.client.acquire(self.word, self.mode).await;
            let guard = acquired.expect("the living are granted");
            self.enters(&guard);
            let used = self.client.endpoint().read64(self.word.plus(PROTECTED)).await;
            used.expect("the living read");
            self.tells(|judge| judge.leaves(self.who));
            guard.release().await.expect("the living release");
        }
    }

    fn enters(&self, guard: &Guard<'_, SimEndpoint, Table>) {
        let token = guard.token().expect("it has tokens").count() + 1;
        self.tells(|judge| {
            for (other, &id) in (0..).zip(self.ids.iter()) {
                if !self.client.endpoint().is_alive(id) {
                    judge.leaves(other);
                }
            }
            judge.enters(self.who, self.role, token);
        });
    }

    /// What the judge knows of the past is a part of the state.
    fn tells(&self, what: impl FnOnce(&mut Judge)) {
        let judge = &mut *self.judge.borrow_mut();
        what(judge);
        self.handle.ghost().set(judge.ghost());
    }
}

/// Every choice of roles for so many clients.
fn casts(clients: usize) -> Vec<Vec<Role>> {
    let mut casts = vec![Vec::new()];
    for _ in 0..clients {
        let longer = |cast: Vec<Role>| {
            let from = cast.last().copied().unwrap_or(Role::S);
            let roles = ROLES.into_iter().filter(move |&role| role >= from);
            roles.map(move |role| [cast.clone(), vec![role]].concat())
        };
        casts = casts.into_iter().flat_map(longer).collect();
    }
    casts
}

fn explore(clients: usize, rounds: u16, deaths: u32) {
    casts(clients).into_iter().for_each(|roles| Exploration { roles, rounds, deaths }.explore());
}

#[test]
fn two_clients_come_twice() {
    explore(2, 2, 0);
}

#[test]
fn three_clients_come_once() {
    assert_eq!(casts(3).len(), 20);
    explore(3, 1, 0);
}

#[test]
fn one_of_two_clients_dies() {
    explore(2, 2, 1);
}
