//! The processes of a takeover. Only these are signalled, by their ids.

use std::io::{BufRead, BufReader, Write};
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::args::TakeoverArgs;
use super::board::Board;
use crate::bench::placement::core_of;
use crate::child;
use crate::client::Role;

/// A client that says nothing for so long waits for ever.
const STALL: Duration = Duration::from_secs(30);
/// How long a client must have slept to be in line: longer than any of its pauses before it sleeps.
const ASLEEP: Duration = Duration::from_micros(500);

/// A client.
#[derive(Debug)]
pub(super) struct Actor {
    child: Child,
    orders: ChildStdin,
    /// The lines of its standard output.
    says: Receiver<String>,
}

impl Drop for Actor {
    fn drop(&mut self) {
        // Most have ended by themselves; what counts is that none is left.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Actor {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Kills it, and waits until it is gone.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("cannot kill a holder")?;
        self.child.wait().context("cannot await a holder's end")?;
        Ok(())
    }

    /// Waits until it says that.
    pub(super) fn expect(&self, expected: &str) -> anyhow::Result<()> {
        let said = self.hear()?;
        ensure!(said == expected, "a client said '{said}', not '{expected}'");
        Ok(())
    }

    /// What it says next.
    pub(super) fn hear(&self) -> anyhow::Result<String> {
        match self.says.recv_timeout(STALL) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => bail!("a client waits for ever"),
            Err(RecvTimeoutError::Disconnected) => bail!("a client ended before its time"),
        }
    }

    /// Waits until it has stopped itself.
    pub(super) fn await_stop(&self) -> anyhow::Result<()> {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let news = waitid(WaitId::Pid(self.pid()), options)?;
        ensure!(news.is_some_and(|news| news.stopped()), "a holder ended instead of stopping");
        Ok(())
    }

    /// Lets it go on.
    pub(super) fn go_on(&self) -> anyhow::Result<()> {
        Ok(kill_process(self.pid(), Signal::CONT)?)
    }

    /// Waits until it ends by itself.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        let status = self.child.wait().context("cannot await a holder's end")?;
        ensure!(status.success(), "a holder failed: {status}");
        Ok(())
    }

    /// How often it has gone to sleep since it was started: once more for each time it was woken.
    pub(super) fn sleeps(&self) -> anyhow::Result<u64> {
        let status = self.proc("status")?;
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let sleeps = sleeps.context("the system does not count how often a process sleeps")?;
        sleeps.trim().parse().context("a count of sleeps is a number")
    }

    /// Whether it sleeps until something happens.
    fn is_asleep(&self) -> anyhow::Result<bool> {
        let stat = self.proc("stat")?;
        // The state stands behind the name, which is in brackets and may contain any character.
        Ok(stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S')))
    }

    fn proc(&self, file: &str) -> anyhow::Result<String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
    }
}

/// Everybody who waits, from seat 1; holders come and go in seat 0.
#[derive(Debug)]
pub(super) struct Cast<'a> {
    args: &'a TakeoverArgs,
    protocol: &'a str,
    dir: &'a Path,
    /// Those of the seats, in turn; none where the system chooses.
    cores: Vec<usize>,
    waiters: Vec<Actor>,
    /// How often everybody was sent to wait.
    rounds: u64,
}

impl<'a> Cast<'a> {
    /// All waiters, in the region of this directory.
    pub(super) fn assemble(
        args: &'a TakeoverArgs,
        protocol: &'a str,
        dir: &'a Path,
    ) -> anyhow::Result<Self> {
        let cores = args.placement.cores().context("cannot see which cores there are")?;
        let mut cast = Self { args, protocol, dir, cores, waiters: Vec::new(), rounds: 0 };
        for seat in cast.seats() {
            let waiter = cast.start(Role::Waiter, seat)?;
            cast.waiters.push(waiter);
        }
        Ok(cast)
    }

    /// The waiters' seats.
    pub(super) fn seats(&self) -> RangeInclusive<usize> {
        1..=self.args.waiters.into()
    }

    /// A client in this seat.
    pub(super) fn start(&self, role: Role, seat: usize) -> anyhow::Result<Actor> {
        let role = clap::ValueEnum::to_possible_value(&role).expect("no role is hidden");
        let mut command = child::command("client")?;
        if let Some(core) = core_of(&self.cores, seat) {
            command.args(["--core", &core.to_string()]);
        }
        let mut child = command
            .arg("--dir")
            .arg(self.dir)
            .args(["--protocol", self.protocol])
            .args(["--role", role.get_name()])
            .args(["--seat", &seat.to_string()])
            .args(["--seats", &(usize::from(self.args.waiters) + 1).to_string()])
            .args(["--resident", &self.args.resident.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a client")?;
        let orders = child.stdin.take().expect("it is piped");
        let says = child.stdout.take().expect("it is piped");
        let (tells, told) = channel();
        std::thread::spawn(move || {
            // Nobody listens any more when the takeover has ended or failed.
            BufReader::new(says).lines().map_while(Result::ok).all(|line| tells.send(line).is_ok())
        });
        Ok(Actor { child, orders, says: told })
    }

    /// Sends all waiters to wait.
    pub(super) fn order_waiters(&mut self) -> anyhow::Result<()> {
        self.rounds += 1;
        for waiter in &mut self.waiters {
            waiter.orders.write_all(b"wait\n").context("a waiter is gone")?;
        }
        Ok(())
    }

    /// Sends all waiters to wait, and waits until they sleep in line.
    pub(super) fn send_waiters(&mut self, board: &Board<'_>) -> anyhow::Result<()> {
        self.order_waiters()?;
        let begun = Instant::now();
        let mut quiet = 0;
        // Twice in a row: one that only gives way for a moment is not asleep.
        while quiet < 2 {
            ensure!(begun.elapsed() < STALL, "a waiter does not go to sleep: this lock polls");
            std::thread::sleep(ASLEEP);
            let asked = self.seats().all(|seat| board.asked(seat) == self.rounds);
            let mut asleep = asked;
            for waiter in &self.waiters {
                asleep &= waiter.is_asleep()?;
            }
            quiet = if asleep { quiet + 1 } else { 0 };
        }
        Ok(())
    }

    /// How often all waiters together have gone to sleep.
    pub(super) fn sleeps(&self) -> anyhow::Result<u64> {
        self.waiters.iter().map(Actor::sleeps).sum()
    }

    /// Every waiter says that.
    pub(super) fn expect_all(&self, expected: &str) -> anyhow::Result<()> {
        self.waiters.iter().try_for_each(|waiter| waiter.expect(expected))
    }
}
