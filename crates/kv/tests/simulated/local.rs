//! Specification: which of a client's overwrites are done when another one of them is.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use farlock_kv::Scheme;
use farlock_kv::sync::{Effect, Ended, Entered, LocalCombining, LocalTurn};
use farlock_sim::{Config, SimEndpoint, World};

/// A scheme that lets in when it is told to: `true`, as combined.
struct Gate {
    endpoint: SimEndpoint,
    opens: Rc<Cell<Option<bool>>>,
}

impl Scheme for Gate {
    type Endpoint = SimEndpoint;
    type Turn<'s> = ();

    fn endpoint(&self) -> &SimEndpoint {
        &self.endpoint
    }

    async fn enter(&self, _: u64, _: Effect) -> Entered<()> {
        poll_fn(|_| match self.opens.take() {
            Some(true) => Poll::Ready(Entered::Combined),
            Some(false) => Poll::Ready(Entered::Turn(())),
            None => Poll::Pending,
        })
        .await
    }

    async fn missed(&self, _: u32) {}

    async fn leave(&self, _: Self::Turn<'_>, _: Ended) {}

    async fn settle(&self) {}
}

type Local = LocalCombining<Gate>;

/// What a call has come to: its turn, that it is done, or that it waits.
enum Came<'s> {
    Turn(LocalTurn<'s, Gate>),
    Done,
    Waits,
}

fn look<'s>(call: &mut Pin<Box<impl Future<Output = Entered<LocalTurn<'s, Gate>>>>>) -> Came<'s> {
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Entered::Turn(turn)) => Came::Turn(turn),
        Poll::Ready(Entered::Combined) => Came::Done,
        Poll::Pending => Came::Waits,
    }
}

/// Plays with a gate, of which it is said how it opens.
fn at_a_gate(plays: impl AsyncFnOnce(&Local, &Cell<Option<bool>>)) {
    let world = World::new(Config::default());
    let opens = Rc::<Cell<Option<bool>>>::default();
    let gate = Gate { endpoint: world.endpoint(), opens: Rc::clone(&opens) };
    let local = LocalCombining::new(gate, 1_000_000);
    world.block_on(plays(&local, &opens));
}

fn calls(local: &Local) -> Pin<Box<impl Future<Output = Entered<LocalTurn<'_, Gate>>>>> {
    let mut call = Box::pin(local.enter(1, Effect::Overwrite));
    assert!(matches!(look(&mut call), Came::Waits), "the gate is closed");
    call
}

#[test]
fn those_that_come_before_a_turn_begins_are_done_with_it_and_others_are_not() {
    at_a_gate(async |local, opens| {
        let (mut first, mut second) = (calls(local), calls(local));
        opens.set(Some(false));
        let Came::Turn(turn) = look(&mut first) else { panic!("the gate was opened") };
        let mut late = calls(local);
        local.leave(turn, Ended { replaced: true, ..Ended::default() }).await;
        assert!(matches!(look(&mut second), Came::Done));
        assert!(matches!(look(&mut late), Came::Waits), "it leads, and the gate is closed");
        opens.set(Some(false));
        assert!(matches!(look(&mut late), Came::Turn(_)));
        assert_eq!(local.combined(), 1);
    });
}

#[test]
fn a_write_that_was_not_made_does_for_nobody() {
    at_a_gate(async |local, opens| {
        let (mut first, mut second, mut third) = (calls(local), calls(local), calls(local));
        opens.set(Some(false));
        let Came::Turn(turn) = look(&mut first) else { panic!("the gate was opened") };
        local.leave(turn, Ended::default()).await;
        opens.set(Some(false));
        let Came::Turn(turn) = look(&mut second) else { panic!("it leads") };
        drop(turn);
        opens.set(Some(false));
        assert!(matches!(look(&mut third), Came::Turn(_)), "a dropped turn is none");
        assert_eq!(local.combined(), 0);
    });
}

/// The leader counts as right before a write that was made while it waited: maybe before others of
/// its client called.
#[test]
fn a_leader_that_is_combined_takes_those_along_that_came_before_it_entered() {
    at_a_gate(async |local, opens| {
        let (mut first, mut second, mut third) = (calls(local), calls(local), calls(local));
        opens.set(Some(true));
        assert!(matches!(look(&mut first), Came::Done));
        // Both came while the first waited. Now the second leads, and the third came before that.
        assert!(matches!(look(&mut second), Came::Waits));
        assert!(matches!(look(&mut third), Came::Waits));
        opens.set(Some(true));
        assert!(matches!(look(&mut second), Came::Done));
        assert!(matches!(look(&mut third), Came::Done));
        assert_eq!(local.combined(), 1);
    });
}

#[test]
fn a_waiter_that_is_dropped_leads_nobody() {
    at_a_gate(async |local, opens| {
        let (mut first, second, third, mut fourth) =
            (calls(local), calls(local), calls(local), calls(local));
        drop(second);
        opens.set(Some(true));
        assert!(matches!(look(&mut first), Came::Done));
        // The third was told to lead, and has not begun.
        drop(third);
        opens.set(Some(false));
        assert!(matches!(look(&mut fourth), Came::Turn(_)));
    });
}
