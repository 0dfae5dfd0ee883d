//! Mailboxes: per slot a queue of four cells, many senders, one receiver, no lock.
//!
//! A cell's state names the position it serves, its phase, the receiver's incarnation and, once
//! claimed, its sender:
//!
//! ```text
//! Free(p) --- sender claims, cmpxchg16b --> Claimed(p, sender) --- sender, swap --> Full(p)
//!    ^                                            |                                   |
//!    +---- receiver, if the sender died ----------+------ receiver takes -------------+
//!         Free(p + 4)
//! ```
//!
//! Positions are claimed in order, so messages of one sender arrive in order. The incarnation in
//! the state keeps a message from a successor in the receiver's place: a claim made for the old
//! incarnation fails. An attacher that moves into a place waits for claims that are under way.
//!
//! A sender that dies between claim and swap blocks nobody: the receiver passes over its cell. It
//! learns of the death as it learns of any other, by watching the beacon while it waits.

use std::time::{Duration, Instant};

use super::parking::Bell;
use super::primitive::{AtomicU64, Ordering};
use super::wide::Wide;
use crate::addr::EndpointId;
use crate::endpoint::{Envelope, Nanos};
use crate::error::Fault;
use crate::verb::Message;

/// Cells in a mailbox.
pub(super) const CELLS: u64 = 4;

crate::word! {
    /// The low half of a cell's state; the high half is its sender.
    pub(super) struct CellState: u64 {
        /// The receiver's incarnation.
        RECEIVER receiver: 16,
        /// One of [`CellPhase`].
        PHASE phase: 2,
        /// Which message this cell holds or awaits, counted from 0.
        POSITION position: 46,
    }
}

/// What a cell is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum CellPhase {
    Free = 0,
    Claimed = 1,
    Full = 2,
}

impl CellState {
    pub(super) fn at(receiver: u16, position: u64, phase: CellPhase) -> Self {
        Self::new()
            .with(Self::RECEIVER, receiver.into())
            .with(Self::PHASE, phase as u64)
            .with(Self::POSITION, position)
    }

    fn is_in(self, phase: CellPhase) -> bool {
        self.phase() == phase as u64
    }
}

/// One message: a cache line.
#[repr(C, align(64))]
#[derive(Debug)]
struct Cell {
    state: Wide,
    arrived: AtomicU64,
    message: [AtomicU64; 4],
}

const _: () = assert!(size_of::<Cell>() == 64);

/// A mailbox in the region.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Mailcells {
    /// Not beyond the next position to claim; senders begin their search here.
    tail: AtomicU64,
    pub(super) bell: Bell,
    cells: [Cell; CELLS as usize],
}

/// What the receiver finds in its next cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Nothing.
    Empty,
    /// A message that is being written.
    Coming(EndpointId),
    /// A message.
    Here,
}

impl Mailcells {
    fn cell(&self, position: u64) -> &Cell {
        &self.cells[(position % CELLS) as usize]
    }

    /// Empties the mailbox for a new owner of its place. `is_writing` tells whether a sender may
    /// still be writing into the cell it claimed. Returns false where such a sender did not finish
    /// in time; nothing is lost by trying another place.
    pub(super) fn reset(&self, receiver: u16, is_writing: impl Fn(EndpointId) -> bool) -> bool {
        /// What is granted to senders to finish their messages, which takes nanoseconds. Turns are
        /// no bound: where many want the processors each lasts as long as they please.
        const PATIENCE: Duration = Duration::from_millis(1);
        let mut until = None;
        for position in 0..CELLS {
            let state = &self.cell(position).state;
            let fresh = CellState::at(receiver, position, CellPhase::Free);
            loop {
                let old = state.load_torn();
                let claimed = CellState(old as u64).is_in(CellPhase::Claimed);
                if claimed && is_writing(EndpointId::from_bits((old >> 64) as u64)) {
                    if *until.get_or_insert_with(|| Instant::now() + PATIENCE) <= Instant::now() {
                        return false;
                    }
                    std::thread::yield_now();
                } else if state.compare_exchange(old, fresh.0.into()).is_ok() {
                    break;
                }
            }
        }
        self.tail.store(0, Ordering::Relaxed);
        self.bell.ring();
        true
    }

    /// Puts a message into the mailbox of the receiver with this incarnation.
    pub(super) fn send(
        &self,
        receiver: u16,
        from: EndpointId,
        message: &Message,
        now: impl FnOnce() -> Nanos,
    ) -> Result<(), Fault> {
        let mut position = self.tail.load(Ordering::Relaxed);
        let cell = loop {
            let cell = self.cell(position);
            let old = cell.state.load_torn();
            let state = CellState(old as u64);
            if state.receiver() != receiver.into() {
                return Err(Fault::PeerGone);
            }
            if state.position() < position {
                // A message four positions back still lies here. If its sender died, only the
                // receiver can pass over it, so let the receiver look.
                self.bell.ring();
                return Err(Fault::MailboxFull);
            }
            if state.position() > position {
                // Everything up to four before it was claimed.
                position = state.position() - (CELLS - 1);
            } else if state.is_in(CellPhase::Free) {
                let claimed = CellState::at(receiver, position, CellPhase::Claimed);
                let new = u128::from(from.bits()) << 64 | u128::from(claimed.0);
                if cell.state.compare_exchange(old, new).is_ok() {
                    break cell;
                }
            } else {
                position += 1;
            }
        };
        // Only a hint: a slower sender may move it back, never beyond what was claimed.
        self.tail.store(position + 1, Ordering::Relaxed);
        for (word, value) in cell.message.iter().zip(message) {
            word.store(*value, Ordering::Relaxed);
        }
        cell.arrived.store(now(), Ordering::Relaxed);
        let full = CellState::at(receiver, position, CellPhase::Full);
        cell.state.low.swap(full.0, Ordering::SeqCst);
        Ok(())
    }

    /// Which message comes next: the first that was not taken.
    pub(super) fn first(&self) -> u64 {
        let positions = self
            .cells
            .iter()
            .map(|cell| CellState(cell.state.low.load(Ordering::Acquire)).position());
        positions.min().expect("a mailbox has cells")
    }

    /// Ends the messages of senders that will never end them: each comes from nobody, and says
    /// nothing.
    #[cfg(all(feature = "tcp", not(shuttle)))]
    pub(super) fn end_messages(&self, is_of: impl Fn(EndpointId) -> bool) {
        for cell in &self.cells {
            let old = cell.state.load_torn();
            let (state, sender) =
                (CellState(old as u64), EndpointId::from_bits((old >> 64) as u64));
            if state.is_in(CellPhase::Claimed) && is_of(sender) {
                let full = state.with(CellState::PHASE, CellPhase::Full as u64);
                let new = u128::from(EndpointId::NOBODY.bits()) << 64 | u128::from(full.0);
                // Where that fails the receiver has passed over it.
                let _ = cell.state.compare_exchange(old, new);
            }
        }
    }

    /// Where the message at this position shows first, and what stands there until then.
    pub(super) fn awaits(&self, receiver: u16, position: u64) -> (&AtomicU64, u64) {
        let empty = CellState::at(receiver, position, CellPhase::Free);
        (&self.cell(position).state.low, empty.0)
    }

    /// What the cell at this position holds, for the receiver with this incarnation.
    pub(super) fn next(&self, receiver: u16, position: u64) -> Next {
        let (state, empty) = self.awaits(receiver, position);
        let state = state.load(Ordering::SeqCst);
        if state == empty {
            return Next::Empty;
        }
        let state = CellState(state);
        if state == CellState::at(receiver, position, CellPhase::Full) {
            return Next::Here;
        }
        if state != CellState::at(receiver, position, CellPhase::Claimed) {
            // Only its owner empties a mailbox: this was damaged, and is passed over.
            return Next::Coming(EndpointId::NOBODY);
        }
        Next::Coming(self.sender(position))
    }

    /// The sender of the message at this position, which is there or coming.
    pub(super) fn sender(&self, position: u64) -> EndpointId {
        EndpointId::from_bits(self.cell(position).state.high.load(Ordering::Acquire))
    }

    /// Takes the message at this position, which is [`Next::Here`], and frees its cell.
    pub(super) fn take(&self, receiver: u16, position: u64) -> Envelope {
        let envelope = self.read(position);
        self.free(receiver, position);
        envelope
    }

    /// The message at this position, which is [`Next::Here`].
    pub(super) fn read(&self, position: u64) -> Envelope {
        let cell = self.cell(position);
        let from = EndpointId::from_bits(cell.state.high.load(Ordering::Relaxed));
        let mut message = [0; 4];
        for (value, word) in message.iter_mut().zip(&cell.message) {
            *value = word.load(Ordering::Relaxed);
        }
        let arrived = cell.arrived.load(Ordering::Relaxed);
        Envelope { from, arrived, message }
    }

    /// Passes over the cell at this position: its sender is dead or was served.
    pub(super) fn free(&self, receiver: u16, position: u64) {
        let free = CellState::at(receiver, position + CELLS, CellPhase::Free);
        self.cell(position).state.low.store(free.0, Ordering::Release);
    }
}

#[cfg(test)]
impl Mailcells {
    /// The message at this position is being written, for as long as its sender lives.
    pub(super) fn half_write(&self, receiver: u16, position: u64, from: EndpointId) {
        let claimed = CellState::at(receiver, position, CellPhase::Claimed);
        let state = &self.cell(position).state;
        let new = u128::from(from.bits()) << 64 | u128::from(claimed.0);
        state.compare_exchange(state.load_torn(), new).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: u16 = 3;
    const PEER: EndpointId = EndpointId { index: 9, incarnation: 1 };

    fn mailbox() -> Box<Mailcells> {
        let word = || Wide { low: AtomicU64::new(0), high: AtomicU64::new(0) };
        let cell =
            || Cell { state: word(), arrived: AtomicU64::new(0), message: Default::default() };
        let mailbox = Box::new(Mailcells {
            tail: AtomicU64::new(0),
            bell: Bell::default(),
            cells: [cell(), cell(), cell(), cell()],
        });
        assert!(mailbox.reset(ME, |_| false));
        mailbox
    }

    fn send(mailbox: &Mailcells, number: u64) -> Result<(), Fault> {
        mailbox.send(ME, PEER, &[number; 4], || number * 10)
    }

    #[test]
    fn messages_come_out_in_order_with_sender_and_time() {
        let mailbox = mailbox();
        for number in 0..20 {
            assert_eq!(mailbox.next(ME, number), Next::Empty);
            send(&mailbox, number).unwrap();
            assert_eq!(mailbox.next(ME, number), Next::Here);
            let envelope = mailbox.take(ME, number);
            assert_eq!(envelope.from, PEER);
            assert_eq!((envelope.message, envelope.arrived), ([number; 4], number * 10));
        }
    }

    #[test]
    fn the_fifth_message_finds_no_room() {
        let mailbox = mailbox();
        for number in 0..CELLS {
            send(&mailbox, number).unwrap();
        }
        assert_eq!(send(&mailbox, 4), Err(Fault::MailboxFull));
        assert_eq!(mailbox.take(ME, 0).message[0], 0);
        send(&mailbox, 4).unwrap();
        assert_eq!(send(&mailbox, 5), Err(Fault::MailboxFull));
    }

    #[test]
    fn a_stale_hint_costs_a_search_and_nothing_else() {
        let mailbox = mailbox();
        for number in 0..7 {
            send(&mailbox, number).unwrap();
            mailbox.take(ME, number);
        }
        for hint in [0, 1, 2, 5, 6, 7] {
            mailbox.tail.store(hint, Ordering::Relaxed);
            let position = mailbox.cells.iter().map(|c| c.state.low.load(Ordering::Relaxed));
            let position = position.map(|s| CellState(s).position()).min().unwrap();
            send(&mailbox, position).unwrap();
            assert_eq!(mailbox.next(ME, position), Next::Here, "hint {hint}");
            mailbox.take(ME, position);
        }
    }

    #[test]
    fn a_message_never_reaches_a_successor() {
        let mailbox = mailbox();
        assert!(mailbox.reset(ME + 1, |_| false));
        assert_eq!(send(&mailbox, 1), Err(Fault::PeerGone));
        assert_eq!(mailbox.next(ME + 1, 0), Next::Empty);
    }

    #[test]
    fn a_sender_that_died_while_writing_is_passed_over() {
        let mailbox = mailbox();
        mailbox.half_write(ME, 0, PEER);
        send(&mailbox, 1).unwrap();
        assert_eq!(mailbox.next(ME, 0), Next::Coming(PEER));
        mailbox.free(ME, 0);
        assert_eq!(mailbox.next(ME, 1), Next::Here);
        assert!(!mailbox.reset(ME + 1, |_| true) || mailbox.next(ME + 1, 0) == Next::Empty);
    }

    #[test]
    fn a_place_waits_for_a_message_under_way() {
        let mailbox = mailbox();
        mailbox.half_write(ME, 0, PEER);
        assert!(!mailbox.reset(ME + 1, |sender| sender == PEER));
        assert!(mailbox.reset(ME + 1, |_| false));
    }

    #[test]
    fn many_senders_lose_and_repeat_nothing() {
        const SENDERS: u16 = 3;
        const EACH: u64 = 2_000;
        let mailbox = mailbox();
        std::thread::scope(|scope| {
            for index in 1..=SENDERS {
                let mailbox = &mailbox;
                scope.spawn(move || {
                    let from = EndpointId { index, incarnation: 1 };
                    for number in 0..EACH {
                        while mailbox.send(ME, from, &[number; 4], || 0).is_err() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut expected = [0; SENDERS as usize + 1];
            for position in 0..u64::from(SENDERS) * EACH {
                while mailbox.next(ME, position) != Next::Here {
                    std::thread::yield_now();
                }
                let envelope = mailbox.take(ME, position);
                let next = &mut expected[usize::from(envelope.from.index)];
                assert_eq!(envelope.message, [*next; 4], "in order per sender");
                *next += 1;
            }
        });
    }
}
