//! Locks held to update: every schedule in the small, before the ledger that knows what such a hold
//! excludes; and that readers really stay, and a second updater really waits.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use crate::lease::stop_now_and_then;
use crate::scene::{Member, Scene};
use farlock_fabric::{Addr, Endpoint, EndpointId, Nanos};
use farlock_locks::registry::{self, Visitor};
use farlock_locks::{Client, Lock, Mode, Options, ReleaseError, Token, UpgradeError, width};
use farlock_sim::check::{Access, Ledger};
use farlock_sim::{Config, Ended, Handle, Ratio, SimEndpoint, Weakness, World};

/// Locks to explore: one that lets readers stay, and some where such a hold is exclusive. Who waits
/// by the clock looks so seldom that waiting takes few events.
const SPECS: &[&str] = &["dslr:fixed=20000000", "mcs", "shiftlock:poll=15000000"];

/// What a client does with the lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Role {
    Reads,
    Writes,
    /// Holds to update, and does not.
    Looks,
    /// Holds to update, and does.
    Updates,
}

const ROLES: [Role; 4] = [Role::Reads, Role::Writes, Role::Looks, Role::Updates];

/// What is explored: clients with these roles, each of which comes so often.
#[derive(Clone, Debug)]
struct Exploration {
    spec: &'static str,
    roles: Vec<Role>,
    rounds: u16,
    /// So many clients may die, each at any of its verbs.
    deaths: u32,
    /// So many acquisitions and the lock's counts wrap; 0: they begin at zero.
    near_wrap: u16,
}

impl Visitor<SimEndpoint> for Exploration {
    type Output = ();

    fn visit<L: Lock<SimEndpoint>>(self, lock: L) {
        let word = if self.near_wrap > 0 { lock.near_wrap(self.near_wrap) } else { 0 };
        let updates = lock.updates().is_some();
        let (clients, deaths) = (self.roles.len() as u16, self.deaths);
        let scene = Scene { title: &self, clients, deaths, word };
        scene.explore(
            |_| lock.clone(),
            |member| {
                let role = self.roles[usize::from(member.who)];
                Actor { member, role, updates, near_wrap: self.near_wrap.into() }.live(self.rounds)
            },
        );
    }
}

impl Exploration {
    fn explore(self) {
        registry::visit(self.spec, self).expect("a lock of the registry");
    }
}

struct Actor<L: Lock<SimEndpoint>> {
    member: Member<L, Ledger>,
    role: Role,
    /// Whether readers stay beside holds to update.
    updates: bool,
    /// Where counts begin so that they wrap.
    near_wrap: u64,
}

impl<L: Lock<SimEndpoint>> Actor<L> {
    async fn live(self, rounds: u16) {
        for round in 0..rounds {
            self.member.begins(round);
            match self.role {
                Role::Reads if L::SHARES => self.acquires(Mode::Shared).await,
                Role::Reads | Role::Writes => self.acquires(Mode::Exclusive).await,
                Role::Looks | Role::Updates => self.updates().await,
            }
        }
    }

    async fn acquires(&self, mode: Mode) {
        let member = &self.member;
        let access = if mode == Mode::Shared { Access::Shared } else { Access::Exclusive };
        let guard = member.client.acquire(member.word, mode).await.expect("the living are granted");
        self.visits(access, guard.token()).await;
        member.leaves();
        guard.release().await.expect("the living release");
    }

    async fn updates(&self) {
        let member = &self.member;
        // Where readers do not stay, nobody may be there.
        let access = if self.updates { Access::Update } else { Access::Exclusive };
        let guard = member.client.update(member.word).await.expect("the living are granted");
        let token = guard.token();
        self.visits(access, token).await;
        if self.role == Role::Looks {
            member.leaves();
            return guard.release().await.expect("the living release");
        }
        let guard = guard.upgrade().await.expect("without leases nobody loses the lock");
        member.tells(|ledger| ledger.upgrade(member.who));
        assert_eq!(guard.token(), token);
        member.uses().await;
        member.leaves();
        guard.release().await.expect("the living release");
    }

    /// Comes in, and looks at what the lock protects. The judge is told the token's count as if it
    /// had begun at zero.
    async fn visits(&self, access: Access, token: Option<Token>) {
        let unwrapped =
            |token: Token| token.get().wrapping_add(self.near_wrap) % (1 << width::COUNT);
        let token = token.map(unwrapped);
        self.member.tells(|ledger| ledger.enter(self.member.who, access, token));
        self.member.uses().await;
    }
}

/// Every choice of roles for so many clients in which a client comes to update.
fn casts(clients: usize) -> Vec<Vec<Role>> {
    let mut casts = vec![Vec::new()];
    for _ in 0..clients {
        let longer = |cast: Vec<Role>| {
            let from = cast.last().copied().unwrap_or(Role::Reads);
            let roles = ROLES.into_iter().filter(move |&role| role >= from);
            roles.map(move |role| [cast.clone(), vec![role]].concat())
        };
        casts = casts.into_iter().flat_map(longer).collect();
    }
    casts.retain(|cast| cast.last() >= Some(&Role::Looks));
    casts
}

/// Every mix of so many clients. Counts begin at zero, and so that they wrap within: the last
/// ticket before they do passes no reader.
fn explore(clients: usize, rounds: u16, deaths: u32) {
    for &spec in SPECS {
        for (roles, near_wrap) in casts(clients).into_iter().flat_map(|c| [(c.clone(), 0), (c, 2)])
        {
            if near_wrap == 0 || spec.starts_with("dslr") {
                Exploration { spec, roles, rounds, deaths, near_wrap }.explore();
            }
        }
    }
}

#[test]
fn three_clients_in_every_mix_of_roles() {
    assert_eq!(casts(3).len(), 16);
    explore(3, 1, 0);
}

#[test]
fn two_clients_come_twice() {
    explore(2, 2, 0);
}

#[test]
fn two_clients_come_twice_and_one_of_them_dies() {
    explore(2, 2, 1);
}

/// The others of these worlds are as large, and were explored once: all is well in them.
#[test]
fn one_of_three_clients_dies() {
    let roles = vec![Role::Reads, Role::Looks, Role::Updates];
    Exploration { spec: SPECS[0], roles, rounds: 1, deaths: 1, near_wrap: 0 }.explore();
}

/// What clients of a lock do in a small world.
trait Story {
    async fn play<L: Lock<SimEndpoint>>(word: Addr, client: impl Fn() -> Client<SimEndpoint, L>);
}

struct Told<S>(PhantomData<S>);

impl<S: Story> Visitor<SimEndpoint> for Told<S> {
    type Output = ();

    fn visit<L: Lock<SimEndpoint>>(self, lock: L) {
        let world = World::new(Config::default());
        let word = world.region(world.node(), 64);
        let client = || Client::new(world.endpoint(), lock.clone(), Options::default());
        world.block_on(S::play(word, client));
    }
}

/// Plays a story with the lock that a name stands for.
fn tell<S: Story>(spec: &str) {
    registry::visit(spec, Told::<S>(PhantomData)).expect("registered");
}

const LEASE_NS: Nanos = 1_000_000;
/// Far more than any story takes, in virtual nanoseconds.
const TIME_NS_MAX: Nanos = 60_000_000_000;

/// Figure 7: two read, a third comes to update and reads beside them; a fourth that reads waits,
/// and so does one more that would update. When the two have left, the third writes.
#[test]
fn readers_stay_until_the_updater_writes_and_later_ones_wait() {
    struct Figure7;
    impl Story for Figure7 {
        async fn play<L: Lock<SimEndpoint>>(
            word: Addr,
            client: impl Fn() -> Client<SimEndpoint, L>,
        ) {
            let [one, two, three, four, five] = std::array::from_fn(|_| client());
            let first = one.shared(word).await.expect("the lock is free");
            let second = two.shared(word).await.expect("readers share");
            let third = three.update(word).await.expect("beside readers");
            assert!(four.try_acquire(word, Mode::Shared).await.expect("tries").is_none());
            let late = farlock_locks::within(five.endpoint(), 200_000, five.update(word));
            assert!(late.await.is_none(), "two at once");
            first.release().await.expect("releases");
            second.release().await.expect("releases");
            let third = third.upgrade().await.expect("the readers have left");
            assert!(four.try_acquire(word, Mode::Shared).await.expect("tries").is_none());
            third.release().await.expect("releases");
            five.settle().await;
            let last = four.try_acquire(word, Mode::Exclusive).await.expect("tries");
            last.expect("all have left").release().await.expect("releases");
        }
    }
    tell::<Figure7>("dslr");
}

/// An updater waits for a reader that overstays. Its own patience ends the wait: the lock is lost
/// to all, and the updater is told.
#[test]
fn an_upgrade_behind_a_reader_that_overstays_is_lost() {
    struct Overstays;
    impl Story for Overstays {
        async fn play<L: Lock<SimEndpoint>>(
            word: Addr,
            client: impl Fn() -> Client<SimEndpoint, L>,
        ) {
            let (reads, updates) = (client(), client());
            let reader = reads.shared(word).await.expect("the lock is free");
            let updater = updates.update(word).await.expect("beside a reader");
            let begun = updates.endpoint().now();
            let upgraded = updater.upgrade().await;
            assert_eq!(upgraded.err(), Some(UpgradeError::Lost));
            assert!(updates.endpoint().now() - begun >= 2 * LEASE_NS);
            drop(reader);
            reads.settle().await;
            let next = updates.update(word).await.expect("the lock is free");
            next.upgrade().await.expect("at once").release().await.expect("in time");
        }
    }
    tell::<Overstays>(&format!("dslr:lease={LEASE_NS}"));
}

/// An upgrade that is dropped ends by itself, and the lock is free again.
#[test]
fn a_dropped_upgrade_is_settled() {
    struct Dropped;
    impl Story for Dropped {
        async fn play<L: Lock<SimEndpoint>>(
            word: Addr,
            client: impl Fn() -> Client<SimEndpoint, L>,
        ) {
            let (reads, updates) = (client(), client());
            let reader = reads.shared(word).await.expect("the lock is free");
            let updater = updates.update(word).await.expect("beside a reader");
            let upgrade = farlock_locks::within(updates.endpoint(), 50_000, updater.upgrade());
            assert!(upgrade.await.is_none());
            reader.release().await.expect("releases");
            updates.settle().await;
            let next = reads.try_acquire(word, Mode::Exclusive).await.expect("tries");
            next.expect("the lock is free").release().await.expect("releases");
        }
    }
    tell::<Dropped>("dslr");
}

/// Who is inside with a lease, and until when by its own clock: beyond that nobody counts.
#[derive(Default)]
struct Inside {
    ledger: Ledger,
    leases: Vec<(u16, EndpointId, Nanos)>,
}

impl Inside {
    fn ends(&mut self, handle: &Handle) {
        let ledger = &mut self.ledger;
        self.leases.retain(|&(who, id, expires)| {
            let lasts = handle.clock(id) < expires;
            if !lasts {
                ledger.leave(who);
            }
            lasts
        });
    }

    fn leaves(&mut self, who: u16) {
        self.leases.retain(|&(other, ..)| other != who);
        self.ledger.leave(who);
    }
}

/// A client of a lock with leases, which is stopped now and then for longer than that.
struct Leased<L: Lock<SimEndpoint>> {
    client: Client<SimEndpoint, L>,
    who: u16,
    word: Addr,
    handle: Handle,
    inside: Rc<RefCell<Inside>>,
}

impl<L: Lock<SimEndpoint>> Leased<L> {
    async fn lives(self) {
        let endpoint = self.client.endpoint();
        for _ in 0..20 {
            let chance = endpoint.random();
            match chance % 4 {
                0 => self.holds(Mode::Exclusive).await,
                1 => self.holds(Mode::Shared).await,
                updates => self.updates(updates == 2).await,
            }
            // Where it was not told in time that it lost the lock.
            self.client.settle().await;
        }
    }

    async fn holds(&self, mode: Mode) {
        let access = if mode == Mode::Shared { Access::Shared } else { Access::Exclusive };
        let guard = self.client.acquire(self.word, mode).await.expect("acquires");
        self.enters(access, guard.token(), guard.expires());
        self.stays().await;
        self.parts(guard.release().await);
    }

    async fn updates(&self, upgrades: bool) {
        let guard = self.client.update(self.word).await.expect("acquires");
        let token = guard.token();
        self.enters(Access::Update, token, guard.expires());
        self.stays().await;
        if !upgrades {
            return self.parts(guard.release().await);
        }
        match guard.upgrade().await {
            Ok(guard) => {
                assert_eq!(guard.token(), token);
                self.enters(Access::Exclusive, None, guard.expires());
                self.stays().await;
                self.parts(guard.release().await);
            }
            Err(error) => assert_eq!(error, UpgradeError::Lost),
        }
    }

    fn enters(&self, access: Access, token: Option<Token>, expires: Option<Nanos>) {
        let (inside, endpoint) = (&mut *self.inside.borrow_mut(), self.client.endpoint());
        inside.ends(&self.handle);
        let expires = expires.expect("a lease");
        if endpoint.now() < expires {
            inside.ledger.enter(self.who, access, token.map(Token::get));
            inside.leases.push((self.who, endpoint.id(), expires));
        }
    }

    /// Seldom for longer than the lease.
    async fn stays(&self) {
        let endpoint = self.client.endpoint();
        let most = if endpoint.random().is_multiple_of(8) { 2 * LEASE_NS } else { LEASE_NS / 8 };
        endpoint.sleep(endpoint.random() % most).await;
        self.inside.borrow_mut().leaves(self.who);
    }

    fn parts(&self, released: Result<(), ReleaseError>) {
        assert!(matches!(released, Ok(()) | Err(ReleaseError::Lost)), "{released:?}");
    }
}

/// A client that is told that it holds excludes others until its lease ends, and what was lost is
/// told.
#[test]
fn with_leases_no_pause_lets_two_in() {
    struct Soak(u64);
    impl Visitor<SimEndpoint> for Soak {
        type Output = ();
        fn visit<L: Lock<SimEndpoint>>(self, lock: L) {
            let weakness = Weakness { lost: Ratio::NEVER, ..Weakness::FULL };
            let world = World::new(Config { seed: self.0, weakness, ..Config::default() });
            let (word, inside) = (world.region(world.node(), 64), Rc::<RefCell<Inside>>::default());
            let mut ids = Vec::new();
            for who in 0..6 {
                let client = Client::new(world.endpoint(), lock.clone(), Options::default());
                let (handle, inside, id) =
                    (world.handle(), Rc::clone(&inside), client.endpoint().id());
                ids.push(id);
                world.spawn(id, Leased { client, who, word, handle, inside }.lives());
            }
            stop_now_and_then(&world, ids, LEASE_NS);
            assert_eq!(world.run_until(TIME_NS_MAX), Ended::Finished, "seed {}", self.0);
            let violation = inside.borrow().ledger.violation().map(str::to_owned);
            assert_eq!(violation, None, "seed {}", self.0);
        }
    }
    for seed in 0..200 {
        for options in ["", ":slots-max=4:slots=2"] {
            let spec = format!("dslr:lease={LEASE_NS}{options}");
            registry::visit(&spec, Soak(seed)).expect("registered");
        }
    }
}
