//! What is asked of a lock in a run.

use farlock_fabric::{Addr, Nanos};
use farlock_locks::Mode;
use farlock_sim::NodeId;
use farlock_sim::check::Register;

use crate::faults::Declares;
use crate::order::Order;
use crate::scenario::Scenario;

/// The memory node, with all there is.
pub(super) const MEMORY: NodeId = NodeId(0);

/// Where schedules are random and clients may die or give up anywhere, one of so many is the one.
pub(super) const ANYWHERE_ONE_IN: u32 = 16;

/// What is asked of a lock besides exclusion, growing tokens and progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The order in which it is granted while nobody dies.
    pub order: Order,
    /// What clients settle of what they gave up.
    pub settles: Settles,
    /// It outlives clients that die.
    pub outlives: bool,
    /// The register outside that exclusive holders write with their tokens.
    pub register: Register,
    /// Clients begin with the incarnation of the memory as it is, not with the first.
    pub looks_at_incarnation: bool,
    /// The order in which it is granted is the same if clients are paused.
    pub order_outlives_pauses: bool,
    /// Messages may lie in the mailboxes of those who have left.
    pub leaves_mail: bool,
    /// How long its holders may hold, if not as long as they like.
    pub lease_ns: Option<Nanos>,
    /// Within how long verbs that add take effect, where exclusion rests on it and clocks go as the
    /// contract says.
    pub adds_within_ns: Option<Nanos>,
    /// How long its clients wait so that others have done something by their clocks, if they do.
    pub waits_out_ns: Option<Nanos>,
    /// Where the parts of its units begin for which the locks of a scenario stand, and where the
    /// last one ends; none if it is had as a whole.
    pub parts: &'static [u32],
    /// By what pauses are measured: the lease, if there is one, or what clients wait out.
    pub pause_ns: Nanos,
    /// Which clients of a scenario are tasks of one.
    pub crew: Crew,
    /// Whether holds to update are drawn.
    pub updates: bool,
    /// Whether conversions of holds are drawn.
    pub converts: bool,
    /// Whether divisions of holds are drawn.
    pub divides: bool,
    /// Whether changes of its parameters are drawn.
    pub tunes: bool,
    /// What it says of tries, withdrawals and stops.
    pub declares: Declares,
    /// What transactions make of the locks that are asked of them.
    pub asks: Asks,
}

impl Terms {
    /// What is asked in this scenario, whose clients may have several tasks each that do not hand
    /// locks on: of them nothing is asked besides exclusion, growing tokens and progress.
    pub(super) fn of(self, scenario: &Scenario) -> Self {
        if scenario.tasks < 2 || self.crew != Crew::ALONE {
            return self;
        }
        let crew = Crew { tasks: scenario.tasks, ..Crew::ALONE };
        let (order, declares) = (Order::default(), Declares::NOTHING);
        let alone = Self { updates: false, converts: false, divides: false, tunes: false, ..self };
        Self { crew, order, declares, ..alone }
    }

    /// Whether clients take several locks in transactions. One whose lease ends may be begun again.
    pub(super) fn transact(&self) -> bool {
        self.crew == Crew::ALONE && self.lease_ns.is_none()
    }

    /// Whether the token of a reader tells that its time is over, too, however late verbs are.
    pub(super) fn readers_tell(&self) -> bool {
        self.adds_within_ns.is_none()
    }
}

/// What a client settles of what it gave up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settles {
    /// All, as it must.
    All,
    /// One slot, and it forgets the others: two exhibits.
    One {
        /// The last one, rather than the first.
        last: bool,
    },
    /// Nothing: another one.
    Nothing,
}

/// Clients of a scenario that act on one endpoint, as its tasks: they live and die together, and
/// hand the lock on among themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crew {
    /// So many, one after the other.
    pub tasks: u16,
    /// How often a hold is handed on, at most.
    pub handovers_max: u32,
    /// Their tokens tell the turns of a hold apart, as they must.
    pub tells_turns: bool,
}

impl Default for Crew {
    fn default() -> Self {
        Self::ALONE
    }
}

impl Crew {
    /// Each client has an endpoint of its own.
    pub const ALONE: Self = Self { tasks: 1, handovers_max: 0, tells_turns: true };

    /// Slots of each endpoint, so that each may hold one lock and await another, or two parts of
    /// what it holds.
    pub(super) fn slots(self, scenario: &Scenario) -> u8 {
        let each = if scenario.nests_holds() { 2 } else { 1 };
        let each = if scenario.divides != 0 { each + 2 } else { each };
        let each = if scenario.refines { each + 1 } else { each };
        self.tasks as u8 * each
    }

    /// The first of those who act together with `who`.
    pub(super) fn first(self, who: u16) -> u16 {
        who / self.tasks * self.tasks
    }
}

/// What a transaction makes of the locks that are asked of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Asks {
    /// It asks for all, as it should.
    #[default]
    ForAll,
    /// Of what is asked for twice it takes the weaker mode: an exhibit.
    ForTheWeaker,
    /// Of what is asked for twice it takes the mode that came first: another one.
    ForTheFirst,
}

impl Asks {
    pub(super) fn made_of(self, mut asked: Vec<(Addr, Mode)>) -> Vec<(Addr, Mode)> {
        match self {
            Self::ForAll => return asked,
            Self::ForTheWeaker => asked.sort(),
            Self::ForTheFirst => asked.sort_by_key(|&(lock, _)| lock),
        }
        asked.dedup_by_key(|&mut (lock, _)| lock);
        asked
    }
}
