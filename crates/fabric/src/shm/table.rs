//! The table of endpoints: moving in and out, life and death, retirement.
//!
//! A place is claimed by the holder of its latch ([`latch`](super::latch)). Its owner then keeps a
//! beacon burning ([`beacon`](super::beacon)) and perhaps a tether ([`tether`](super::tether)). A
//! process that finds both gone vacates the place; from then on a look at one word tells the death.
//! Where a lane executes the verbs, other rules come first ([`keeper`](super::keeper)).

use std::io;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::barrier::{barrier, register_for_barriers};
use super::keeper::Keeper;
use super::latch::Latch;
use super::layout::PERHAPS;
use super::lease::Lease;
use super::mapping::Mapping;
use super::mark;
use super::parking::BUCKETS;
use super::place::{Identity, Phase, Place};
use super::primitive::{Ordering, boot_time, fence};
use super::region::Region;
use super::taken;
use super::tether::open_again;
use crate::addr::{EndpointId, Slot};
use crate::connection::Peer;
use crate::error::ConnectError;
use crate::home::Home;

/// A verb takes nanoseconds; a stopped or starved thread may stay within one for ever.
const WITHIN_A_VERB_MAX: Duration = Duration::from_millis(100);

/// How an endpoint is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Vital {
    /// Its thread lives.
    Alive,
    /// Its thread is dead, so it executes nothing; a child holds its tether, so it counts as
    /// alive.
    Orphaned,
    /// No server executes its verbs at the moment, and its client may come back with the next one.
    Leased,
    /// Dead for good.
    Dead,
}

/// What an endpoint is to be.
#[derive(Debug, Default)]
pub(super) struct Kind {
    pub(super) is_tethered: bool,
    /// Whether threads of this process take turns to execute its verbs.
    pub(super) has_lane: bool,
    /// What keeps it while no server does, if it is a remote client's.
    pub(super) lease: Option<Lease>,
}

impl Region {
    /// Everybody in the table of endpoints who counts as alive.
    pub fn peers(&self) -> Vec<Peer> {
        let (taken, places) = (self.mapping().taken(), self.mapping().layout().capacity.places());
        let next = |last: &u16| taken.first_from(last + 1, places);
        std::iter::successors(taken.first_from(1, places), next)
            .filter_map(|index| self.mapping().info(index))
            .collect()
    }

    /// Whether this endpoint lives. What is dead is dead for good.
    pub fn is_alive(&self, id: EndpointId) -> bool {
        self.mapping().vital(id) != Vital::Dead
    }

    /// Moves the calling thread into a vacant place, the lowest whose bit is clear and whose latch
    /// nobody else has, of those for who acts or of those for who only reads. Waits for nobody but
    /// threads of this process.
    pub(super) fn move_in(&self, kind: &Kind) -> Result<Keeper, ConnectError> {
        let io = |source| ConnectError::System { what: "attach to the region", source };
        let _turn = self.attaching().map_err(io)?;
        self.keepers().check()?;
        if self.is_retired() {
            return Err(ConnectError::Stale);
        }
        let (mapping, endpoints) = (self.mapping(), self.endpoints());
        let capacity = mapping.layout().capacity;
        let (first, last) = match self.is_read_only() {
            false => (1, capacity.endpoints),
            true => (capacity.endpoints + 1, capacity.places()),
        };
        // Who only reads leaves what the dead have left as it is: others are to see it.
        if !self.is_read_only() {
            mapping.sweep_a_full_word().map_err(io)?;
        }
        let words = taken::word_of(first)..taken::words_of(last);
        for looks in 0..3 {
            if looks == 2 && !mapping.begin_lap(first, last) {
                break;
            }
            if looks > 0 {
                words.clone().try_for_each(|word| mapping.sweep(word)).map_err(io)?;
            }
            let mut next = mapping.taken().first_clear_from(first, last);
            while let Some(index) = next {
                if let Some(latch) = Latch::try_take(mapping.file(), index).map_err(io)?
                    && let Some(keeper) = self.move_into(&latch, kind)?
                {
                    if kind.is_tethered {
                        mapping.look_around(index);
                    }
                    return Ok(keeper);
                }
                next = mapping.taken().first_clear_from(index + 1, last);
            }
        }
        Err(ConnectError::Full { endpoints })
    }

    /// Moves the calling thread into this place, if it can be had; marks it where a lane will use
    /// it.
    fn move_into(&self, latch: &Latch<'_>, kind: &Kind) -> Result<Option<Keeper>, ConnectError> {
        let io = |what| move |source| ConnectError::System { what, source };
        let (mapping, index) = (self.mapping(), latch.index());
        mapping.taken().set(latch);
        let Some(incarnation) = mapping.claim(latch) else { return Ok(None) };
        let has_lane = kind.has_lane;
        let tether = if kind.is_tethered {
            match mapping.tethers().take(index).map_err(io("take a tether"))? {
                Some(tether) => Some(tether),
                None => return Ok(None),
            }
        } else {
            None
        };
        if has_lane {
            self.mark(latch).map_err(io("mark a place"))?;
        }
        let id = EndpointId { index, incarnation };
        let initialised = mapping.initialise(self, id, kind);
        let keeper = initialised.map(|done| done.then(|| Keeper::new(self, id, tether, has_lane)));
        // Who retires the region closes the gate of everybody whom it finds moved in.
        let keeper = match keeper {
            Ok(Some(_)) if self.is_retired() => Err(ConnectError::Stale),
            keeper => keeper,
        };
        if !matches!(keeper, Ok(Some(_))) && has_lane {
            self.unmark(index);
        }
        keeper
    }

    /// The same as [`Region::retire`], unless an endpoint is attached: a newcomer waits until that
    /// is known. The caller holds the directory's lock.
    pub(super) fn retire_unused(&self) -> Result<(), ConnectError> {
        let retired = &self.mapping().header().retired;
        retired.store(PERHAPS, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let endpoints = self.endpoints();
        let user = self.peers().into_iter().find(|peer| peer.id.index <= endpoints);
        let Some(Peer { pid, label, .. }) = user else {
            self.retire();
            return Ok(());
        };
        retired.store(0, Ordering::SeqCst);
        let user = format!("process {pid} ({label})");
        Err(ConnectError::InUse { name: self.name().to_owned(), user })
    }

    /// Closes the gates of all endpoints for good and wakes all sleepers.
    pub(super) fn retire(&self) {
        let mapping = self.mapping();
        mapping.header().retired.store(1, Ordering::SeqCst);
        // Who moves in from here on looks at that again when it has.
        fence(Ordering::SeqCst);
        for index in 1..=self.mapping().layout().capacity.places() {
            let place = mapping.place(index).expect("an index of the table");
            let identity = place.identity();
            if identity.phase() == Phase::Occupied as u64 {
                place.control.close(identity.incarnation() as u16, true);
                mapping.wake(index);
            }
        }
        for number in 0..BUCKETS {
            mapping.bucket(number).bell.ring_always();
        }
        // Best effort here: new endpoints cannot attach, and tokens of the next incarnation win.
        let _ = barrier(false);
    }
}

impl Mapping {
    /// Looks which places of the next full word of bits are vacant. One word for every attacher:
    /// what became vacant is found sooner or later, and nobody looks at the whole table for it.
    fn sweep_a_full_word(&self) -> io::Result<()> {
        let endpoints = self.layout().capacity.endpoints;
        let words = taken::words_of(endpoints);
        let cursor = &self.header().cursor;
        let first = cursor.load(Ordering::Relaxed) as usize % words;
        let full = (first..words).chain(0..first).find(|w| self.taken().is_full(*w, endpoints));
        if let Some(word) = full {
            self.sweep(word)?;
            cursor.store(word as u64 + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Clears the bits of this word whose places are vacant, or whose owners died. A place that an
    /// attacher is moving into stays as it is.
    fn sweep(&self, word: usize) -> io::Result<()> {
        for index in taken::places_of(word, self.layout().capacity.places()) {
            if self.claimable(index).is_some()
                && let Some(latch) = Latch::try_take(self.file(), index)?
                && self.claimable(index).is_some()
            {
                self.taken().clear(&latch);
            }
        }
        Ok(())
    }

    /// Looks who is dead of those that share a word of bits with this place: what they left of
    /// tethers is removed by the first that sees them dead.
    fn look_around(&self, index: u16) {
        for other in taken::places_of(taken::word_of(index), self.layout().capacity.places()) {
            let _ = self.occupant(other);
        }
    }

    /// Begins another lap of the table if any of these places is vacant and could be had then: its
    /// incarnations are used up in this one. So an endpoint's name comes back only when no place
    /// had another one left: of its last owner nothing is left by then.
    fn begin_lap(&self, first: u16, last: u16) -> bool {
        let lap = self.lap();
        let waits = |index| {
            let vacant = self.vacant(index);
            vacant.is_some_and(|identity| self.successor(identity, lap + 1).is_some())
        };
        let begins = (first..=last).any(waits);
        if begins {
            // Where another attacher has just begun it, that will do.
            let (was, next) = (lap, lap + 1);
            let lap = &self.header().lap;
            let _ = lap.compare_exchange(was, next, Ordering::SeqCst, Ordering::SeqCst);
        }
        begins
    }

    fn lap(&self) -> u64 {
        self.header().lap.load(Ordering::SeqCst)
    }

    /// What becomes of a place in this lap when it is claimed; `None` if it cannot be.
    fn successor(&self, last: Identity, lap: u64) -> Option<Identity> {
        let first = self.origin().first_endpoints();
        let (lap, claimed) = (lap & Identity::LAP.max(), Identity::new().in_phase(Phase::Claimed));
        let is_behind = last.incarnation() != 0 && last.lap() != lap;
        let next = next_incarnation(first, last.incarnation() as u16);
        // In a new lap a place goes on where it was, and begins anew only where that was the end.
        let next = if is_behind { next.or(Some(first)) } else { next };
        let claimed = claimed.with(Identity::INCARNATION, next?.into());
        let is_first = next == Some(first);
        Some(claimed.with(Identity::LAP, if is_first { lap } else { last.lap() }))
    }

    /// Who was in a place that can be claimed, vacant or its owner dead, and who will be; certain
    /// only for who has the place's latch.
    fn claimable(&self, index: u16) -> Option<(Identity, Identity)> {
        let identity = self.vacant(index)?;
        Some((identity, self.successor(identity, self.lap())?))
    }

    /// Who was in a place, vacant or its owner dead.
    fn vacant(&self, index: u16) -> Option<Identity> {
        let place = self.place(index)?;
        let mut identity = place.identity();
        if identity.phase() == Phase::Occupied as u64 {
            let owner = EndpointId { index, incarnation: identity.incarnation() as u16 };
            if self.vital(owner) != Vital::Dead {
                return None;
            }
            identity = place.identity();
        }
        // A mark that cannot be examined is taken for set: another place will do.
        if identity.lane() != 0 && mark::is_marked(self.file(), index).unwrap_or(true) {
            return None;
        }
        Some(identity)
    }

    /// Claims a place. Returns the new incarnation.
    fn claim(&self, latch: &Latch<'_>) -> Option<u16> {
        let (identity, claimed) = self.claimable(latch.index())?;
        let place = self.place(latch.index()).expect("a place that can be claimed");
        place.replace(identity, claimed).then_some(claimed.incarnation() as u16)
    }

    /// Prepares a claimed place and moves in. Returns false where a message to the former owner
    /// is still being written.
    fn initialise(
        &self,
        region: &Region,
        id: EndpointId,
        kind: &Kind,
    ) -> Result<bool, ConnectError> {
        let place = self.place(id.index).expect("a claimed place");
        let is_writing = |sender| self.vital(sender) == Vital::Alive;
        for slot in (0..self.layout().capacity.slots).map(Slot) {
            let mailbox = self.mailbox(id.index, slot).expect("a slot of a claimed place");
            if !mailbox.reset(id.incarnation, is_writing) {
                return Ok(false);
            }
            let record = self.record(id.index, slot).expect("a slot of a claimed place");
            record.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        place.control.open(id.incarnation);
        place.lease.write(kind.lease.as_ref());
        let process = region.process();
        place.display.pid.store(process.pid, Ordering::Relaxed);
        place.display.orphaned.store(0, Ordering::Relaxed);
        place.display.started_ticks.store(process.started_ticks, Ordering::Relaxed);
        place.display.since_ns.store(boot_time(), Ordering::Relaxed);
        place.display.set_label(region.label());
        place.control.home.write(Home::own());
        place.beacon.light().map_err(|failed| ConnectError::NoBeacon { why: failed.0 })?;
        let claimed = place.identity();
        let occupied = claimed
            .with(Identity::TETHERED, kind.is_tethered.into())
            .with(Identity::LEASED, kind.lease.is_some().into())
            .with(Identity::EXPEDITED, register_for_barriers().into())
            .with(Identity::LANE, kind.has_lane.into())
            .in_phase(Phase::Occupied);
        assert!(place.replace(claimed, occupied), "a claimed place is its claimer's");
        // Before its first verb, so that a server tells of it before any effect of it.
        self.header().arrivals.fetch_add(1, Ordering::SeqCst);
        Ok(true)
    }

    /// Refuses the verbs of this endpoint's lane from now on, and waits for the one under way, if
    /// there is one. The caller's thread keeps the place. `false`: it does not end; its thread is
    /// starved, or what says so was damaged. Then the place is lost until the caller's thread ends.
    ///
    /// Turns are no bound: where many want the processors a yield lasts as long as they please.
    pub(super) fn stop_lane(&self, id: EndpointId) -> bool {
        /// A verb takes nanoseconds: its thread was interrupted. Naps leave it a processor.
        const YIELDS: Duration = Duration::from_millis(1);
        const NAP: Duration = Duration::from_millis(1);
        let place = self.place(id.index).expect("an endpoint has a place");
        self.silence(place, place.identity(), id);
        let begun = Instant::now();
        let has_ended = loop {
            if !place.control.is_busy() || place.control.is_damaged() {
                break true;
            }
            match begun.elapsed() {
                waited if waited < YIELDS => std::thread::yield_now(),
                waited if waited < WITHIN_A_VERB_MAX => std::thread::sleep(NAP),
                _ => break false,
            }
        };
        self.wake(id.index);
        has_ended && !place.control.is_damaged()
    }

    /// Closes the gate of a lane, and makes sure that every thread has seen it closed, or ends,
    /// before it executes another verb.
    fn silence(&self, place: &Place, identity: Identity, id: EndpointId) {
        /// Longer than any timer's tick, which interrupts a thread as a barrier does.
        const WITHOUT_BARRIERS: Duration = Duration::from_millis(20);
        place.control.close(id.incarnation, false);
        if !barrier(identity.expedited() != 0) {
            std::thread::sleep(WITHOUT_BARRIERS);
        }
    }

    /// Makes sure that no verb of a lane takes effect any more. The thread that died is not the one
    /// that executed them.
    ///
    /// If their process ends, that one was told to end before the beacon went out, and does so at
    /// the next interrupt. If it was within a verb, nobody can tell that from a thread that lives
    /// on because its keeper was forgotten, but by the mark, which goes with the process.
    fn end_lane(&self, place: &Place, identity: Identity, id: EndpointId) {
        self.silence(place, identity, id);
        let begun = Instant::now();
        while place.control.is_busy()
            && mark::is_marked(self.file(), id.index).unwrap_or(true)
            && begun.elapsed() < WITHIN_A_VERB_MAX
        {
            std::thread::yield_now();
        }
    }

    /// Moves out. The caller's thread is the owner and has no verb under way, nor has its lane; it
    /// holds no tether any more.
    pub(super) fn move_out(&self, id: EndpointId) {
        let place = self.place(id.index).expect("an endpoint has a place");
        let identity = place.identity();
        // Where it is another's the table was damaged: that one's it stays.
        if identity.is(Phase::Occupied, id.incarnation) {
            let _ = place.replace(identity, identity.in_phase(Phase::Vacant));
        }
        place.beacon.extinguish();
    }

    /// How this endpoint is. The first to see it dead vacates its place and tells the others.
    #[inline]
    pub(super) fn vital(&self, id: EndpointId) -> Vital {
        let Some(place) = self.place(id.index) else { return Vital::Dead };
        let identity = place.identity();
        if !identity.is(Phase::Occupied, id.incarnation) {
            return Vital::Dead;
        }
        if place.beacon.is_lit() { Vital::Alive } else { self.confirm_death(place, identity, id) }
    }

    #[cold]
    fn confirm_death(&self, place: &Place, identity: Identity, id: EndpointId) -> Vital {
        if identity.lane() != 0 {
            self.end_lane(place, identity, id);
        }
        if identity.leased() != 0 && !place.lease.is_over() {
            return Vital::Leased;
        }
        // A tether that cannot be examined is taken for held: waiting is safe, a successor is not.
        if identity.tethered() != 0 && self.tethers().is_held(id.index).unwrap_or(true) {
            return Vital::Orphaned;
        }
        if place.replace(identity, identity.in_phase(Phase::Vacant)) {
            place.beacon.pass_on();
            if identity.tethered() != 0 {
                // One that stays is in nobody's way.
                let _ = self.remove_tether(place, id.index);
            }
        }
        Vital::Dead
    }

    /// Removes the file of the tether that a dead owner left, unless a newcomer has the place by
    /// now, or is about to: it takes the tether under the latch.
    fn remove_tether(&self, place: &Place, index: u16) -> io::Result<()> {
        // Threads of this process share its other latches, and this one may attach just now.
        let file = open_again(self.file(), OFlags::RDWR)?;
        if let Some(_latch) = Latch::try_take(&file, index)?
            && place.identity().phase() == Phase::Vacant as u64
            && !self.tethers().is_held(index)?
        {
            self.tethers().remove(index);
        }
        Ok(())
    }

    pub(super) fn occupant(&self, index: u16) -> Option<EndpointId> {
        let identity = self.place(index)?.identity();
        let id = EndpointId { index, incarnation: identity.incarnation() as u16 };
        (self.vital(id) != Vital::Dead).then_some(id)
    }

    fn info(&self, index: u16) -> Option<Peer> {
        let place = self.place(index)?;
        let identity = place.identity();
        let id = EndpointId { index, incarnation: identity.incarnation() as u16 };
        let vital = self.vital(id);
        let display = &place.display;
        let info = Peer {
            id,
            pid: display.pid.load(Ordering::Relaxed),
            started_ticks: display.started_ticks.load(Ordering::Relaxed),
            since: display.since_ns.load(Ordering::Relaxed),
            label: display.label(),
            home: place.control.home.read(),
            tethered: identity.tethered() != 0,
            orphaned: vital == Vital::Orphaned || display.orphaned.load(Ordering::Relaxed) != 0,
        };
        // The place may have changed hands meanwhile; then this is nobody's description.
        (vital != Vital::Dead && place.identity() == identity).then_some(info)
    }

    /// Wakes the endpoint in this place if it sleeps on its mailboxes.
    fn wake(&self, index: u16) {
        for slot in (0..self.layout().capacity.slots).map(Slot) {
            let mailbox = self.mailbox(index, slot).expect("a slot of the table");
            mailbox.bell.ring_always();
        }
    }
}

/// The incarnation after `last` of a place, 0 before the first, where `first` comes first. `None`
/// where all are used up: the place stays vacant until the next lap of the table.
fn next_incarnation(first: u16, last: u16) -> Option<u16> {
    if last == 0 {
        return Some(first);
    }
    let next = last.checked_add(1).unwrap_or(1);
    (next != first).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_65535_incarnations_and_none_comes_back() {
        for first in [1, 2, 40_000, u16::MAX] {
            let mut seen = vec![false; 1 << 16];
            let mut last = 0;
            while let Some(next) = next_incarnation(first, last) {
                assert!(next != 0 && !seen[usize::from(next)]);
                seen[usize::from(next)] = true;
                last = next;
            }
            assert_eq!(seen.iter().filter(|seen| **seen).count(), 65_535);
        }
    }
}
