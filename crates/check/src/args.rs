//! What is asked of the checker.

use std::str::FromStr;

use anyhow::ensure;

use crate::hunt::{Budget, Mix};

use crate::scenario::{ACQUISITIONS_MAX, CLIENTS_MAX, LOCKS_MAX, Scenario, TASKS_MAX};
use crate::tune::To;
use crate::wish::Wish;

/// How locks are checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Mode {
    /// Uniformly random schedules of random scenarios.
    Random,
    /// Schedules with few preemptions at random places, depths 2 to 6.
    Pct,
    /// Both, mixed as finds planted bugs in locks of that kind.
    Mixed,
    /// Every schedule of one scenario, readers and writers mixed.
    Exhaustive,
    /// Every verb of every role is a death, with each of its three ends.
    Crash,
    /// Every exhibit of the museum, which must be found.
    Museum,
}

impl Mode {
    /// Whether scenarios and their schedules are drawn.
    pub(crate) fn samples(self) -> bool {
        matches!(self, Self::Random | Self::Pct | Self::Mixed)
    }

    /// Which schedules those are.
    pub(crate) fn mix(self) -> Mix {
        match self {
            Self::Random => Mix::Random,
            Self::Pct => Mix::Pct,
            _ => Mix::Standard,
        }
    }
}

/// An argument, or all that is wrong with it: clap shows an error without its causes.
pub(crate) fn parsed<T: FromStr<Err = anyhow::Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: anyhow::Error| format!("{error:#}"))
}

/// How tries want a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Tried {
    /// As other acquisitions: some shared, some alone.
    Mixed,
    /// All shared.
    Shared,
    /// Those of all clients are tries, not only the last one's.
    All,
}

/// What to check.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Status 0: checked, and nobody objected; 1: a judge objected; 3: something was \
                        not checked."
)]
pub struct CheckArgs {
    /// The lock, as the registry names it, or `all`.
    #[arg(long, default_value = "all")]
    pub protocol: String,
    /// A lock to leave out of `all`; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub but: Vec<String>,
    /// How.
    #[arg(long, value_enum, default_value = "pct")]
    pub mode: Mode,
    /// How many clients; where nothing is said, 4 in modes `pct` and `random`, and 3 in the others.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=CLIENTS_MAX as i64))]
    pub clients: Option<u16>,
    /// How many acquisitions of each.
    #[arg(long, default_value_t = 2,
          value_parser = clap::value_parser!(u16).range(1..=ACQUISITIONS_MAX as i64))]
    pub acquisitions: u16,
    /// How many locks there are. A client that holds one may acquire the next as well: in mode
    /// `exhaustive` always, in modes that draw scenarios now and then.
    #[arg(
        long,
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=LOCKS_MAX as i64)
    )]
    pub locks: u16,
    /// Of a lock that is had in parts: the units that the first client wants, those that the second
    /// one wants, and so on, as `0-64,0-1`: from the first to the one behind the last. There are as
    /// many clients as ranges. As `0-1+4-5` a client wants others while it holds the first ones, as
    /// `0-1++4-5` as behind these, which it keeps until then; `0-1s` are shared.
    #[arg(long, value_name = "UNITS", value_delimiter = ',', value_parser = parsed::<Wish>)]
    pub ranges: Vec<Wish>,
    /// So many clients, one after the other, are tasks at one endpoint, with a slot each: not in
    /// mode `exhaustive`, and not for `local:` locks, which say that themselves.
    #[arg(
        long,
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=TASKS_MAX as i64)
    )]
    pub tasks: u16,
    /// How many clients die: in mode `exhaustive` at any of their verbs, each with every end. Modes
    /// that draw scenarios draw this too.
    #[arg(long, default_value_t = 0)]
    pub crashes: u32,
    /// How often a client gives up: in mode `exhaustive` whenever it waits, for the lock, while it
    /// holds, or for its release to end. Modes that draw scenarios draw this too.
    #[arg(long, default_value_t = 0)]
    pub cancels: u32,
    /// How often a client is stopped: in mode `exhaustive` at any verb, for three leases where
    /// holds end by themselves, else as long as the schedule likes. Modes that draw scenarios draw
    /// this too.
    #[arg(long, default_value_t = 0)]
    pub pauses: u32,
    /// How often a client is stopped until all others have come to an end: in mode `exhaustive` at
    /// any verb and in any wait before it is granted the lock. Modes that draw scenarios draw this
    /// too. For locks that pass over the stopped; others are left out.
    #[arg(long, default_value_t = 0)]
    pub stops: u32,
    /// In mode `exhaustive`: whatever the last client acquires is a try. Modes that draw scenarios
    /// draw this too. For locks whose tries tell the truth; others are left out.
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, default_missing_value = "mixed")]
    pub tries: Option<Tried>,
    /// In mode `exhaustive`: holders stay until nothing else can happen, and then a newcomer tries.
    /// Modes that draw scenarios draw this too. For locks whose tries tell the truth or whose
    /// waiters withdraw; others are left out.
    #[arg(long)]
    pub visits: bool,
    /// In mode `exhaustive`: who gives up lets go of its endpoint, and settles nothing. Modes that
    /// draw scenarios draw this too. For locks whose waiters withdraw; others are left out.
    #[arg(long)]
    pub quits: bool,
    /// How often a completion is lost, so that its client does not know what became of the verb: in
    /// mode `exhaustive` of any verb, which has each of its ends. Modes that draw scenarios draw
    /// this too.
    #[arg(long, default_value_t = 0)]
    pub losses: u32,
    /// How often the memory node restarts with its memory kept: in mode `exhaustive` at any verb.
    /// Modes that draw scenarios draw this too, and memory that is zeroed or of an earlier time.
    #[arg(long, default_value_t = 0)]
    pub restarts: u32,
    /// In mode `exhaustive`: every second client acquires to update, and upgrades its hold where it
    /// is to write. Modes that draw scenarios draw this too, of locks that have such holds.
    #[arg(long)]
    pub updates: bool,
    /// In mode `exhaustive`: whatever is held of a lock that is had in parts is turned into a hold
    /// in the other mode, if it can be, and back. Modes that draw scenarios draw this too, of locks
    /// that convert.
    #[arg(long)]
    pub converts: bool,
    /// In mode `exhaustive`: whatever is held of a lock that is had in parts is held as two parts
    /// of it, of which one is released, and of the other one a part is let go. Modes that draw
    /// scenarios draw this too, of locks that divide.
    #[arg(long)]
    pub divides: bool,
    /// In mode `exhaustive`: the last client changes the lock's parameters instead of its first
    /// acquisitions, as `2:30000,1:15000` to m = 2 and 30 us that owners wait, and then to m = 1
    /// and 15 us. Modes that draw scenarios draw this too, of locks whose parameters may change.
    #[arg(long, value_name = "M:NANOS", value_delimiter = ',', value_parser = parsed::<To>)]
    pub tunes: Vec<To>,
    /// A client that acquires units of a lock while it holds others (`--ranges A-B+C-D`) first
    /// gives up what it has beside those that it wants, and takes no more than it wants.
    #[arg(long)]
    pub refines: bool,
    /// In mode `exhaustive`: who acquires one lock within the hold of another does so in a
    /// transaction, which asks for the first one twice. Modes that draw scenarios draw this too,
    /// where there are several locks.
    #[arg(long)]
    pub transactions: bool,
    /// So many acquisitions before counts in the lock's word wrap; 0: they begin at zero. Modes
    /// that draw scenarios draw this too.
    #[arg(long, default_value_t = 0)]
    pub near_wrap: u16,
    /// Schedules, or seconds as in `60s`, for all locks together. Exploring every schedule ends by
    /// itself; without a budget it takes the time it needs, and mode `crash` ends when each death
    /// has happened in 1,000 schedules.
    #[arg(long)]
    pub budget: Option<Budget>,
    /// In modes `exhaustive` and `crash`: what the budget ends has passed as well. Without this it
    /// ends with status 3.
    #[arg(long)]
    pub partial: bool,
    /// Decides everything.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Prints a line of JSON for each lock.
    #[arg(long)]
    pub json: bool,
}

impl CheckArgs {
    /// How many clients there are.
    pub(crate) fn clients(&self) -> u16 {
        /// Of those that explore everything, and of those that sample.
        const CLIENTS: [u16; 2] = [3, 4];
        let samples = self.mode.samples();
        match self.ranges.len() {
            0 => self.clients.unwrap_or(CLIENTS[usize::from(samples)]),
            ranges => ranges as u16,
        }
    }

    /// What is asked for that its mode does not heed.
    pub(crate) fn unheeded(&self) -> Vec<&'static str> {
        let is_museum = self.mode == Mode::Museum;
        let explored = [
            (self.crashes > 0, "--crashes"),
            (self.cancels > 0, "--cancels"),
            (self.pauses > 0, "--pauses"),
            (self.stops > 0, "--stops"),
            (self.tries.is_some(), "--tries"),
            (self.visits, "--visits"),
            (self.quits, "--quits"),
            (self.losses > 0, "--losses"),
            (self.restarts > 0, "--restarts"),
            (self.near_wrap > 0, "--near-wrap"),
            (self.partial && self.mode != Mode::Crash, "--partial"),
        ];
        let of_locks = [
            (self.clients.is_some(), "--clients"),
            (self.locks > 1, "--locks"),
            (self.tasks > 1, "--tasks"),
            (self.updates, "--updates"),
            (self.converts, "--converts"),
            (self.divides, "--divides"),
            (!self.tunes.is_empty(), "--tunes"),
            (self.refines, "--refines"),
            (self.transactions, "--transactions"),
            (!self.ranges.is_empty(), "--ranges"),
            (!self.but.is_empty(), "--but"),
        ];
        let explored = explored.into_iter().filter(|_| self.mode != Mode::Exhaustive);
        let of_locks = of_locks.into_iter().filter(|_| is_museum);
        explored.chain(of_locks).filter_map(|(asked, what)| asked.then_some(what)).collect()
    }

    /// Refuses what does not go together.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let clients = self.clients();
        ensure!(self.crashes <= clients.into(), "of {clients} clients {} cannot die", self.crashes);
        ensure!(
            self.stops == 0 || self.restarts + self.losses == 0,
            "of who is stopped it must be known what becomes of its verbs"
        );
        ensure!(
            self.locks == 1 && self.tasks == 1 || self.stops == 0 && !self.visits && !self.quits,
            "who is stopped, and who visits, looks at one lock and at clients of one task"
        );
        ensure!(
            !self.transactions || self.locks > 1 && self.tasks == 1,
            "transactions take several locks, and are of clients of one task"
        );
        if !self.ranges.is_empty() {
            let plain = self.clients.is_none() && self.locks == 1 && self.tasks == 1;
            ensure!(plain, "ranges say how many clients there are, and are parts of one lock");
            Scenario::of_ranges(&self.protocol, self.acquisitions, &self.ranges)?;
        }
        ensure!(
            self.tasks == 1 || self.mode.samples(),
            "modes random and pct alone play clients of several tasks"
        );
        Ok(())
    }
}
