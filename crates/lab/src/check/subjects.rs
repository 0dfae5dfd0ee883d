//! The subjects of the checker: every lock of the registry, every exhibit of the museum.

use farlock_locks::RecordLock;
use farlock_locks::registry::{self, RECORD_LOCKS, SpecError, Visitor};
use farlock_sim::SimEndpoint;

use super::trial::{Player, Terms};

/// What an option of a lock must be so that waiting for the dead takes few events: ShiftLock trusts
/// readers for 30 ms, and looks at them as often as its polling interval says.
const PATIENT: &[(&str, &str)] = &[("shiftlock", "poll=15000000")];

/// Names of all locks, the canary last.
pub fn all() -> Vec<String> {
    let names = RECORD_LOCKS.iter().map(|lock| lock.name);
    let (canary, locks): (Vec<_>, Vec<_>) = names.partition(|&name| name == "none");
    let mut all: Vec<String> = locks.into_iter().map(str::to_owned).collect();
    all.push("shiftlock:n=1".to_owned());
    all.extend(canary.into_iter().map(str::to_owned));
    all
}

/// A player of this subject.
pub fn player(subject: &str) -> Result<Player, SpecError> {
    let name = subject.split(':').next().unwrap_or(subject);
    let fifo = matches!(name, "mcs" | "shiftlock");
    let option = PATIENT.iter().find(|(lock, _)| *lock == name);
    let spec = option.map_or(subject.to_owned(), |(_, option)| format!("{subject}:{option}"));
    registry::visit(&spec, MakePlayer(Terms { fifo, settles: true }))
}

struct MakePlayer(Terms);

impl Visitor<SimEndpoint> for MakePlayer {
    type Output = Player;

    fn visit<L: RecordLock<SimEndpoint>>(self, lock: L) -> Player {
        Player::new(lock, self.0, |endpoint| endpoint)
    }
}
