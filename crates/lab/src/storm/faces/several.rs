//! A worker of ranges: threads of one session, of which each may hold several ranges at a time.
//!
//! A holder asks for more with a limit, or at once: otherwise two that want what the
//! other has would wait for ever, as the README says.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use farlock::session::{RangeGuard, RangeLock};
use farlock::{Mode, Session};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::runtime::Runtime;

use super::super::log::{self, Log, Patience, Record, Refusal, What};
use super::super::part::{END, Part};
use super::ask::ask;
use super::draw::{Draw, Offer};
use super::plan::{Taken, is_over, kernel_file, positions, unit};
use super::start::{DROP_ONE_IN, FaceWorkerArgs};
use crate::face;

/// How many ranges a thread asks for before it releases the first, at most.
const HOLDS_MAX: usize = 3;

/// Of those that are to be held beside each other so many in a hundred are asked for together.
const TOGETHER: u32 = 50;

/// One thread.
pub(super) struct Sharer<'a> {
    args: &'a FaceWorkerArgs,
    tables: &'a [RangeLock],
    executor: Runtime,
    log: &'a Log,
    chance: Xoshiro256PlusPlus,
    /// The number of the next operation, and how many threads there are: each has numbers of its
    /// own.
    next: u64,
    threads: u64,
}

/// What is held, and what was said of it.
struct Hold {
    record: Record,
    what: Kept,
}

/// What is held.
enum Kept {
    Farlocks(RangeGuard),
    Kernels(#[expect(dead_code, reason = "closing it gives it back")] File),
    Nothing,
}

/// The tables of a session.
pub(super) fn tables(session: &Session, count: u64) -> Vec<RangeLock> {
    (0..count).map(|table| session.range(face::name(table)).in_units_of(unit(table))).collect()
}

/// So many ranges that a session writes down what it holds beside them.
const BALLAST: u64 = 80;

/// As many processes have ballast of their own; of more, some have that of one that has died.
const BALLASTED: u64 = 64;

/// Ranges of a table where nobody asks for anything else, to be held until the process dies: those
/// that are free, or of a process that has died.
pub(super) fn ballast(session: &Session, who: u64) -> Vec<RangeGuard> {
    let table = session.range("ballast");
    let own = (0..BALLAST).map(|number| 2 * (who % BALLASTED * BALLAST + number));
    own.filter_map(|start| table.exclusive(start..start + 1).at_once().blocking().ok()).collect()
}

impl<'a> Sharer<'a> {
    pub(super) fn new(
        args: &'a FaceWorkerArgs,
        (tables, log): (&'a [RangeLock], &'a Log),
        (thread, threads): (u64, u64),
        chance: Xoshiro256PlusPlus,
    ) -> io::Result<Self> {
        let executor = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok(Self { args, tables, executor, log, chance, next: thread, threads })
    }

    pub(super) fn work(&mut self) -> anyhow::Result<()> {
        let offer = Offer { locks: self.args.locks, ranges: true };
        while !is_over(&self.args.dir) {
            let first = Draw::of_session(offer, &mut self.chance);
            let more = self.chance.random_range(0..HOLDS_MAX);
            let beside = (0..more).map(|_| Draw::beside(offer, &mut self.chance));
            let draws: Vec<Draw> = [first].into_iter().chain(beside).collect();
            self.act(&draws)?;
            std::thread::sleep(first.think);
        }
        Ok(())
    }

    /// Asks for all of these, holds what it gets, and gives it back in any order.
    pub(super) fn act(&mut self, draws: &[Draw]) -> anyhow::Result<()> {
        let is_farlocks = matches!(self.args.taken, Taken::Farlock);
        if is_farlocks && draws.len() > 1 && self.chance.random_range(0..100) < TOGETHER {
            return self.act_together(draws);
        }
        let mut holds = Vec::new();
        for draw in draws {
            holds.extend(self.acquire(*draw)?);
        }
        if !holds.is_empty() {
            std::thread::sleep(draws[0].hold);
        }
        while !holds.is_empty() {
            let which = self.chance.random_range(0..holds.len());
            self.give_back(holds.swap_remove(which))?;
        }
        Ok(())
    }

    fn acquire(&mut self, draw: Draw) -> anyhow::Result<Option<Hold>> {
        let op = self.next;
        self.next += self.threads;
        let (part, alone) = (self.args.taken.said(draw.part), draw.alone);
        let whose = Record { op, part, alone, ..Record::now(What::Asks, self.args.who) };
        let patience = self.patience(draw);
        self.log.add(Record { more: patience.bits(), time: log::now(), ..whose })?;
        let kept = match self.args.taken {
            Taken::Nothing => Some((Kept::Nothing, 0)),
            Taken::Kernel => self.of_kernel(draw, patience)?.map(|file| (Kept::Kernels(file), 0)),
            Taken::Farlock | Taken::Less => match self.of_farlock(draw) {
                Ok((guard, token)) => Some((Kept::Farlocks(guard), token)),
                Err(refusal) => {
                    self.refused(whose, refusal?)?;
                    return Ok(None);
                }
            },
        };
        let Some((what, token)) = kept else {
            self.refused(whose, Refusal::Busy)?;
            return Ok(None);
        };
        let record = Record { what: What::Enters, token, time: log::now(), ..whose };
        self.log.add(record)?;
        Ok(Some(Hold { record, what }))
    }

    /// Asks for those of one table that do not meet together: all of them are held, or none.
    fn act_together(&mut self, draws: &[Draw]) -> anyhow::Result<()> {
        let first = draws[0];
        let mut apart: Vec<Draw> = Vec::new();
        for draw in draws {
            let part = Part { lock: first.part.lock, ..draw.part };
            if !apart.iter().any(|other| other.part.meets(part)) {
                apart.push(Draw { part, ..*draw });
            }
        }
        // Of a try one part alone need have a holder, and of all it is said that they had one.
        let patience =
            if first.patience == Patience::Try { Patience::Endless } else { first.patience };
        let first = Draw { patience, ..first };
        let group = self.next + 1;
        let mut records = Vec::new();
        for draw in &apart {
            let (op, part, alone) = (self.next, draw.part, draw.alone);
            self.next += self.threads;
            let whose = Record { op, part, alone, ..Record::now(What::Asks, self.args.who) };
            let (more, token) = (patience.bits(), group);
            self.log.add(Record { more, token, time: log::now(), ..whose })?;
            records.push(whose);
        }
        let mode = |draw: &Draw| if draw.alone { Mode::Exclusive } else { Mode::Shared };
        let wanted = apart.iter().map(|draw| (mode(draw), positions(draw.part, draw.inset)));
        let request = self.tables[first.part.lock as usize].together(wanted);
        let guard = match ask(&self.executor, request, first) {
            Ok(guard) => guard,
            Err(refusal) => {
                let refusal = refusal?;
                return Ok(records
                    .into_iter()
                    .try_for_each(|whose| self.refused(whose, refusal))?);
            }
        };
        // That of the last one: no other is granted any of them between.
        let token = guard.token().map_or(0, |token| token.get());
        let all = |what, token, more| {
            records.iter().try_for_each(|record| {
                self.log.add(Record { what, token, more, time: log::now(), ..*record })
            })
        };
        all(What::Enters, token, 0)?;
        std::thread::sleep(first.hold);
        all(What::Leaves, token, 0)?;
        let drops = self.chance.random_range(0..DROP_ONE_IN) == 0;
        match drops {
            true => drop(guard),
            false => guard.release().blocking()?,
        }
        Ok(all(What::Ended, token, drops.into())?)
    }

    /// Clients that take other locks have no limits.
    fn patience(&self, draw: Draw) -> Patience {
        match (self.args.taken.is_farlocks(), draw.patience) {
            (false, Patience::For(_) | Patience::UntilDropped) => Patience::Try,
            (_, patience) => patience,
        }
    }

    fn of_farlock(&self, draw: Draw) -> Result<(RangeGuard, u64), anyhow::Result<Refusal>> {
        let (table, range) =
            (&self.tables[draw.part.lock as usize], positions(draw.part, draw.inset));
        // What has no end, and what is whole, is asked for as such.
        let request = match (range.start, range.end, draw.alone) {
            (0, END, true) => table.exclusive(..),
            (0, END, false) => table.shared(..),
            (start, END, true) => table.exclusive(start..),
            (start, END, false) => table.shared(start..),
            (_, _, true) => table.exclusive(range),
            (_, _, false) => table.shared(range),
        };
        let guard = ask(&self.executor, request, draw)?;
        let token = guard.token().get();
        Ok((guard, token))
    }

    /// The kernel's lock of these bytes, of a file that is opened for it; `None` if that must wait
    /// and may not.
    fn of_kernel(&self, draw: Draw, patience: Patience) -> anyhow::Result<Option<File>> {
        let Part { lock, start, end } = draw.part;
        let path = kernel_file(&self.args.dir, lock);
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let kind = if draw.alone { libc::F_WRLCK } else { libc::F_RDLCK };
        let range = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: start as libc::off_t,
            l_len: if end == END { 0 } else { (end - start) as libc::off_t },
            l_pid: 0,
        };
        loop {
            let asked = match patience {
                Patience::Try => FcntlArg::F_OFD_SETLK(&range),
                _ => FcntlArg::F_OFD_SETLKW(&range),
            };
            match fcntl(file.as_fd(), asked) {
                Ok(_) => return Ok(Some(file)),
                Err(nix::errno::Errno::EAGAIN) => return Ok(None),
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn refused(&self, whose: Record, why: Refusal) -> io::Result<()> {
        let more = why as u64;
        self.log.add(Record { what: What::Refused, more, time: log::now(), ..whose })
    }

    fn give_back(&mut self, hold: Hold) -> anyhow::Result<()> {
        let Hold { record, what } = hold;
        let at = |what, more| Record { what, more, time: log::now(), ..record };
        self.log.add(at(What::Leaves, 0))?;
        let drops = self.chance.random_range(0..DROP_ONE_IN) == 0;
        match what {
            Kept::Farlocks(guard) if !drops => guard.release().blocking()?,
            kept => drop(kept),
        }
        Ok(self.log.add(at(What::Ended, drops.into()))?)
    }
}
