//! Sessions of this machine, each on a thread: on shared memory, or by a server.

use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farlock::session::{RangeGuard, RangeLock};
use farlock::{Mode, RegionOptions, Session};
use farlock_fabric::Nanos;

use super::args::SpreadingArgs;
use super::asked::{Drawn, Phase, STEPS};
use super::course::{Table, use_table};
use super::trace::{Spreading, Trace};
use crate::judge::Judge;
use crate::ranges::Holds;
use crate::scratch::Scratch;
use crate::{clock, face};

/// A session's.
struct Native(RangeLock);

impl Table for Native {
    type Held<'t> = RangeGuard;

    fn now(&self) -> Nanos {
        clock::now()
    }

    async fn acquire(&self, mode: Mode, units: Range<u32>) -> anyhow::Result<RangeGuard> {
        let units = u64::from(units.start)..u64::from(units.end);
        let request = match mode {
            Mode::Shared => self.0.shared(units),
            Mode::Exclusive => self.0.exclusive(units),
        };
        Ok(request.blocking()?)
    }

    async fn release(&self, held: RangeGuard) -> anyhow::Result<()> {
        Ok(held.release().blocking()?)
    }
}

/// What comes of a future that blocks its thread wherever it would wait.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a session's request was asked to block"),
    }
}

/// Threads that use a table, of which ever more is asked for.
pub(super) fn run(args: &SpreadingArgs) -> anyhow::Result<Spreading> {
    let scratch = Scratch::new()?;
    let clients = usize::from(args.clients());
    let words: Vec<AtomicU64> =
        (0..Judge::words(clients as u64)).map(|_| AtomicU64::new(0)).collect();
    let judge = Judge::new(&words, clients as u64);
    let phase = Arc::new(Phase::default());
    let tables = (0..clients).map(|number| table(args, &scratch, number));
    let tables = tables.collect::<anyhow::Result<Vec<_>>>()?;
    let traces: anyhow::Result<Vec<Trace>> = std::thread::scope(|scope| {
        let threads: Vec<_> = tables
            .iter()
            .enumerate()
            .map(|(number, table)| {
                let drawn = Drawn::new(Arc::clone(&phase), args.seed, number);
                let holds = Holds::new(judge, number);
                scope.spawn(move || at_once(use_table(table, drawn, holds)))
            })
            .collect();
        for _ in 0..STEPS {
            std::thread::sleep(Duration::from_nanos(args.phase_ns()));
            phase.is_next();
        }
        let ends = threads.into_iter().map(|thread| thread.join());
        ends.map(|end| end.expect("a client says how it failed")).collect()
    });
    Ok(Spreading::of(traces?))
}

fn table(args: &SpreadingArgs, scratch: &Scratch, number: usize) -> anyhow::Result<Native> {
    let by_server = args.server.as_ref().filter(|_| number % 2 == 1);
    let options = match by_server {
        Some(server) => RegionOptions::of_server(server.clone()),
        None if args.server.is_some() => RegionOptions::for_user(),
        None => face::region_options(scratch.path()),
    };
    Ok(Native(Session::open(&options)?.range("spreading")))
}
