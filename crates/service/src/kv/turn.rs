//! How the writers of one key take turns by a server.
//!
//! As long as nobody minds, they take none: each compares, and tries again where another was first.
//! Where many change one key at a time that goes to the same few: the client that has just changed
//! it knows what is there, and needs one round trip for the next change, where those that missed
//! need three. So a client that finds a key contended gets in line for it, and the choice is that
//! of CIDER, by credits (section 4.3). The line is that of a lock of sessions, in the header of the
//! store: it is handed on by the server, a dead holder is found out, and a waiter may leave.
//!
//! Two things CIDER does not have, for there clients are many and alike. An operation that misses
//! gets in line at once, not the next one: the first could miss for as long as others are luckier.
//! And a client that only ever wins looks now and then whether others are in line.
//!
//! Turns decide who tries when, and nothing about what is right. A holder that is stopped, or has
//! lost its lock, delays each of the others until they have no more patience with its line: then
//! they form another one, by the next lock. They try the first again now and then, which may have
//! stood still since they are quicker than the one that has the turn there.
//!
//! A `put` that meets another needs no turn: it counts as done right before that one
//! ([`farlock_kv::Store::absorbing`]). But others that need one would have no chance beside it, so
//! it looks at their line when it meets others, and gets in line where it sees one.
//!
//! In memory of this host no client takes turns: a change takes less than a microsecond there, and
//! to wake a waiter fifty.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;

use farlock_fabric::tcp::Patience;
use farlock_fabric::{Addr, Endpoint as _, Fault, Nanos, Origin, Ticket, Verb};
use farlock_kv::Shape;
use farlock_kv::sync::{CreditRules, Credits, Effect, Ended, Entered, Scheme};
use farlock_locks::{Begun, Closed, Mode, Opened, Options, Seat, within};

use crate::connection::Lane;
use crate::protocol::{LOCK_KIND, Protocol, lock_protocol};

/// So often an operation misses without a turn before it gets in line.
const MISSES_MAX: u32 = 1;

/// So often one misses that has left its line, until it gets in line again.
const MISSES_BETWEEN: u32 = 8;

/// After so many changes of one key in a row, without a turn and without a miss, a client looks
/// whether others stand in line for it: those it wins from, and cannot see. Odd, so that a
/// measurement of each 32nd change does not meet the look each time.
const LUCK_MAX: u32 = 31;

/// Instead of a number of lucky changes: others were seen in line.
const AWAITED: u32 = u32::MAX;

/// Of so many keys luck is remembered.
const LUCK_KEYS: usize = 8;

/// How long a client waits in a line that does not move, and a server for it in all, in
/// nanoseconds; then it gets in another one.
const PATIENCE: Patience = Patience { still: 10_000_000, at_most: 200_000_000 };

/// So many lines a key has, of which the first that moves is taken; where none does an operation
/// goes on without a turn.
const LINES: u64 = 3;

/// How long a client that has left a key's first line takes another one, in nanoseconds, until it
/// waits in the first again; twice as long each time that this one does not move, up to the second.
const AWAY_NS: [Nanos; 2] = [100_000_000, 1_600_000_000];

/// The turns of one client.
pub(super) struct Turns {
    seat: Seat<Lane, Protocol>,
    /// Whether an operation has the seat, or waits by it: a handle has one, and a batch several
    /// operations. The others take no turns.
    is_taken: Cell<bool>,
    is_far: bool,
    shape: Shape,
    credits: RefCell<Credits>,
    /// How many changes in a row were lucky, and of which key: of a few keys, by their hashes.
    luck: [Cell<(u64, u32)>; LUCK_KEYS],
    stuck: Cell<Option<Stuck>>,
}

/// What a client knows of lines that do not move.
#[derive(Clone, Copy)]
struct Stuck {
    /// Of this key.
    hash: u64,
    /// So many of them, from the first on.
    lines: u64,
    /// For how long it leaves the first alone, and until when.
    away_ns: Nanos,
    until: Nanos,
}

/// How an operation tries.
pub(super) struct Turn<'t> {
    hash: u64,
    role: Role<'t>,
}

/// An operation has the seat, until this is dropped.
struct Taken<'t>(&'t Cell<bool>);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

enum Role<'t> {
    /// It stands in no line.
    Optimist,
    /// No line moves.
    Impatient,
    /// It has the lock.
    Holder { has_waited: bool, taken: Taken<'t> },
}

impl Turns {
    /// By the locks in the header of a store.
    pub(super) fn new(lane: Lane, shape: Shape, origin: Origin, is_far: bool) -> Self {
        // First come, first served: a turn is short, and its client awake.
        let kind = Protocol { bypass: 0, ..lock_protocol(is_far) };
        let seat = Seat::new(lane, kind, Options::from(origin));
        let credits = RefCell::new(Credits::new(CreditRules::DEFAULT));
        let (luck, stuck, is_taken) = Default::default();
        Self { seat, is_taken, is_far, shape, credits, luck, stuck }
    }

    /// Takes the seat, unless another operation has it.
    fn take(&self) -> Option<Taken<'_>> {
        (!self.is_taken.replace(true)).then(|| Taken(&self.is_taken))
    }

    /// Whether it is to stand in line for this key.
    async fn is_hot(&self, hash: u64) -> bool {
        if self.credits.borrow_mut().spend(hash) {
            return true;
        }
        let luck = self.luck_of(hash);
        match luck.get() {
            (lucky, count @ LUCK_MAX..) if lucky == hash => {
                luck.set((hash, 0));
                count == AWAITED || self.is_awaited(hash).await.unwrap_or(false)
            }
            _ => false,
        }
    }

    fn luck_of(&self, hash: u64) -> &Cell<(u64, u32)> {
        &self.luck[hash as usize % LUCK_KEYS]
    }

    /// Whether others have a turn at this key, or wait for one, in the line that it would take.
    async fn is_awaited(&self, hash: u64) -> Result<bool, Fault> {
        let line = self.line_of(hash, self.stuck_lines(hash));
        Ok(lock_protocol(true).is_contended(self.word(line).await?))
    }

    /// The lock of a key's line.
    fn line_of(&self, hash: u64, number: u64) -> Addr {
        self.shape.turn(hash.wrapping_add(number))
    }

    async fn word(&self, line: Addr) -> Result<u128, Fault> {
        let lane = self.endpoint();
        lane.verb(Verb::Read { addr: line, words: 2 }).await?;
        let mut words = [0; 2];
        lane.copy_read(0, &mut words);
        Ok(u128::from(words[0]) | u128::from(words[1]) << 64)
    }

    /// How many lines of this key are not to be tried now.
    fn stuck_lines(&self, hash: u64) -> u64 {
        let stuck = self.stuck.get().filter(|stuck| stuck.hash == hash);
        stuck.filter(|stuck| self.endpoint().now() < stuck.until).map_or(0, |stuck| stuck.lines)
    }

    /// A line of this key does not move.
    fn note_stuck(&self, hash: u64, number: u64) {
        let now = self.endpoint().now();
        let [shortest, longest] = AWAY_NS;
        let before = self.stuck.get().filter(|stuck| stuck.hash == hash);
        let stuck = match before {
            Some(before) if number > 0 => Stuck { lines: number + 1, ..before },
            before => {
                let twice = |before: Stuck| (2 * before.away_ns).min(longest);
                let away_ns = before.map_or(shortest, twice);
                Stuck { hash, lines: 1, away_ns, until: now.saturating_add(away_ns) }
            }
        };
        self.stuck.set(Some(stuck));
    }

    async fn line_up<'t>(&'t self, hash: u64, taken: Taken<'t>) -> Result<Role<'t>, Fault> {
        for number in self.stuck_lines(hash)..LINES {
            if let Some(has_waited) = self.line_up_in(self.line_of(hash, number)).await? {
                if number == 0 {
                    self.stuck.set(None);
                }
                return Ok(Role::Holder { has_waited, taken });
            }
            self.note_stuck(hash, number);
        }
        self.stuck.set(None);
        Ok(Role::Impatient)
    }

    /// Waits for a turn in this line, and tells whether it had to. `None`: it does not move.
    async fn line_up_in(&self, line: Addr) -> Result<Option<bool>, Fault> {
        let (lane, begun_at) = (self.endpoint(), self.endpoint().now());
        let begin = || self.seat.begin_open(line, Mode::Exclusive);
        let opened = match lane.patiently(PATIENCE, begin)? {
            Begun::Done(opened) => opened,
            Begun::Posted(ticket) => self.seat.end_open(self.completed(ticket).await)?,
        };
        if opened == Opened::Held {
            return Ok(Some(false));
        }
        let is_granted = match lane.now().saturating_sub(begun_at) < PATIENCE.still {
            true => self.stand_in(line).await?,
            // The server has waited for it.
            false => self.withdraw().await?,
        };
        Ok(is_granted.then_some(true))
    }

    async fn completed(&self, ticket: Ticket) -> Result<(), Fault> {
        poll_fn(|cx| self.endpoint().poll_posted(ticket, cx)).await
    }

    /// Waits where no server does, beside processes of its host. `false`: the line does not move.
    async fn stand_in(&self, line: Addr) -> Result<bool, Fault> {
        let mut turns = None;
        loop {
            // Where it gives up no verb may be on its way by which it gets in line.
            let waits = within(self.endpoint(), PATIENCE.still, self.seat.wait());
            if let Some(waited) = self.endpoint().at_once(waits).await {
                return waited;
            }
            let given = (LOCK_KIND.count)(self.word(line).await?);
            if turns.replace(given) == Some(given) {
                return self.withdraw().await;
            }
        }
    }

    /// Leaves the line. `true`: the lock was granted first.
    async fn withdraw(&self) -> Result<bool, Fault> {
        self.seat.withdraw(true);
        let waited = self.seat.wait().await;
        self.seat.withdraw(false);
        waited
    }

    /// Gives up what an operation that was dropped has left with the seat.
    async fn give_up_left(&self) {
        if self.seat.is_held() || self.seat.is_in_line() {
            let _ = self.give_up().await;
        }
    }

    /// Gives up what the seat has. Returns whether others were seen to wait for that.
    async fn give_up(&self) -> Result<bool, Fault> {
        if self.seat.is_in_line() && !self.withdraw().await? || !self.seat.is_held() {
            return Ok(false);
        }
        if self.seat.close_unasked() {
            return Ok(false);
        }
        let closed = match self.seat.begin_close()? {
            Begun::Done(closed) => closed,
            Begun::Posted(ticket) => self.seat.end_close(self.completed(ticket).await)?,
        };
        if closed == Closed::InHand {
            self.seat.hand_over().await?;
        }
        Ok(closed == Closed::InHand)
    }
}

impl Scheme for Turns {
    type Endpoint = Lane;
    type Turn<'s> = Turn<'s>;

    fn endpoint(&self) -> &Lane {
        self.seat.endpoint()
    }

    async fn enter(&self, hash: u64, effect: Effect) -> Entered<Turn<'_>> {
        let is_fit = self.is_far && !self.seat.is_broken() && effect != Effect::Insert;
        let is_hot = is_fit && self.is_hot(hash).await;
        let Some(taken) = self.take().filter(|_| is_hot) else {
            return Entered::Turn(Turn { hash, role: Role::Optimist });
        };
        self.give_up_left().await;
        // Where the lock fails the operation's own verbs tell why, or need no turn.
        let role = self.line_up(hash, taken).await.unwrap_or(Role::Optimist);
        Entered::Turn(Turn { hash, role })
    }

    async fn missed(&self, _: u32) {}

    async fn missed_in<'s>(&'s self, turn: &mut Self::Turn<'s>, times: u32) {
        let is_late = match turn.role {
            Role::Optimist => times >= MISSES_MAX,
            Role::Impatient => times.is_multiple_of(MISSES_BETWEEN),
            Role::Holder { .. } => false,
        };
        if is_late
            && self.is_far
            && !self.seat.is_broken()
            && let Some(taken) = self.take()
        {
            turn.role = self.line_up(turn.hash, taken).await.unwrap_or(Role::Optimist);
        }
    }

    fn line(&self, hash: u64) -> Option<Addr> {
        let is_fit = self.is_far && !self.seat.is_broken();
        is_fit.then(|| self.line_of(hash, self.stuck_lines(hash)))
    }

    fn is_line(&self, [low, high]: [u64; 2]) -> bool {
        lock_protocol(true).is_contended(u128::from(low) | u128::from(high) << 64)
    }

    async fn leave(&self, turn: Self::Turn<'_>, ended: Ended) {
        let Turn { hash, role } = turn;
        if !self.is_far {
            return;
        }
        match role {
            Role::Optimist => {
                let (lucky, count) = self.luck_of(hash).get();
                let count = if lucky == hash { count.saturating_add(1) } else { 1 };
                self.luck_of(hash).set((hash, if ended.is_awaited { AWAITED } else { count }));
            }
            // The line does not move: better none.
            Role::Impatient => self.credits.borrow_mut().forget(hash),
            Role::Holder { has_waited, taken } => {
                // What fails is repaired by those behind it.
                let is_awaited = self.give_up().await.unwrap_or(false);
                drop(taken);
                match has_waited || is_awaited || ended.misses > 0 {
                    true => self.credits.borrow_mut().raise(hash),
                    false => self.credits.borrow_mut().lower(hash),
                }
            }
        }
    }

    async fn settle(&self) {
        if let Some(_taken) = self.take() {
            self.give_up_left().await;
        }
    }
}
