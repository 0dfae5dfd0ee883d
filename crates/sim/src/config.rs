//! What a world is made of.

use farlock_fabric::Nanos;

use crate::fault::Weakness;
use crate::nic::{Machines, Nic};

/// How virtual time and the order of events relate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Events happen when the NIC model says. For measuring and for random exploration.
    Timed,
    /// Any pending event may be next, as the oracle picks; time merely increases. There is no
    /// latency, and a wait on a word lasts until the word differs, so that schedules stay finite.
    Explored,
}

/// What a world is made of. The same values give the same run.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Decides everything random.
    pub seed: u64,
    /// Timed or explored.
    pub mode: Mode,
    /// The NIC of each memory node, and the network.
    pub nic: Nic,
    /// The machines that clients share, where their NICs are a limit.
    pub machines: Option<Machines>,
    /// How weak the fabric is.
    pub weakness: Weakness,
    /// How many endpoints may exist at once: their indices are 1 to this.
    pub endpoints: u16,
    /// Slots of each endpoint, each with a mailbox and a record.
    pub slots_per_endpoint: u8,
    /// Messages a mailbox holds, at least 4.
    pub mailbox_cells: usize,
    /// How often the world looks at a word for a wait that has no interval, in nanoseconds. The
    /// default is ShiftLock's polling interval.
    pub poll_interval_ns: Nanos,
    /// Explored mode: whether the interval of a wait may end while anything else can happen. If
    /// not, time passes only when nothing else can.
    pub hasty: bool,
    /// Explored mode: whether anybody does something because of what a clock shows. If so, the time
    /// is part of the state, and passes in waits and pauses alone.
    pub clocks_decide: bool,
    /// Explored mode: words may be kept as they are for long, or mean something else in time, so
    /// that waits on them end by the clock, if nothing else can happen, as they do in any case from
    /// the moment at which an endpoint crashes or is paused.
    pub words_keep: bool,
    /// Explored mode, where clocks decide: within how many nanoseconds from when it is posted a
    /// verb that adds takes effect, if ever. What adds cannot tell that it comes late, so that a
    /// lock may have to assume a bound; every other verb takes effect at any time.
    pub adds_within_ns: Option<Nanos>,
    /// Explored mode: whether a completion is an event of its own. If not, an endpoint learns of
    /// its verb's end as it takes effect, which hides nothing but what it does without a verb:
    /// looking for mail, and publishing.
    pub slow_completions: bool,
    /// After so many events a run ends, to tell a livelock from progress.
    pub events_max: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            mode: Mode::Timed,
            nic: Nic::default(),
            machines: None,
            weakness: Weakness::default(),
            endpoints: 64,
            slots_per_endpoint: 4,
            mailbox_cells: 4,
            poll_interval_ns: 1_862,
            hasty: true,
            clocks_decide: false,
            words_keep: false,
            adds_within_ns: None,
            slow_completions: false,
            events_max: None,
        }
    }
}
