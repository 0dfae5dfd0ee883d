//! The suite judged: it passes on the reference model, on the weakest reading of the contract and
//! through every hook, and it fails where a promise is broken.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};

use super::{Stage, atomics, with_line};
use crate::addr::Addr;
use crate::endpoint::{Endpoint, Posted, Ticket};
use crate::error::Fault;
use crate::hook::{Counted, Hook};
use crate::model::{FORBIDDEN, Flaw, ModelEndpoint, World};
use crate::verb::Verb;

/// A world of the reference model, with its endpoints wrapped.
struct Model<W> {
    world: World,
    wrap: W,
    /// An endpoint to pass the time.
    clock: ModelEndpoint,
}

impl<E: Endpoint, W: Fn(ModelEndpoint) -> E> Model<W> {
    fn new(world: World, wrap: W) -> Self {
        let clock = world.endpoint();
        Self { world, wrap, clock }
    }
}

fn bare(world: World) -> Model<impl Fn(ModelEndpoint) -> ModelEndpoint> {
    Model::new(world, |e| e)
}

impl<E: Endpoint, W: Fn(ModelEndpoint) -> E> Stage for Model<W> {
    type Endpoint = E;

    fn endpoint(&mut self) -> E {
        (self.wrap)(self.world.endpoint())
    }

    fn scratch(&mut self, bytes: u64) -> Addr {
        self.world.scratch(bytes)
    }

    fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        crate::endpoint::block_on(&self.clock, future)
    }

    fn end(&self) -> Addr {
        self.world.end()
    }

    fn forbidden(&self) -> Option<Addr> {
        Some(FORBIDDEN)
    }

    fn reset(&mut self) -> bool {
        self.world.reset();
        true
    }
}

mod reference {
    use super::*;
    crate::conformance!(bare(World::new()), narrow masked wide revoking);
}

/// Reads are served as late as the contract allows.
mod weakest {
    use super::*;
    crate::conformance!(bare(World::with(true, None)), narrow masked wide revoking);
}

/// No hook changes what a protocol sees.
mod hooked {
    use super::*;

    crate::conformance!(
        Model::new(World::with(true, None), |e| Counted::new(Counted::new(e))),
        narrow masked wide revoking
    );
}

type Bare = Model<fn(ModelEndpoint) -> ModelEndpoint>;

macro_rules! list {
    (; $($module:ident: $($case:ident $(($with:ident))?)+;)+) => {
        vec![$($((
            concat!(stringify!($module), "::", stringify!($case)),
            (|stage| crate::conformance_tests!(@ stage, $module::$case $($with)?)) as Case,
        )),+),+]
    };
}

type Case = fn(&mut Bare);

fn cases() -> Vec<(&'static str, Case)> {
    let mut all = crate::conformance_cases!(narrow[list]);
    all.extend(crate::conformance_cases!(masked[list]));
    all.extend(crate::conformance_cases!(wide[list]));
    all.extend(crate::conformance_cases!(revoking[list]));
    all
}

/// The first case that notices a flaw.
fn notices(flaw: Flaw) -> Option<&'static str> {
    let fails = |case: Case| {
        let run = || case(&mut Model::new(World::with(false, Some(flaw)), |e| e));
        catch_unwind(AssertUnwindSafe(run)).is_err()
    };
    cases().into_iter().find(|(_, case)| fails(*case)).map(|(name, _)| name)
}

#[test]
fn every_broken_promise_is_noticed() {
    let noticed: Vec<_> = Flaw::ALL.into_iter().map(|flaw| (flaw, notices(flaw))).collect();
    let unnoticed: Vec<_> = noticed.iter().filter(|(_, case)| case.is_none()).collect();
    assert!(unnoticed.is_empty(), "{unnoticed:?}");
    // A flaw is found by cases that speak of it, not by a suite that stumbles at its first step.
    let by: BTreeSet<_> = noticed.iter().map(|(_, case)| case).collect();
    assert!(by.len() >= Flaw::ALL.len() / 2, "{noticed:#?}");
}

#[test]
fn every_case_is_in_the_suite() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/conformance");
    let mut written = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let case = |prefix| {
                let (case, _) = line.strip_prefix(prefix)?.split_once('<')?;
                (!case.contains('(')).then_some(case)
            };
            if let Some(case) = case("pub fn ").or(case("pub async fn ")) {
                written.insert(format!("{module}::{case}"));
            } else if let ("widths", Some(case)) =
                (module.as_str(), case("fn ").or(case("async fn ")))
            {
                written.extend([format!("masked64::{case}"), format!("masked128::{case}")]);
            }
        }
    }
    let listed: BTreeSet<_> = cases().into_iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(written, listed);
    assert!(listed.len() >= 215, "the suite shrinks to {}", listed.len());
}

/// Posts an addition when a caller asks for its completion, and never if none does.
struct Lazy {
    inner: ModelEndpoint,
    held: RefCell<Vec<Verb<'static>>>,
}

impl Hook for Lazy {
    type Inner = ModelEndpoint;

    const COMPLETES_IN_POST: bool = false;

    fn inner(&self) -> &ModelEndpoint {
        &self.inner
    }

    fn post(&self, verb: Verb<'_>) -> Posted {
        let Verb::Faa64 { addr, add } = verb else { return self.inner.post(verb) };
        let mut held = self.held.borrow_mut();
        held.push(Verb::Faa64 { addr, add });
        Posted::Pending(Ticket(held.len() as u64 - 1))
    }

    fn poll_posted(&self, ticket: Ticket, _: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        match self.inner.post(self.held.borrow()[ticket.0 as usize]) {
            Posted::Done(result) => Poll::Ready(result),
            Posted::Pending(_) => unreachable!("the model is done at once"),
        }
    }

    fn abandon(&self, _: Ticket) {}
}

#[test]
fn a_verb_that_waits_to_be_asked_for_is_noticed() {
    let lazy = |inner| Lazy { inner, held: RefCell::default() };
    let abandoned = || {
        with_line(&mut Model::new(World::new(), lazy), atomics::an_abandoned_atomic_takes_effect);
    };
    with_line(&mut Model::new(World::new(), lazy), atomics::an_addition_wraps_around);
    assert!(catch_unwind(AssertUnwindSafe(abandoned)).is_err());
}
