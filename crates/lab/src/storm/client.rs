//! A client in a storm: acquires and releases until it is told to stop, or killed.
//!
//! It deals the strikes that its environment names to itself, at the boundaries of its verbs, and
//! enters its death in the ledger before it dies.

use std::path::PathBuf;

use anyhow::Context;
use farlock_fabric::Endpoint;
use farlock_fabric::hook;
use farlock_fabric::shm::{Region, ShmEndpoint};
use farlock_locks::registry::{self, Visitor};
use farlock_locks::{AcquireError, Client, Lock, Mode, Options};
use rustix::process::Signal;

use super::args::region_options;
use super::ledger::{Ledger, Weather};
use super::strike::{Deed, Strike, Struck};
use crate::child;

/// The variable that names the strikes of a client.
pub const STRIKES: &str = "FARLOCK_STORM_STRIKES";

/// Of so many acquisitions one gives up early.
const GIVE_UP_ONE_IN: u64 = 16;
/// How long that one waits, in nanoseconds.
const GIVE_UP_NS: u64 = 50_000;
/// The longest hold, in turns of an idle loop.
const HOLD_TURNS_MAX: u64 = 512;

/// How a client is started.
#[derive(Clone, Debug, clap::Args)]
pub struct StormClientArgs {
    /// Where the region is.
    #[arg(long)]
    pub dir: PathBuf,
    /// Who started it.
    #[arg(long)]
    pub parent: i32,
    /// The lock, as the registry names it.
    #[arg(long)]
    pub protocol: String,
    /// Its seat in the ledger.
    #[arg(long)]
    pub seat: usize,
    /// How many seats there are.
    #[arg(long)]
    pub seats: usize,
    /// How many locks there are.
    #[arg(long)]
    pub locks: usize,
    /// When it is killed and stopped, as DEED:SIDE:MOMENT:NUMBER each.
    #[arg(long, env = STRIKES, value_delimiter = ',')]
    pub strikes: Vec<Strike>,
}

/// Takes part in a storm.
pub fn run(args: &StormClientArgs) -> anyhow::Result<()> {
    child::die_with(args.parent, "storm")?;
    let region = Region::open(&region_options(&args.dir, "storm"))?;
    let (log, locks, seats) = (region.clone(), args.locks, args.seats);
    let endpoint = Struck::new(region.endpoint()?, &args.strikes, move |strike| {
        deal(&Ledger::new(log.words(), locks, seats), strike);
    });
    let client = StormClient { args, region, endpoint };
    registry::visit(&args.protocol, client)?
}

struct StormClient<'a> {
    args: &'a StormClientArgs,
    region: Region,
    endpoint: Struck<ShmEndpoint>,
}

/// Deals this process a strike, unless the storm is over.
fn deal(ledger: &Ledger<'_>, strike: Strike) {
    if ledger.weather() != Weather::Storm {
        return;
    }
    let signal = match strike.deed {
        Deed::Kill => {
            ledger.dies_at(strike.moment);
            Signal::KILL
        }
        Deed::Stop => Signal::STOP,
    };
    // The only thread is struck before the call returns.
    rustix::process::kill_process(rustix::process::getpid(), signal)
        .expect("a process may signal itself");
}

impl Visitor<Struck<ShmEndpoint>> for StormClient<'_> {
    type Output = anyhow::Result<()>;

    fn visit<L: Lock<Struck<ShmEndpoint>>>(self, lock: L) -> anyhow::Result<()> {
        let Self { args, region, endpoint } = self;
        let ledger = Ledger::new(region.words(), args.locks, args.seats);
        ledger.sit_down(args.seat, endpoint.id());
        let options = Options::new(region.incarnation());
        let client = Client::new(endpoint, lock, options);
        let mut late = 0;
        while ledger.weather() != Weather::Over {
            cycle(args, &region, &client, &ledger)?;
            let now = hook::Hook::inner(client.endpoint()).late_wakes();
            if now > late {
                ledger.woken_late(args.seat, now - late);
                late = now;
            }
        }
        client.block_on(client.settle());
        Ok(())
    }
}

/// One acquisition and its release.
fn cycle<L: Lock<Struck<ShmEndpoint>>>(
    args: &StormClientArgs,
    region: &Region,
    client: &Client<Struck<ShmEndpoint>, L>,
    ledger: &Ledger<'_>,
) -> anyhow::Result<()> {
    let endpoint = client.endpoint();
    let chance = endpoint.random();
    let lock = (chance >> 32) as usize % args.locks;
    let mode = if chance & 1 == 0 { Mode::Shared } else { Mode::Exclusive };
    let word = region.heap().0.plus(Ledger::lock_offset(lock));
    let since = endpoint.now();
    ledger.waits(args.seat, Some(since));
    let guard = if (chance >> 1).is_multiple_of(GIVE_UP_ONE_IN) {
        client.block_on(client.acquire_within(word, mode, GIVE_UP_NS))
    } else {
        client.lock(word, mode)
    };
    let guard = match guard {
        Ok(guard) => guard,
        Err(AcquireError::TimedOut) => {
            ledger.waits(args.seat, None);
            client.block_on(client.settle());
            return Ok(());
        }
        Err(error) => return Err(error).context("acquiring"),
    };
    let waited = endpoint.now() - since;
    let alive = |who| region.is_alive(who);
    ledger.enter(args.seat, lock, guard.mode(), guard.token(), waited, alive);
    endpoint.holding(|| {
        for _ in 0..(chance >> 8) % HOLD_TURNS_MAX {
            std::hint::spin_loop();
        }
    });
    ledger.leave(args.seat);
    ledger.waits(args.seat, None);
    guard.unlock().context("releasing")
}
