//! A client in a takeover, in a process of its own: a holder, who is killed or stops itself, or a
//! waiter, who acquires as often as its standard input says and answers when it has released.

use std::hint::black_box;
use std::io::{BufRead, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use farlock_fabric::Endpoint;
use farlock_fabric::shm::{Region, ShmEndpoint};
use farlock_locks::registry::{self, Visitor};
use farlock_locks::{Client, Guard, Lock, Mode, Options};
use rustix::process::Signal;

use super::board::{Board, Register};

use crate::bench::placement;
use crate::child;
use crate::storm::{ledger::Ledger, region_options};

/// What a client says, a line each.
pub(super) const HELD: &str = "held";
/// It has acquired and released.
pub(super) const DONE: &str = "done";
/// The register refused its late write.
pub(super) const REFUSED: &str = "refused";
/// The register took its late write.
pub(super) const TAKEN: &str = "taken";

/// A page of memory, in bytes, on any machine of ours.
const PAGE: usize = 4096;

/// What a client is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Role {
    /// Acquires when told to.
    Waiter,
    /// Holds until it is killed.
    Holder,
    /// Holds, looks at its lease, and is stopped before it writes.
    Sleeper,
}

/// How a client is started.
#[derive(Clone, Debug, clap::Args)]
pub struct TakeoverClientArgs {
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
    /// How much memory it has touched when it holds, in MiB.
    #[arg(long)]
    pub resident: usize,
    /// The core it runs on.
    #[arg(long)]
    pub core: Option<usize>,
}

/// Takes part in a takeover.
pub fn run(args: &TakeoverClientArgs) -> anyhow::Result<()> {
    child::die_with(args.parent, "takeover")?;
    placement::pin(args.core)?;
    let region = Region::open(&region_options(&args.dir, "takeover"))?;
    let endpoint = region.endpoint()?;
    registry::visit(&args.protocol, Actor { args, region, endpoint })?
}

struct Actor<'a> {
    args: &'a TakeoverClientArgs,
    region: Region,
    endpoint: ShmEndpoint,
}

impl Visitor<ShmEndpoint> for Actor<'_> {
    type Output = anyhow::Result<()>;

    fn visit<L: Lock<ShmEndpoint>>(self, lock: L) -> anyhow::Result<()> {
        let Self { args, region, endpoint } = self;
        let board = Board::new(region.words(), args.seats);
        board.ledger().sit_down(args.seat, endpoint.id());
        let client = Client::new(endpoint, lock, Options::new(region.incarnation()));
        let scene = Scene { args, region: &region, client: &client, board };
        match args.role {
            Role::Waiter => scene.wait_when_told(),
            Role::Holder => scene.hold(),
            Role::Sleeper => scene.sleep_through_the_lease(),
        }
    }
}

struct Scene<'a, L: Lock<ShmEndpoint>> {
    args: &'a TakeoverClientArgs,
    region: &'a Region,
    client: &'a Client<ShmEndpoint, L>,
    board: Board<'a>,
}

impl<'a, L: Lock<ShmEndpoint>> Scene<'a, L> {
    fn acquire(&self) -> anyhow::Result<Guard<'a, ShmEndpoint, L>> {
        let (seat, board, ledger) = (self.args.seat, self.board, self.board.ledger());
        board.asks(seat);
        let word = self.region.heap().0.plus(Ledger::lock_offset(0));
        let guard = self.client.lock(word, Mode::Exclusive).context("acquiring")?;
        board.granted(seat, self.client.endpoint().now(), guard.expires());
        let alive = |who| self.region.is_alive(who);
        ledger.enter(seat, 0, guard.mode(), guard.token(), 0, alive);
        Ok(guard)
    }

    fn wait_when_told(&self) -> anyhow::Result<()> {
        for line in std::io::stdin().lock().lines() {
            line?;
            let guard = self.acquire()?;
            if let Some(token) = guard.token() {
                for register in [Register::Fenced, Register::Unfenced] {
                    self.board.write(register, token);
                }
            }
            self.board.ledger().leave(self.args.seat);
            guard.unlock().context("releasing")?;
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
        let token = guard.token().context("this lock has no tokens")?;
        let ends = guard.expires().context("this lock has no leases: who is stopped keeps it")?;
        if self.client.endpoint().now() >= ends {
            bail!("the lease ended before it began");
        }
        // From here on it holds nothing that anybody need respect.
        self.board.ledger().leave(self.args.seat);
        say(HELD)?;
        rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)?;
        let taken = self.board.write(Register::Fenced, token);
        self.board.write(Register::Unfenced, token);
        // Late, too: whatever it says, it must not disturb who holds now.
        let _ = guard.unlock();
        say(if taken { TAKEN } else { REFUSED })
    }
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
