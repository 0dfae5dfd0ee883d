//! A client in a process of its own: one in a storm, who deals itself the strikes that its
//! environment names, or one in a takeover: a holder, who is killed or stops itself, or a waiter,
//! who acquires as often as its standard input says and answers when it has released.
//!
//! A strike falls at the boundary of a verb. A client that kills itself there enters its death in
//! the ledger before it dies.

use std::cell::Cell;
use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, bail};
use farlock_check::client::{AnyClient, Held, block_on, named};
use farlock_fabric::hook::{self, Counted};
use farlock_fabric::shm::Region;
use farlock_fabric::{Addr, Endpoint};
use farlock_locks::{AcquireError, AnyKind, Mode, Options, Token};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::Signal;

use crate::bench::placement;
use crate::child;
use crate::storm::args::region_options;
use crate::storm::ledger::{Ledger, Weather};
use crate::storm::log::{self, Log, Record, What};
use crate::storm::part::{END, Part};
use crate::storm::strike::{Deed, Strike, Struck};
use crate::subject::Hooked;
use crate::takeover::board::{Board, Register};

/// The variable that names the strikes of a client.
pub const STRIKES: &str = "FARLOCK_STORM_STRIKES";

/// Of so many acquisitions in a storm one gives up early.
const GIVE_UP_ONE_IN: u64 = 16;
/// How long that one waits, in nanoseconds.
const GIVE_UP_NS: u64 = 50_000;
/// The longest hold in a storm, in turns of an idle loop.
const HOLD_TURNS_MAX: u64 = 512;
/// A page of memory, in bytes, on any machine of ours.
const PAGE: usize = 4096;

/// What a client in a takeover says, a line each: it holds.
pub(crate) const HELD: &str = "held";
/// It has acquired and released.
pub(crate) const DONE: &str = "done";
/// The register refused its late write.
pub(crate) const REFUSED: &str = "refused";
/// The register took its late write.
pub(crate) const TAKEN: &str = "taken";

/// What a client is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Role {
    /// Acquires and releases in a storm until that is over.
    Contender,
    /// Acquires when told to.
    Waiter,
    /// Holds until it is killed.
    Holder,
    /// Holds, looks at its lease, and is stopped before it writes.
    Sleeper,
}

/// How a client is started.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientArgs {
    /// Where the region is.
    #[arg(long)]
    pub dir: PathBuf,
    /// Who started it.
    #[arg(long)]
    pub parent: i32,
    /// The lock, as the registry names it.
    #[arg(long)]
    pub protocol: String,
    /// What it is there for.
    #[arg(long)]
    pub role: Role,
    /// Its seat.
    #[arg(long)]
    pub seat: usize,
    /// How many seats there are.
    #[arg(long)]
    pub seats: usize,
    /// How many locks there are.
    #[arg(long, default_value_t = 1)]
    pub locks: usize,
    /// Its number in the storm: who it is in the log.
    #[arg(long, default_value_t = 0)]
    pub who: u64,
    /// It says of each hold that it goes on to the end.
    #[arg(long)]
    pub exaggerates: bool,
    /// When it is killed and stopped, as DEED:SIDE:MOMENT:NUMBER each.
    #[arg(long, env = STRIKES, value_delimiter = ',')]
    pub strikes: Vec<Strike>,
    /// How much memory it has touched when it holds, in MiB.
    #[arg(long, default_value_t = 0)]
    pub resident: usize,
    /// The core it runs on.
    #[arg(long)]
    pub core: Option<usize>,
}

/// Takes part in a storm or a takeover.
pub fn run(args: &ClientArgs) -> anyhow::Result<()> {
    let public = if args.role == Role::Contender { "storm" } else { "takeover" };
    child::die_with(args.parent, public)?;
    placement::pin(args.core)?;
    let region = Region::open(&region_options(&args.dir, public))?;
    let (memory, locks, seats) = (region.clone(), args.locks, args.seats);
    let lock = named(&args.protocol)?;
    let units = units_of(lock.kind()).filter(|_| args.role == Role::Contender);
    let log = units.map(|_| Log::open(&args.dir)).transpose()?.map(Rc::new);
    let (own_log, who) = (log.clone(), args.who);
    let endpoint = Struck::new(Counted::new(region.endpoint()?), &args.strikes, move |strike| {
        deal(&Ledger::new(memory.words(), locks, seats), strike, own_log.as_deref(), who);
    });
    let id = endpoint.id();
    let options = Options::new(region.incarnation());
    let client = lock.client(endpoint, options);
    if args.role == Role::Contender {
        let ledger = Ledger::new(region.words(), locks, seats);
        ledger.sit_down(args.seat, id);
        let parts = units.zip(log).map(|(units, log)| Parts::new(args, units, log));
        return Contender { args, region: &region, client, ledger, parts }.contend();
    }
    let board = Board::new(region.words(), seats);
    board.ledger().sit_down(args.seat, id);
    let actor = Actor { args, region: &region, client, board };
    match args.role {
        Role::Waiter => actor.wait_when_told(),
        Role::Holder => actor.hold(),
        _ => actor.sleep_through_the_lease(),
    }
}

/// Deals this process a strike, unless the storm is over.
fn deal(ledger: &Ledger<'_>, strike: Strike, log: Option<&Log>, who: u64) {
    if ledger.weather() != Weather::Storm {
        return;
    }
    let signal = match strike.deed {
        Deed::Kill => {
            ledger.dies_at(strike.moment);
            if let Some(log) = log {
                log.add(Record::now(What::Kills, who)).expect("a log of a storm is written to");
            }
            Signal::KILL
        }
        Deed::Stop => Signal::STOP,
    };
    // The only thread is struck before the call returns.
    rustix::process::kill_process(rustix::process::getpid(), signal)
        .expect("a process may signal itself");
}

/// A client of any lock, which may be struck.
type Client = Rc<dyn AnyClient<Hooked>>;

/// The word of a lock.
fn word(region: &Region, lock: usize) -> Addr {
    region.heap().0.plus(Ledger::lock_offset(lock))
}

struct Contender<'a> {
    args: &'a ClientArgs,
    region: &'a Region,
    client: Client,
    ledger: Ledger<'a>,
    /// Of a lock that is had in parts.
    parts: Option<Parts>,
}

impl Contender<'_> {
    fn contend(&self) -> anyhow::Result<()> {
        let mut late = 0;
        while self.ledger.weather() != Weather::Over {
            self.cycle()?;
            let now = hook::Hook::inner(hook::Hook::inner(self.client.endpoint())).late_wakes();
            if now > late {
                self.ledger.woken_late(self.args.seat, now - late);
                late = now;
            }
        }
        self.settle();
        Ok(())
    }

    /// One acquisition and its release.
    fn cycle(&self) -> anyhow::Result<()> {
        let Self { args, region, client, ledger, parts } = self;
        let endpoint = client.endpoint();
        let chance = endpoint.random();
        let lock = (chance >> 32) as usize % args.locks;
        let mode = if chance & 1 == 0 { Mode::Shared } else { Mode::Exclusive };
        let (word, since) = (word(region, lock), endpoint.now());
        ledger.waits(args.seat, Some(since));
        let hasty = (chance >> 1).is_multiple_of(GIVE_UP_ONE_IN);
        let limit = hasty.then_some(GIVE_UP_NS);
        let part = parts.as_ref().map(|parts| parts.draw(lock, chance));
        let acquiring = match (&part, limit) {
            (Some(part), _) => client.acquire_part(word, mode, units(*part), limit),
            (None, Some(nanos)) => client.acquire_within(word, mode, nanos),
            (None, None) => client.acquire(word, mode),
        };
        let guard = match block_on(&**client, acquiring) {
            Ok(guard) => guard,
            Err(AcquireError::TimedOut) => {
                ledger.waits(args.seat, None);
                self.settle();
                return Ok(());
            }
            Err(error) => return Err(error).context("acquiring"),
        };
        let (waited, token) = (endpoint.now() - since, guard.fabric_token());
        let (alive, mode) = (|who| region.is_alive(who), guard.mode());
        match part.zip(parts.as_ref()) {
            None => ledger.enter(args.seat, lock, mode, token, waited, alive),
            Some((part, parts)) => {
                parts.enter(part, mode, token)?;
                ledger.granted(args.seat, waited);
            }
        }
        endpoint.holding(|| {
            for _ in 0..(chance >> 8) % HOLD_TURNS_MAX {
                std::hint::spin_loop();
            }
        });
        match parts {
            None => ledger.leave(args.seat),
            Some(parts) => parts.leave()?,
        }
        ledger.waits(args.seat, None);
        block_on(&**client, guard.release()).context("releasing")
    }

    fn settle(&self) {
        block_on(&*self.client, std::future::poll_fn(|cx| self.client.poll_settle(cx)));
    }
}

/// How a client has parts of locks, and says so in the log.
struct Parts {
    who: u64,
    exaggerates: bool,
    units: u64,
    log: Rc<Log>,
    /// What it holds, or held last.
    last: Cell<Record>,
}

impl Parts {
    fn new(args: &ClientArgs, units: u64, log: Rc<Log>) -> Self {
        let ClientArgs { who, exaggerates, .. } = *args;
        let last = Cell::new(Record::now(What::Enters, who));
        Self { who, exaggerates, units, log, last }
    }

    fn draw(&self, lock: usize, chance: u64) -> Part {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(chance);
        Part::draw(lock as u64, self.units, &mut chance)
    }

    fn enter(&self, part: Part, mode: Mode, token: Option<Token>) -> io::Result<()> {
        let end = if self.exaggerates { END } else { part.end };
        let record = Record {
            op: self.last.get().op + 1,
            part: Part { end, ..part },
            alone: mode == Mode::Exclusive,
            token: token.map_or(0, Token::get),
            ..Record::now(What::Enters, self.who)
        };
        self.last.set(record);
        self.log.add(record)
    }

    fn leave(&self) -> io::Result<()> {
        self.log.add(Record { what: What::Leaves, time: log::now(), ..self.last.get() })
    }
}

/// How many units a lock has that is had in parts.
pub(crate) fn units_of(kind: &dyn AnyKind) -> Option<u64> {
    kind.units().filter(|_| !kind.promises().proof.in_parts.is_empty())
}

/// The same for a lock's client; the last unit stands for all that come after.
fn units(part: Part) -> Range<u32> {
    let bounded = |at: u64| u32::try_from(at).unwrap_or(u32::MAX);
    bounded(part.start)..bounded(part.end)
}

struct Actor<'a> {
    args: &'a ClientArgs,
    region: &'a Region,
    client: Client,
    board: Board<'a>,
}

impl Actor<'_> {
    fn acquire(&self) -> anyhow::Result<Held<'_>> {
        let (seat, board, ledger) = (self.args.seat, self.board, self.board.ledger());
        board.asks(seat);
        let acquire = self.client.acquire(word(self.region, 0), Mode::Exclusive);
        let guard = block_on(&*self.client, acquire).context("acquiring")?;
        board.granted(seat, self.client.endpoint().now(), guard.expires());
        let alive = |who| self.region.is_alive(who);
        ledger.enter(seat, 0, guard.mode(), guard.fabric_token(), 0, alive);
        Ok(guard)
    }

    fn wait_when_told(&self) -> anyhow::Result<()> {
        for line in std::io::stdin().lock().lines() {
            line?;
            let guard = self.acquire()?;
            if let Some(token) = guard.fabric_token() {
                for register in [Register::Fenced, Register::Unfenced] {
                    self.board.write(register, token);
                }
            }
            self.board.ledger().leave(self.args.seat);
            block_on(&*self.client, guard.release()).context("releasing")?;
            say(DONE)?;
        }
        Ok(())
    }

    fn hold(&self) -> anyhow::Result<()> {
        let mut memory = vec![0_u8; self.args.resident << 20];
        memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
        let _guard = self.acquire()?;
        say(HELD)?;
        // Until it is killed.
        std::io::stdin().lock().read_line(&mut String::new())?;
        black_box(memory);
        bail!("a holder is killed before its standard input ends")
    }

    /// What a careful holder can do wrong: it looks whether its lease lasts, and is stopped between
    /// that and the write.
    fn sleep_through_the_lease(&self) -> anyhow::Result<()> {
        let guard = self.acquire()?;
        let token = guard.fabric_token().context("this lock has no tokens")?;
        let ends = guard.expires().context("this lock has no leases: a stopped client keeps it")?;
        if self.client.endpoint().now() >= ends {
            bail!("the lease ended before it began");
        }
        // From here on it holds nothing that anybody need respect.
        self.board.ledger().leave(self.args.seat);
        say(HELD)?;
        rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)?;
        let taken = self.board.write(Register::Fenced, token);
        self.board.write(Register::Unfenced, token);
        // Late, too: whatever it says, it must not disturb the present holder.
        let _ = block_on(&*self.client, guard.release());
        say(if taken { TAKEN } else { REFUSED })
    }
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
