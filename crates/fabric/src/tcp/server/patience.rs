//! When verbs are held back ([`super::held_back`]), and when they are executed.

use super::executor::Executor;
use super::guest::{Guest, Seat};
use super::held_back::{Asked, Held, Word};
use crate::addr::Addr;
use crate::endpoint::{Endpoint, Nanos};
use crate::error::Garbled;
use crate::shm::serving::{Before, LeasedEndpoint};
use crate::tcp::clock::boot_time;
use crate::tcp::wire::{Fields, Patience, take_link};
use crate::verb::{MaskedCas, Verb};

impl Executor {
    /// Holds back a verb that would fail now. `false`: it is to be executed.
    pub(super) fn holds_back(
        &mut self,
        number: usize,
        seat: &Seat,
        (asked, patience): (Asked, Patience),
        region: usize,
        fields: Fields<'_>,
    ) -> Result<bool, Garbled> {
        let endpoint = &seat.endpoint;
        let (mut of_link, mut data) = (fields, Vec::new());
        let verb = take_link(&mut of_link, &mut data)?.verb;
        let (addr, op) = match verb {
            Verb::MaskedCas64 { addr, op } => (addr, wide(&op)),
            Verb::MaskedCas128 { addr, op, .. } => (addr, op),
            _ => return Ok(false),
        };
        let is_new = matches!(endpoint.begin_verb(asked.ticket, false), Before::Nothing);
        if !is_new || holds(endpoint, addr, &op) || self.served[region].has_locals() {
            return Ok(false);
        }
        let since = boot_time();
        let lane = (number, asked.lane);
        let held = Held { lane, asked, op, since, patience, link: fields.0.to_vec() };
        self.held_back.add((addr.bits(), region), held);
        Ok(true)
    }

    /// Executes what the lane has held back, if anything.
    pub(super) fn end_patience_of(&mut self, number: usize, guest: &mut Guest, lane: u32) {
        if let Some((word, held)) = self.held_back.take((number, lane)) {
            self.execute_held(word, &held, guest);
        }
    }

    /// Executes those of which the comparison may hold now, in the order in which they came: one
    /// that is not to be yet keeps no other back, which may compare other bits. `own` is the guest
    /// that is served.
    pub(super) fn go_on_with_held_back(&mut self, number: usize, own: &mut Guest) {
        while let Some(word) = self.held_back.take_changed() {
            let mut passed = 0;
            while let Some(next) = self.held_back.behind(word, passed) {
                let (lane, op) = (next.lane, next.op);
                let mut other = if lane.0 == number { None } else { self.guests[lane.0].take() };
                let guest = other.as_mut().unwrap_or(own);
                let seat = guest.seats.get(&lane.1);
                let addr = Addr::from_bits(word.0);
                let is_ready = seat.is_none_or(|seat| holds(&seat.endpoint, addr, &op));
                if is_ready && let Some((word, held)) = self.held_back.take(lane) {
                    self.held_back.moved(word, boot_time());
                    self.execute_held(word, &held, guest);
                } else {
                    passed += 1;
                }
                if other.is_some() {
                    self.guests[lane.0] = other;
                }
            }
        }
    }

    /// Executes those that were held back for long enough.
    pub(super) fn end_patience(&mut self) {
        let now = if self.held_back.until == Nanos::MAX { 0 } else { boot_time() };
        if now < self.held_back.until {
            return;
        }
        for (word, held) in self.held_back.take_due(now) {
            let number = held.lane.0;
            let Some(mut guest) = self.guests[number].take() else { continue };
            self.execute_held(word, &held, &mut guest);
            self.go_on_with_held_back(number, &mut guest);
            self.guests[number] = Some(guest);
        }
    }

    fn execute_held(&mut self, (_, region): Word, held: &Held, guest: &mut Guest) {
        let number = held.lane.0;
        let executed = self.execute_links(number, guest, region, held.asked, Fields(&held.link));
        assert!(executed.is_ok(), "it was understood before it was held back");
    }
}

/// A comparison of eight bytes as one that minds no others.
fn wide(op: &MaskedCas<u64>) -> MaskedCas<u128> {
    let (compare, compare_mask) = (op.compare.into(), op.compare_mask.into());
    MaskedCas { compare, compare_mask, swap: op.swap.into(), swap_mask: op.swap_mask.into() }
}

/// Whether the comparison holds for the word as it is. Its halves may be of different moments; the
/// verb decides.
fn holds(endpoint: &LeasedEndpoint, addr: Addr, op: &MaskedCas<u128>) -> bool {
    let words = 1 + u16::from(op.compare_mask >> u64::BITS != 0);
    let _ = endpoint.post(Verb::Read { addr, words });
    let mut halves = [0; 2];
    // Where that fails so does the verb, and says why.
    let is_read = endpoint.copy_read(0, &mut halves) == usize::from(words);
    let word = u128::from(halves[1]) << 64 | u128::from(halves[0]);
    !is_read || (word ^ op.compare) & op.compare_mask == 0
}
