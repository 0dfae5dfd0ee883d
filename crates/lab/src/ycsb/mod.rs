//! `farlock-lab ycsb`: the key-value store under the workloads of YCSB and of CIDER's paper, in the
//! simulator.
//!
//! The machines are those of a testbed, and seconds are virtual. Clients of one compute node are
//! tasks of one endpoint. Keys are drawn by Zipf's law, hottest first: a pointer array has them in
//! the order of their heat, locks and buckets by their hashes, and a tree by their bytes, lowest
//! first, on the memory node that the hash says: a scan asks all nodes at once. All records are
//! there before the measured time begins, which a warm-up precedes; where clients scan each scan is
//! judged: it has every record up to its last, in order.

mod cluster;
mod course;
mod ledger;
mod row;
mod spec;
mod turns;

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Context, ensure};
use farlock_kv::index::{PointerArray, Race, Smart};
use farlock_sim::Ended;

use crate::provenance::Provenance;
use crate::report::show;
use crate::testbed::Testbed;
use crate::workload::Workload;
use cluster::{Cluster, Local, Size, Stores};
use course::{Course, Done, Scanned};
use row::Counted;
pub use row::{Row, Verbs};
pub use spec::{IndexKind, Mix, Setting, Sync, YcsbArgs};
use turns::endpoint_of;

/// The most records where clients scan: all of them are there at the beginning.
const SCANNED_MAX: u64 = 1_000_000;
/// How long the world goes on between two looks at how much is done, in virtual nanoseconds.
const LOOK_NS: u64 = 20_000;
/// After so many looks nothing more is expected.
const LOOKS_MAX: u32 = 1_000_000;

/// Measures, and prints a row.
///
/// # Errors
/// An operation failed, or the world stood still, or reads were wrong.
pub fn run(args: &YcsbArgs, origin: &Provenance) -> anyhow::Result<()> {
    let row = measure(args)?;
    show(origin, args.json, std::slice::from_ref(&row), row::table)?;
    ensure!(row.violations == 0, "{} reads or sums were wrong", row.violations);
    Ok(())
}

/// Measures.
///
/// # Errors
/// An operation failed, or the world stood still.
pub fn measure(args: &YcsbArgs) -> anyhow::Result<Row> {
    let testbed = Testbed::named(&args.testbed)?;
    if args.workload == Mix::E {
        ensure!(args.index == IndexKind::Smart, "only a tree has its keys in order");
        ensure!(args.records <= SCANNED_MAX, "all of at most {SCANNED_MAX} records are put there");
    }
    let nodes = u64::from(testbed.nodes().context("the testbed says nothing of memory nodes")?);
    match args.index {
        IndexKind::PointerArray => with_index(args, &testbed, PointerArray::new(args.records)),
        IndexKind::Race => {
            // A node has a few more than its share.
            let each = args.records / nodes + args.records / nodes / 16 + 16;
            with_index(args, &testbed, Race::for_keys(each))
        }
        IndexKind::Smart => with_index(args, &testbed, Smart::new()),
    }
}

fn with_index<I: Scanned>(args: &YcsbArgs, testbed: &Testbed, index: I) -> anyhow::Result<Row> {
    let warm_up = args.warm_up.unwrap_or(args.operations / 2);
    let nodes = args.nodes();
    let cluster = Cluster::new(
        testbed,
        args.seed,
        index,
        &Size {
            nodes,
            clients_each: args.clients.div_ceil(nodes),
            records: args.records,
            // All that is drawn, and what is drawn until the last look.
            asked_max: 2 * (warm_up + args.operations) + 1_000_000,
            value_bytes: args.value_bytes,
        },
    )?;
    let done: Rc<RefCell<Done>> = Rc::default();
    let course = Course {
        pairs: Rc::clone(&cluster.pairs),
        done: Rc::clone(&done),
        mix: args.workload,
        value_bytes: args.value_bytes,
        compute_ns: testbed.client("compute_ns").unwrap_or(0),
        inserted: Rc::default(),
    };
    if args.workload == Mix::E {
        cluster.pairs.borrow_mut().ask_all()?;
    }
    let stores = begin(args, &cluster, &course)?;
    advance(&cluster, &done, warm_up)?;
    let before = Counted::of(&cluster.world, &stores);
    done.borrow_mut().latency = Default::default();
    advance(&cluster, &done, args.operations)?;
    let after = Counted::of(&cluster.world, &stores);
    let done = done.borrow();
    Ok(Row::new(args, &done, &before, &after))
}

/// All compute nodes begin.
fn begin<I: Scanned>(
    args: &YcsbArgs,
    cluster: &Cluster<I>,
    course: &Course<I>,
) -> anyhow::Result<Vec<Stores<I>>> {
    let ask = Workload {
        locks: args.records,
        dist: args.dist,
        reads: args.workload.reads(),
        seed: args.seed,
        dealt: 1,
        ranges: None,
    };
    let nodes = args.nodes();
    let local = Local { combines: !args.no_local_combining, delegates: args.read_delegation };
    let open = |number| cluster.node(number, args.plan(), local);
    let all = (0..nodes).map(open).collect::<anyhow::Result<Vec<_>>>()?;
    // Which peers are dead need not be asked of any peer.
    cluster.world.introduce();
    for (number, stores) in all.iter().enumerate() {
        let clients = (number..args.clients.into()).step_by(nodes.into());
        let draws = clients.map(|client| ask.draws(client)).collect();
        let id = farlock_fabric::Endpoint::id(endpoint_of(stores[0].scheme()));
        let stores = stores.iter().map(Rc::clone).collect();
        cluster.world.spawn(id, course::node(course.clone(), stores, draws));
    }
    Ok(all)
}

/// Lets so many operations be done.
fn advance<I>(cluster: &Cluster<I>, done: &RefCell<Done>, operations: u64) -> anyhow::Result<()> {
    let begun = done.borrow().latency.count();
    for _ in 0..LOOKS_MAX {
        let ended = cluster.world.run_until(cluster.world.now() + LOOK_NS);
        course::check(done)?;
        ensure!(!matches!(ended, Ended::Finished), "no client is left");
        if done.borrow().latency.count() - begun >= operations {
            return Ok(());
        }
    }
    anyhow::bail!("the world turns, and nothing is done")
}

#[cfg(test)]
mod tests;
