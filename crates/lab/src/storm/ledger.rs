//! The ledger of a storm: shared words in which clients say what they hold.
//!
//! Each client has a seat. It claims a lock in its seat after the lock was granted and before it
//! looks at the others' claims, so of two that overlap at least one sees the other. A claim of a
//! dead client counts for nothing: its endpoint is asked, not its claim. The ledger lies in the
//! region of the locks and is no part of any protocol.

use std::sync::atomic::{AtomicU64, Ordering};

use farlock_fabric::{EndpointId, Nanos};
use farlock_locks::{Mode, Token, registry};

use super::strike::Moment;

/// Words in a line: each lock, seat and token has a line of its own.
const LINE: usize = 8;
/// Lines before the locks: one that everybody obeys, then deaths by their moment.
const HEAD_LINES: usize = 1 + Moment::ALL.len().div_ceil(LINE);

/// The memory of a storm: what everybody obeys, deaths, then locks, tokens, seats.
#[derive(Clone, Copy, Debug)]
pub struct Ledger<'a> {
    words: &'a [AtomicU64],
    locks: usize,
    seats: usize,
    /// Where the lines after the locks begin.
    locks_end: usize,
}

/// Lines that a lock of any kind takes at most.
fn lock_lines() -> usize {
    registry::bytes_max().div_ceil(LINE as u64 * 8) as usize
}

/// How the weather is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weather {
    /// Strikes fall.
    Storm = 0,
    /// No more strikes: every survivor must get what it waits for.
    Calm = 1,
    /// Nobody shall begin anything any more.
    Over = 2,
}

/// What a seat says.
#[derive(Clone, Copy, Debug)]
enum Field {
    /// Who sits here: packed endpoint.
    Endpoint = 0,
    /// The lock held, from 1, with the mode in the lowest bit; 0 for none.
    Claim = 1,
    /// Acquisitions so far, of everybody who ever sat here.
    Acquired = 2,
    /// Violations seen from here.
    Violations = 3,
    /// Since when the client waits, in nanoseconds; 0 if it does not.
    WaitsSince = 4,
    /// The longest wait that ended here, in nanoseconds.
    LongestWait = 5,
    /// Waits that a timer ended, though their reason had come.
    Late = 6,
}

impl<'a> Ledger<'a> {
    /// Words that the storm of so many locks and seats needs.
    pub fn words(locks: usize, seats: usize) -> usize {
        (HEAD_LINES + (lock_lines() + 1) * locks + seats) * LINE
    }

    /// The ledger in zeroed words.
    pub fn new(words: &'a [AtomicU64], locks: usize, seats: usize) -> Self {
        assert!(words.len() >= Self::words(locks, seats), "room for locks and seats");
        Self { words, locks, seats, locks_end: HEAD_LINES + lock_lines() * locks }
    }

    /// Where the word of this lock lies, in bytes from the first word.
    pub fn lock_offset(lock: usize) -> u64 {
        ((HEAD_LINES + lock * lock_lines()) * LINE * 8) as u64
    }

    /// The weather changes, for good.
    pub fn turn(&self, weather: Weather) {
        self.words[0].fetch_max(weather as u64, Ordering::SeqCst);
    }

    /// The weather.
    pub fn weather(&self) -> Weather {
        match self.words[0].load(Ordering::SeqCst) {
            0 => Weather::Storm,
            1 => Weather::Calm,
            _ => Weather::Over,
        }
    }

    /// A client is about to be killed at such a moment.
    pub fn dies_at(&self, moment: Moment) {
        self.deaths(moment).fetch_add(1, Ordering::SeqCst);
    }

    /// How many were killed at such a moment.
    pub fn died_at(&self, moment: Moment) -> u64 {
        self.deaths(moment).load(Ordering::SeqCst)
    }

    fn deaths(&self, moment: Moment) -> &AtomicU64 {
        &self.words[LINE + moment as usize]
    }

    /// `endpoint` sits down. Its predecessor, if there was one, is dead.
    pub fn sit_down(&self, seat: usize, endpoint: EndpointId) {
        self.field(seat, Field::Claim).store(0, Ordering::SeqCst);
        self.field(seat, Field::WaitsSince).store(0, Ordering::SeqCst);
        self.field(seat, Field::Endpoint).store(endpoint.bits(), Ordering::SeqCst);
    }

    /// The client in this seat begins to wait, or no longer does.
    pub fn waits(&self, seat: usize, since: Option<Nanos>) {
        self.field(seat, Field::WaitsSince).store(since.unwrap_or(0), Ordering::SeqCst);
    }

    /// The client in this seat was granted a lock after so long a wait.
    pub fn enter(
        &self,
        seat: usize,
        lock: usize,
        mode: Mode,
        token: Option<Token>,
        waited: Nanos,
        is_alive: impl Fn(EndpointId) -> bool,
    ) {
        let claim = claim_of(lock, mode);
        self.field(seat, Field::Claim).store(claim, Ordering::SeqCst);
        for other in (0..self.seats).filter(|other| *other != seat) {
            let theirs = self.field(other, Field::Claim).load(Ordering::SeqCst);
            let conflict = theirs >> 1 == claim >> 1 && (theirs | claim) & 1 == 1;
            if conflict && self.is_still(other, theirs, &is_alive) {
                self.violated(seat);
            }
        }
        if let (Some(token), Mode::Exclusive) = (token, mode) {
            let last = &self.words[(self.locks_end + lock) * LINE];
            if last.swap(token.get(), Ordering::SeqCst) >= token.get() {
                self.violated(seat);
            }
        }
        self.granted(seat, waited);
    }

    /// The client in this seat was granted something that is judged elsewhere.
    pub fn granted(&self, seat: usize, waited: Nanos) {
        self.field(seat, Field::Acquired).fetch_add(1, Ordering::SeqCst);
        self.field(seat, Field::LongestWait).fetch_max(waited, Ordering::SeqCst);
    }

    /// So many more waits of the client in this seat were ended late, by a timer.
    pub fn woken_late(&self, seat: usize, waits: u64) {
        self.field(seat, Field::Late).fetch_add(waits, Ordering::SeqCst);
    }

    /// How many waits were ended late.
    pub fn late_wakes(&self) -> u64 {
        self.over_seats(Field::Late).sum()
    }

    /// The client in this seat is about to release.
    pub fn leave(&self, seat: usize) {
        self.field(seat, Field::Claim).store(0, Ordering::SeqCst);
    }

    /// Whether that claim stands and its owner lives.
    fn is_still(&self, seat: usize, claim: u64, is_alive: impl Fn(EndpointId) -> bool) -> bool {
        let endpoint = self.field(seat, Field::Endpoint).load(Ordering::SeqCst);
        is_alive(EndpointId::from_bits(endpoint))
            && self.field(seat, Field::Claim).load(Ordering::SeqCst) == claim
            && self.field(seat, Field::Endpoint).load(Ordering::SeqCst) == endpoint
    }

    fn violated(&self, seat: usize) {
        self.field(seat, Field::Violations).fetch_add(1, Ordering::SeqCst);
    }

    /// All seats.
    pub fn seats(&self) -> impl Iterator<Item = usize> + use<> {
        0..self.seats
    }

    /// Acquisitions from this seat.
    pub fn acquired(&self, seat: usize) -> u64 {
        self.field(seat, Field::Acquired).load(Ordering::SeqCst)
    }

    /// Since when the client in this seat waits, if it does.
    pub fn waiting_since(&self, seat: usize) -> Option<Nanos> {
        Some(self.field(seat, Field::WaitsSince).load(Ordering::SeqCst)).filter(|since| *since > 0)
    }

    /// Violations seen from any seat.
    pub fn violations(&self) -> u64 {
        self.over_seats(Field::Violations).sum()
    }

    /// The longest wait that ended, in nanoseconds.
    pub fn longest_wait(&self) -> Nanos {
        self.over_seats(Field::LongestWait).max().unwrap_or(0)
    }

    /// All acquisitions.
    pub fn acquisitions(&self) -> u64 {
        self.over_seats(Field::Acquired).sum()
    }

    fn over_seats(&self, field: Field) -> impl Iterator<Item = u64> + '_ {
        (0..self.seats).map(move |seat| self.field(seat, field).load(Ordering::SeqCst))
    }

    fn field(&self, seat: usize, field: Field) -> &AtomicU64 {
        &self.words[(self.locks_end + self.locks + seat) * LINE + field as usize]
    }
}

const fn claim_of(lock: usize, mode: Mode) -> u64 {
    (lock as u64 + 1) << 1 | mode as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIVE: EndpointId = EndpointId { index: 1, incarnation: 1 };
    const DEAD: EndpointId = EndpointId { index: 2, incarnation: 1 };

    fn words() -> Vec<AtomicU64> {
        (0..Ledger::words(2, 3)).map(|_| AtomicU64::new(0)).collect()
    }

    fn enter(ledger: &Ledger<'_>, seat: usize, lock: usize, mode: Mode) {
        ledger.enter(seat, lock, mode, None, 0, |who| who == ALIVE);
    }

    #[test]
    fn two_living_holders_are_a_violation_unless_both_share() {
        for (first, second, expected) in [
            (Mode::Exclusive, Mode::Exclusive, 1),
            (Mode::Exclusive, Mode::Shared, 1),
            (Mode::Shared, Mode::Exclusive, 1),
            (Mode::Shared, Mode::Shared, 0),
        ] {
            let words = words();
            let ledger = Ledger::new(&words, 2, 3);
            (0..3).for_each(|seat| ledger.sit_down(seat, ALIVE));
            enter(&ledger, 0, 1, first);
            enter(&ledger, 1, 0, Mode::Exclusive);
            enter(&ledger, 2, 1, second);
            assert_eq!(ledger.violations(), expected, "{first:?}, {second:?}");
        }
    }

    #[test]
    fn the_dead_and_those_who_left_hold_nothing() {
        let words = words();
        let ledger = Ledger::new(&words, 2, 3);
        ledger.sit_down(0, DEAD);
        ledger.sit_down(1, ALIVE);
        enter(&ledger, 0, 0, Mode::Exclusive);
        enter(&ledger, 1, 0, Mode::Exclusive);
        ledger.leave(1);
        enter(&ledger, 2, 0, Mode::Exclusive);
        assert_eq!(ledger.violations(), 0);
        assert_eq!(ledger.acquisitions(), 3);
    }

    #[test]
    fn a_token_that_does_not_grow_is_a_violation() {
        let words = words();
        let ledger = Ledger::new(&words, 2, 3);
        for (count, expected) in [(5, 0), (6, 0), (6, 1), (4, 2)] {
            let token = Some(Token::new(1, count));
            ledger.enter(0, 0, Mode::Exclusive, token, 0, |_| true);
            ledger.leave(0);
            assert_eq!(ledger.violations(), expected);
        }
    }
}
