//! The subjects of the checker: every lock of the registry, every exhibit of the museum.

use anyhow::Context;
use farlock_fabric::WideAtomics;
use farlock_locks::RecordLock;
use farlock_locks::museum::exhibits::{self, EXHIBITS, ExhibitVisitor};
use farlock_locks::registry::{self, RECORD_LOCKS, Visitor};

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
    all.extend(["shiftlock:n=1", "dslr-64:max=3"].map(str::to_owned));
    all.extend(canary.into_iter().map(str::to_owned));
    all
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
    Ok(registry::visit(&spec, MakePlayer { settles: true, ordered: true })?)
}

fn exhibit(name: &str) -> anyhow::Result<Player> {
    let exhibit = EXHIBITS.iter().find(|exhibit| exhibit.name == name);
    let exhibit = exhibit.with_context(|| format!("the museum has no exhibit named '{name}'"))?;
    let maker = MakePlayer { settles: exhibit.settles, ordered: false };
    exhibits::visit(name, maker).context("an exhibit that is listed can be visited")
}

struct MakePlayer {
    settles: bool,
    /// Whether the lock is held to the order it promises.
    ordered: bool,
}

impl MakePlayer {
    fn terms<W: WideAtomics, L: RecordLock<W>>(&self) -> Terms {
        let fifo = self.ordered && L::FIRST_COME_FIRST_SERVED;
        Terms { fifo, settles: self.settles, outlives: L::OUTLIVES_CLIENTS }
    }
}

impl Visitor<Watched> for MakePlayer {
    type Output = Player;

    fn visit<L: RecordLock<Watched>>(self, lock: L) -> Player {
        Player::new(lock, self.terms::<Watched, L>(), |endpoint| endpoint)
    }
}

impl ExhibitVisitor<Watched> for MakePlayer {
    type Output = Player;

    fn visit<W: WideAtomics, L: RecordLock<W>>(self, lock: L, wrap: fn(Watched) -> W) -> Player {
        Player::new(lock, self.terms::<W, L>(), wrap)
    }
}
