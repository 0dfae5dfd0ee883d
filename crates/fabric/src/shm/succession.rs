//! What the next server of a region takes over from the last.
//!
//! It finds the places whose servers have ended and whose leases have not, lights their beacons,
//! and goes on: words, records and mailboxes lie in the region. A client that looks at such a place
//! when its lease has ended decides otherwise, by the same word, the place's identity: that one
//! vacates the place, the server counts itself in it, and only one of the two finds what it looked
//! at.

use std::cell::Cell;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::sync::atomic::compiler_fence;

use rustix::fs::OFlags;

use super::endpoint::Shm;
use super::keeper::{Keeper, PlaceKeeper};
use super::latch::Latch;
use super::lease::{Lease, LeaseLine, TIED};
use super::mailbox::Next;
use super::mapping::Mapping;
use super::parking::BUCKETS;
use super::place::{Identity, Phase};
use super::primitive::Ordering;
use super::region::Region;
use super::table::Kind;
use super::tether::{open_again, set_lock};
use crate::addr::{EndpointId, Slot};
use crate::endpoint::{Envelope, Nanos};
use crate::error::ConnectError;

/// What became of a verb that a client has sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Before {
    /// It was not begun.
    Nothing,
    /// It was ended with this code, and this is what it read.
    Ended(u8, u128),
    /// It was begun, and no more is known.
    Begun,
    /// It was ended, for a later one was begun; how is not known.
    Past,
}

/// What keeps the place of a remote client's endpoint: its server's thread, or a lease.
#[derive(Debug)]
pub(crate) struct LeasedKeeper {
    keeper: Keeper,
    /// The verb that is being executed, and of which the end is not in the region yet.
    begun: Cell<Option<u32>>,
}

/// The endpoint of a remote client.
pub(crate) type LeasedEndpoint = Shm<LeasedKeeper>;

impl LeasedKeeper {
    /// However its server ends, by a panic too, the place is left to the next one.
    fn new(mut keeper: Keeper) -> Self {
        keeper.is_left = true;
        Self { keeper, begun: Cell::new(None) }
    }

    fn line(&self) -> &LeaseLine {
        let Keeper { id, region, .. } = &self.keeper;
        &region.mapping().place(id.index).expect("an endpoint has a place").lease
    }
}

impl PlaceKeeper for LeasedKeeper {
    const IS_ELSEWHERE: bool = false;

    /// As late as can be: a server that is killed between this and the end leaves a verb of which
    /// nobody knows whether it was executed.
    fn will_change(&self) {
        if let Some(ticket) = self.begun.get() {
            self.line().begin(ticket);
        }
    }

    /// At once: a server that is killed before it has told leaves what it would have told.
    fn has_changed(&self, old: u128) {
        if let Some(ticket) = self.begun.take() {
            self.line().end(ticket, WELL, old);
        }
    }
}

/// The code of a verb that ended well.
const WELL: u8 = 0;

impl LeaseLine {
    /// A verb of the client, or a chain, may have taken effect from now on.
    fn begin(&self, ticket: u32) {
        self.begun.store(SOME | u64::from(ticket), Ordering::Relaxed);
        // A process that is killed has stored what comes before, as far as it came.
        compiler_fence(Ordering::SeqCst);
    }

    /// A verb of the client has ended with this code, and read this.
    fn end(&self, ticket: u32, code: u8, old: u128) {
        self.old[0].store(old as u64, Ordering::Relaxed);
        self.old[1].store((old >> 64) as u64, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.ended.store(u64::from(ticket) | (u64::from(code) + 1) << 32, Ordering::Relaxed);
    }

    fn read(&self) -> Lease {
        let [low, high] = [0, 1].map(|half: usize| self.secret[half].load(Ordering::Relaxed));
        Lease {
            secret: u128::from(high) << 64 | u128::from(low),
            lane: self.lane.load(Ordering::Relaxed) as u32,
            was_tied: self.lane.load(Ordering::Relaxed) & TIED != 0,
            until: self.until.load(Ordering::Relaxed),
        }
    }
}

/// Where the byte is that the server of a region locks: behind those of latches.
const SERVED_AT: i64 = 3 << 16;

/// The right to serve a region, which one server has: by its successor clients find what they had.
/// A kernel lock on a byte of the region's file, which the server's end lets go of.
#[derive(Debug)]
pub(crate) struct Serving {
    _file: File,
}

impl Region {
    /// Takes the right to serve it.
    ///
    /// # Errors
    /// See [`ConnectError`]: another server has it.
    pub(crate) fn serve(&self) -> Result<Serving, ConnectError> {
        let failed = |source| ConnectError::System { what: "serve the region", source };
        let file = open_again(self.mapping().file(), OFlags::RDWR).map_err(failed)?;
        set_lock(&file, libc::F_WRLCK, SERVED_AT).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => ConnectError::Served { name: self.name().to_owned() },
            _ => failed(error),
        })?;
        Ok(Serving { _file: file })
    }

    /// Attaches as [`Region::endpoint`] does, for a client elsewhere.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub(crate) fn leased_endpoint(&self, lease: Lease) -> Result<LeasedEndpoint, ConnectError> {
        let keeper = self.move_in(&Kind { lease: Some(lease), ..Kind::default() })?;
        Ok(Shm::new(self, keeper.id, LeasedKeeper::new(keeper)))
    }

    /// Takes over the places of clients whose server has ended and whose leases have not. What
    /// those were sending when it ended is sent as a message of nobody.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub(crate) fn adopt(&self) -> Result<Vec<(LeasedEndpoint, Lease)>, ConnectError> {
        let failed = |source| ConnectError::System { what: "take over a place", source };
        let mut adopted = Vec::new();
        for index in 1..=self.endpoints() {
            if self.mapping().is_left(index)
                && let Some((keeper, lease)) = self.adopt_place(index).map_err(failed)?
            {
                adopted.push((Shm::new(self, keeper.id, LeasedKeeper::new(keeper)), lease));
            }
        }
        let ids: HashSet<u64> = adopted.iter().map(|(shm, _)| shm.identity().bits()).collect();
        if !ids.is_empty() {
            self.mapping().finish_for(|sender| ids.contains(&sender.bits()));
        }
        Ok(adopted)
    }

    fn adopt_place(&self, index: u16) -> io::Result<Option<(Keeper, Lease)>> {
        let _turn = self.attaching()?;
        let mapping = self.mapping();
        if self.keepers().check().is_err() || self.is_retired() {
            return Ok(None);
        }
        let Some(_latch) = Latch::try_take(mapping.file(), index)? else { return Ok(None) };
        if !mapping.is_left(index) {
            return Ok(None);
        }
        let place = mapping.place(index).expect("an index of the table");
        let identity = place.identity();
        place.beacon.light().map_err(|failed| io::Error::other(failed.0))?;
        let servers = identity.servers().wrapping_add(1) & Identity::SERVERS.max();
        if !place.replace(identity, identity.with(Identity::SERVERS, servers)) {
            place.beacon.extinguish();
            return Ok(None);
        }
        let id = EndpointId { index, incarnation: identity.incarnation() as u16 };
        Ok(Some((Keeper::new(self, id, None, false), place.lease.read())))
    }
}

impl Mapping {
    /// Whether the server of a remote client's place has ended, and the client may come back.
    fn is_left(&self, index: u16) -> bool {
        let Some(place) = self.place(index) else { return false };
        let identity = place.identity();
        let is_leased = identity.phase() == Phase::Occupied as u64 && identity.leased() != 0;
        is_leased && !place.beacon.is_lit() && !place.lease.is_over()
    }

    /// Ends the messages that these have begun, and wakes all sleepers that they may not have
    /// woken.
    fn finish_for(&self, is_of: impl Fn(EndpointId) -> bool) {
        let capacity = self.layout().capacity;
        for number in 0..BUCKETS {
            self.bucket(number).bell.ring();
        }
        for index in 1..=capacity.places() {
            for slot in (0..capacity.slots).map(Slot) {
                let mailbox = self.mailbox(index, slot).expect("a slot of the table");
                mailbox.end_messages(&is_of);
                mailbox.bell.ring();
            }
        }
    }
}

/// Above a ticket, that there is one.
const SOME: u64 = 1 << 32;

impl LeasedEndpoint {
    fn lease(&self) -> &LeaseLine {
        self.keeper.line()
    }

    /// A verb, or a chain, of the client is executed. They come in the order of their tickets,
    /// which wrap; one that is not new was sent again.
    pub(crate) fn begin_verb(&self, ticket: u32, is_chain: bool) -> Before {
        let line = self.lease();
        let begun = line.begun.load(Ordering::Relaxed);
        if begun & SOME == 0 || ticket.wrapping_sub(begun as u32) as i32 > 0 {
            // How a chain ended is too much to keep, so a part of it is as good as all.
            if is_chain {
                line.begin(ticket);
            }
            self.keeper.begun.set((!is_chain).then_some(ticket));
            return Before::Nothing;
        }
        let ended = line.ended.load(Ordering::Relaxed);
        if begun as u32 != ticket {
            return Before::Past;
        }
        if ended as u32 != ticket || ended >> 32 == 0 {
            return Before::Begun;
        }
        let [low, high] = [0, 1].map(|half: usize| line.old[half].load(Ordering::Relaxed));
        Before::Ended((ended >> 32) as u8 - 1, u128::from(high) << 64 | u128::from(low))
    }

    /// What was begun has ended, with this code if it is not known yet how.
    pub(crate) fn end_verb(&self, code: u8, old: u128) {
        if let Some(ticket) = self.keeper.begun.take() {
            self.lease().end(ticket, code, old);
        }
    }

    /// Until when others take it for alive if its server ends.
    pub(crate) fn lease_until(&self, until: Nanos) {
        self.lease().until.store(until, Ordering::Relaxed);
    }

    /// A tether keeps its place too, of which the next server will not know.
    pub(crate) fn note_tether(&self) {
        self.lease().lane.fetch_or(TIED, Ordering::Relaxed);
    }

    /// The client is dead, and the place vacant.
    pub(crate) fn end(mut self) {
        self.keeper.keeper.is_left = false;
    }

    /// Which message of a slot is the first that was not taken.
    pub(crate) fn next_message(&self, slot: Slot) -> u64 {
        self.mailbox(slot).1
    }

    /// The message of this number, or the next one that can be taken if that is later; it is not
    /// taken. Messages of nobody, and of senders that died writing them, are passed over.
    pub(crate) fn look_ahead(&self, slot: Slot, number: u64) -> Option<(u64, Envelope)> {
        let is_there = self.has_mail(slot);
        let (cells, first) = self.mailbox(slot);
        let number = number.max(first);
        let is_next = cells.next(self.identity().incarnation, number) == Next::Here;
        if !is_next || number == first && !is_there {
            return None;
        }
        let envelope = cells.read(number);
        // What comes behind one of nobody comes when that is passed over.
        envelope.from.is_somebody().then_some((number, envelope))
    }
}

#[cfg(test)]
mod tests {
    use super::super::region::Options;
    use super::super::testing::TestDir;
    use super::*;
    use crate::endpoint::{Endpoint, block_on};

    #[test]
    fn what_is_sent_again_was_begun_and_what_is_new_was_not() {
        let dir = TestDir::new("sent-again");
        let options = Options::new(dir.path(), dir.path().join("state"), "r");
        let region = Region::open(&options).unwrap();
        let word = region.heap().0;
        let lease = Lease { secret: 1, lane: 0, was_tied: false, until: Nanos::MAX };
        let client = region.leased_endpoint(lease).unwrap();
        let adds = || block_on(&client, client.faa64(word, 5)).unwrap();
        // The second after the first, and those around the wrap of tickets.
        for (first, old) in [(1, 0), (u32::MAX / 2, 5), (u32::MAX - 1, 10), (u32::MAX, 15), (0, 20)]
        {
            assert_eq!(client.begin_verb(first, false), Before::Nothing);
            adds();
            assert_eq!(client.begin_verb(first, false), Before::Ended(WELL, old));
        }
        let (chain, next) = (1, 2);
        assert_eq!(client.begin_verb(chain, true), Before::Nothing);
        assert_eq!(client.begin_verb(chain, true), Before::Begun);
        assert_eq!(client.begin_verb(next, true), Before::Nothing);
        assert_eq!(client.begin_verb(chain, true), Before::Past);
    }
}
