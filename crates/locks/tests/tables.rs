//! Tables locked whole and by rows, beside each other: every schedule in the small, before a judge
//! that knows who excludes whom.

mod scene;

use farlock_fabric::Endpoint;
use farlock_locks::record::table::TableLock;
use farlock_locks::{Client, Mode, Options};
use farlock_sim::{Config, World};
use scene::{Member, Scene};

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

    fn lock(self) -> TableLock {
        let mut lock = match self {
            Self::S | Self::X => TableLock::whole(),
            Self::Is | Self::Ix => TableLock::rows(),
        };
        // Who waits by the clock looks so seldom that waiting takes few events.
        lock.waiting.omega_ns = 2_500_000;
        lock.looks_max = 1;
        lock
    }

    fn mode(self) -> Mode {
        if matches!(self, Self::S | Self::Is) { Mode::Shared } else { Mode::Exclusive }
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
}

impl scene::Judge for Judge {
    fn leave(&mut self, who: u16) {
        self.inside.retain(|(other, _)| *other != who);
    }

    fn ghost(&self) -> u64 {
        let inside = self.inside.iter().map(|(who, role)| u64::from(*who) << 2 | *role as u64);
        inside.chain(self.tokens).fold(1, |sum, part| sum.wrapping_mul(31).wrapping_add(part))
    }

    fn violation(&self) -> Option<String> {
        None
    }
}

async fn come_and_go(member: Member<TableLock, Judge>, role: Role, rounds: u16) {
    for round in 0..rounds {
        member.begins(round);
        let acquired = member.client.acquire(member.word, role.mode()).await;
        let guard = acquired.expect("the living are granted");
        let token = guard.token().expect("it has tokens").count() + 1;
        member.tells(|judge| judge.enters(member.who, role, token));
        member.uses().await;
        member.leaves();
        guard.release().await.expect("the living release");
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

/// Every mix of so many clients.
fn explore(clients: usize, rounds: u16, deaths: u32) {
    for roles in casts(clients) {
        let role = |who: u16| roles[usize::from(who)];
        let scene = Scene { title: &roles, clients: clients as u16, deaths, word: 0 };
        scene.explore(
            |who| role(who).lock(),
            |member| {
                let role = role(member.who);
                come_and_go(member, role, rounds)
            },
        );
    }
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

/// Readers of the whole table that are never all gone keep out who writes rows, but not for ever.
#[test]
fn a_stream_of_readers_lets_a_writer_of_rows_in() {
    let world = World::new(Config::default());
    let (handle, word) = (world.handle(), world.region(world.node(), 64));
    for _ in 0..3 {
        let reads = Client::new(handle.endpoint(), TableLock::whole(), Options::default());
        world.spawn(reads.endpoint().id(), async move {
            loop {
                let guard = reads.shared(word).await.expect("acquires");
                reads.endpoint().sleep(50_000 + reads.endpoint().random() % 50_000).await;
                guard.release().await.expect("releases");
            }
        });
    }
    let writes = Client::new(handle.endpoint(), TableLock::rows(), Options::default());
    world.block_on(async {
        writes.endpoint().sleep(1_000_000).await;
        for _ in 0..10 {
            let in_time =
                farlock_locks::within(writes.endpoint(), 10_000_000, writes.exclusive(word));
            let guard = in_time.await.expect("not kept out for ever").expect("acquires");
            guard.release().await.expect("releases");
        }
    });
}
