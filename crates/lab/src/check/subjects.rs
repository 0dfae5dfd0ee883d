//! The subjects of the checker: every lock of the registry, every exhibit of the museum.

use anyhow::Context;
use farlock_fabric::WideAtomics;
use farlock_locks::RecordLock;
use farlock_locks::museum::exhibits::{self, Claim, EXHIBITS, Exhibit, ExhibitVisitor};
use farlock_locks::registry::{self, RECORD_LOCKS, Visitor};

use farlock_sim::check::Register;

use super::order::Order;
use super::points::Watched;
use super::trial::{Player, Terms};

/// What an option of a lock must be so that waiting for the dead takes few events: ShiftLock trusts
/// readers for 30 ms, and looks at them as often as its polling interval says.
const PATIENT: &[(&str, &str)] =
    &[("shiftlock", "poll=15000000"), ("dslr", "omega=2500000"), ("dslr-64", "omega=2500000")];

/// Names of all locks, the canary last.
pub fn all() -> Vec<String> {
    let names = RECORD_LOCKS.iter().map(|lock| lock.name);
    let (canary, locks): (Vec<_>, Vec<_>) = names.partition(|&name| name == "none");
    let mut all: Vec<String> = locks.into_iter().map(str::to_owned).collect();
    all.extend(["shiftlock:n=1", "shiftlock:bypass=1", "dslr-64:max=3"].map(str::to_owned));
    all.extend(canary.into_iter().map(str::to_owned));
    all
}

/// An exhibit that is no lock: what is behind one, and does not look at tokens.
pub const UNFENCED: Exhibit = Exhibit {
    name: "unfenced",
    story: "a register outside takes late writes of former holders",
    settles: true,
    repairs: true,
    order: Claim::Nothing,
};

/// Every exhibit.
pub fn exhibits() -> impl Iterator<Item = &'static Exhibit> {
    EXHIBITS.iter().chain([&UNFENCED])
}

/// Before the name of an exhibit.
pub const MUSEUM: &str = "museum:";

/// A player of this subject.
pub fn player(subject: &str) -> anyhow::Result<Player> {
    if let Some(name) = subject.strip_prefix(MUSEUM) {
        return exhibit(name);
    }
    let name = subject.split(':').next().unwrap_or(subject);
    let option = PATIENT.iter().find(|(lock, _)| *lock == name);
    let spec = option.map_or(subject.to_owned(), |(_, option)| format!("{subject}:{option}"));
    Ok(registry::visit(
        &spec,
        MakePlayer { settles: true, order: None, register: Register::FENCED },
    )?)
}

fn exhibit(name: &str) -> anyhow::Result<Player> {
    if name == UNFENCED.name {
        let maker = MakePlayer { settles: true, order: None, register: Register::UNFENCED };
        return Ok(registry::visit("mcs", maker)?);
    }
    let exhibit = EXHIBITS.iter().find(|exhibit| exhibit.name == name);
    let exhibit = exhibit.with_context(|| format!("the museum has no exhibit named '{name}'"))?;
    let order = Some(match exhibit.order {
        Claim::Nothing => Order::default(),
        Claim::WritersInOrder => Order { writers: Some(0), readers: None },
        Claim::OneMayPass => Order { writers: Some(1), readers: None },
        Claim::WritersKeepReadersOut => Order { writers: None, readers: Some(u16::MAX) },
    });
    let maker = MakePlayer { settles: exhibit.settles, order, register: Register::FENCED };
    exhibits::visit(name, maker).context("an exhibit that is listed can be visited")
}

struct MakePlayer {
    settles: bool,
    /// The order that the lock is held to; `None`: to that which it promises.
    order: Option<Order>,
    /// The register outside.
    register: Register,
}

impl MakePlayer {
    fn terms<W: WideAtomics, L: RecordLock<W>>(&self, lock: &L) -> Terms {
        let order = self.order.unwrap_or_else(|| Order::promised(lock));
        Terms {
            order,
            settles: self.settles,
            outlives: L::OUTLIVES_CLIENTS,
            register: self.register,
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
