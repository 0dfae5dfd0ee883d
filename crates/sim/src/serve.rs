//! The moment a verb takes effect, or one piece of it, and the faults that keep it from that.

use farlock_fabric::verb::{masked_cas64, masked_cas128};
use farlock_fabric::{Fault, Nanos, Publication, WORDS_MAX};

use crate::config::Mode;
use crate::core::Core;
use crate::flight::{Action, NONE, Tear};
use crate::history::{Effect, Kind};
use crate::nic::LINE_BYTES;
use crate::oracle::Choice;
use crate::queue::Event;
use crate::transit::MESSAGES;

impl Core {
    /// When the NIC serves this link. A message takes its own way from here.
    #[inline]
    pub(crate) fn admit(&mut self, index: u32) -> Option<Nanos> {
        let flight = self.flights.at(index);
        let (kind, addr) = (flight.kind, flight.addr);
        if kind == Kind::Send {
            self.admit_message(index);
            return None;
        }
        if self.mode == Mode::Explored {
            return Some(self.now);
        }
        let node = usize::from(self.flights.at(flight.head).chain.pair) - 1;
        let nic = &mut self.nodes[node].nic;
        Some(match self.flights.at(index).action {
            Action::Read { words } => nic.admit_transfer(&self.nic, self.now, u64::from(words) * 8),
            Action::Write => {
                let bytes = self.flights.cargo(index).data.len() as u64 * 8;
                nic.admit_transfer(&self.nic, self.now, bytes)
            }
            _ => {
                let wide = matches!(kind, Kind::MaskedCas128 | Kind::MaskedFaa128);
                nic.admit_atomic(&self.nic, self.now, addr.bits() / LINE_BYTES, wide)
            }
        })
    }

    #[cold]
    fn admit_message(&mut self, index: u32) {
        let due = self.now + self.lateness();
        self.schedule_message(index, due);
    }

    /// A link whose time has come is served, and then the links after it.
    #[inline]
    pub(crate) fn served(&mut self, index: u32) {
        let flight = self.flights.at(index);
        let (head, overtaken, next) = (flight.head, flight.overtaken, flight.next);
        if self.is_held(head, Event::Serve(index)) {
            return;
        }
        if self.serve(index) && !overtaken && next != NONE {
            self.turns(next);
        }
    }

    /// Serves a link or a piece of it. Returns whether it is served entirely.
    #[inline]
    pub(crate) fn serve(&mut self, index: u32) -> bool {
        self.meet(index);
        let flight = self.flights.at(index);
        let status = match flight.action {
            Action::Send { to, message } => self.deliver(index, to, message),
            Action::Read { .. } | Action::Write => match self.transfer(index) {
                Ok(false) => return false,
                Ok(true) => Ok(()),
                Err(fault) => Err(fault),
            },
            _ => self.perform(index),
        };
        if let Err(fault) = status {
            self.history.stats.faults += 1;
            self.flights.at_mut(index).status = Err(fault);
        }
        self.settle(index);
        true
    }

    /// The owner of this verb has been told of all whose effects it can see, and if it changes
    /// anything those who see that will be told of it.
    #[inline]
    fn meet(&mut self, index: u32) {
        let flight = self.flights.at(index);
        let (owner, reads) = (flight.owner, flight.kind == Kind::Read);
        if !reads {
            self.show(owner);
        }
        let shown = self.shown;
        let seat = self.seat_mut(owner);
        if seat.id == owner {
            seat.knows = shown;
        }
    }

    /// Whether this verb may take effect now, as far as it depends on its sender and its node.
    #[inline]
    pub(crate) fn verdict(&self, index: u32) -> Result<(), Fault> {
        let flight = self.flights.at(index);
        let seat = self.seat(flight.owner);
        if flight.cancelled {
            return Err(Fault::Lost);
        }
        seat.may_take_effect(flight.owner)?;
        // Mailboxes lie where the records lie, on the first node.
        let pair = usize::from(self.flights.at(flight.head).chain.pair.max(MESSAGES + 1));
        if self.nodes[pair - 1].reset_stamp > seat.stamp {
            return Err(Fault::Stale);
        }
        Ok(())
    }

    /// An atomic takes effect.
    #[inline]
    fn perform(&mut self, index: u32) -> Result<(), Fault> {
        self.verdict(index)?;
        let flight = self.flights.at_mut(index);
        let (old, new) = self.memory.atomic(flight.addr, &flight.action)?;
        flight.old = old;
        let (endpoint, kind, addr) = (flight.owner, flight.kind, flight.addr);
        self.history.record(&Effect { time: self.now, endpoint, kind, addr, old, new });
        let fails = match flight.action {
            Action::MaskedCas64(op) => masked_cas64(old as u64, &op).is_none(),
            Action::MaskedCas128(op) => masked_cas128(old, &op).is_none(),
            _ => false,
        };
        let otherwise = flight.otherwise.filter(|_| fails);
        if old != new {
            self.changed(addr);
        }
        if let Some(Publication { slot, word, value }) = otherwise {
            self.publish(endpoint, slot, word, value);
        }
        Ok(())
    }

    /// Reads or writes the words whose time has come. Returns whether all have been.
    #[inline(never)]
    fn transfer(&mut self, index: u32) -> Result<bool, Fault> {
        let started = self.flights.cargo(index).tear.served != 0;
        if let Err(fault) = self.verdict(index) {
            // Half a write has taken effect: the outcome is not "none".
            let half = started && self.flights.at(index).kind == Kind::Write;
            return Err(if half { Fault::Lost } else { fault });
        }
        if !started {
            self.begin_transfer(index)?;
            if self.memory.is_hollow(self.flights.at(index).addr) {
                // A read finds the zeros that it brought along, a write is forgotten.
                self.flights.at_mut(index).old = 0;
                return Ok(true);
            }
        }
        let cargo = self.flights.cargo(index);
        let (words, tear) = (cargo.data.len() as u32, cargo.tear);
        let left = words - u32::from(tear.served);
        let piece = if tear.torn { 1 + self.oracle.pick(Choice::TearPiece, left) } else { left };
        for position in u32::from(tear.served)..u32::from(tear.served) + piece {
            let word = match tear.down {
                false => (u32::from(tear.origin) + position) % words,
                true => (u32::from(tear.origin) + words - position) % words,
            };
            self.transfer_word(index, word as usize);
        }
        let (flight, cargo) = self.flights.loaded_mut(index);
        cargo.tear.served += piece as u16;
        if piece == left {
            if flight.kind == Kind::Read {
                let high = cargo.data.get(1).copied().unwrap_or(0);
                flight.old = u128::from(cargo.data[0]) | u128::from(high) << 64;
            }
            return Ok(true);
        }
        let gap = self.oracle.pick(Choice::TearPiece, self.weakness.torn_gap_ns_max + 1);
        self.push(self.now + u64::from(gap), Event::Serve(index));
        Ok(false)
    }

    /// Checks the bounds and decides how a read or write is torn.
    fn begin_transfer(&mut self, index: u32) -> Result<(), Fault> {
        let (flight, cargo) = self.flights.loaded_mut(index);
        if let Action::Read { words } = flight.action {
            cargo.data.clear();
            cargo.data.resize(usize::from(words), 0);
        }
        let words = cargo.data.len();
        if !(1..=WORDS_MAX).contains(&words) {
            return Err(Fault::OutOfBounds);
        }
        self.memory.place(flight.addr, words, 8)?;
        let ratio = self.weakness.torn;
        if words > 1 && ratio.is_possible() && self.oracle.chance(Choice::Tear, ratio) {
            let origin = self.oracle.pick(Choice::TearPiece, words as u32) as u16;
            let down = self.oracle.pick(Choice::TearPiece, 2) == 1;
            cargo.tear = Tear { torn: true, origin, down, served: 0 };
        }
        Ok(())
    }

    #[inline]
    fn transfer_word(&mut self, index: u32, word: usize) {
        let (flight, cargo) = self.flights.loaded_mut(index);
        let addr = flight.addr.plus(word as u64 * 8);
        let place = self.memory.place(addr, 1, 8).expect("the bounds were checked at the start");
        let cell = self.memory.word(place, 0);
        let old = *cell;
        match flight.kind {
            Kind::Write => *cell = cargo.data[word],
            _ => cargo.data[word] = old,
        }
        let new = *cell;
        let (endpoint, kind) = (flight.owner, flight.kind);
        self.history.record(&Effect {
            time: self.now,
            endpoint,
            kind,
            addr,
            old: old.into(),
            new: new.into(),
        });
        if old != new {
            self.changed(addr);
        }
    }

    /// A link has been served, well or ill.
    #[inline]
    fn settle(&mut self, index: u32) {
        let (head, overtaken) = (self.flights.at(index).head, self.flights.at(index).overtaken);
        let chain = &mut self.flights.at_mut(head).chain;
        chain.unserved -= 1;
        let (unserved, mut reply) = (chain.unserved, u64::from(chain.reply_ns));
        if chain.lost {
            reply += u64::from(self.weakness.lost_after_ns);
        }
        if overtaken {
            chain.open_reads -= 1;
            if chain.open_reads == 0 && chain.fenced != NONE {
                let fenced = std::mem::replace(&mut chain.fenced, NONE);
                self.open_fence(head, fenced);
            }
        }
        if unserved == 0 {
            if self.mode == Mode::Explored && !self.slow_completions {
                // Nothing can happen to an endpoint between effect and completion that could not
                // as well happen between completion and its next verb.
                self.completed.push(head);
            } else {
                self.push(self.now + reply, Event::Complete(head));
            }
        }
    }
}
