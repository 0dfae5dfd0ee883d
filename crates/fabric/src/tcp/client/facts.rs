//! What a client knows of its server from the beginning.

use crate::addr::{Addr, RegionId};
use crate::connection::Origin;
use crate::endpoint::{Nanos, RECORD_WORDS};
use crate::error::Garbled;
use crate::home::boot_id;
use crate::shm::REGION_BYTES_MAX;
use crate::tcp::clock::boot_time;
use crate::tcp::wire::{Fields, RENEWALS};

/// What the server says of the region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) origin: Origin,
    pub(super) heap: Addr,
    pub(super) heap_bytes: u64,
    pub(super) records: Addr,
    /// Places of endpoints that act.
    pub(super) acting: u16,
    /// All places.
    pub(super) all: u16,
    pub(super) slots: u8,
    /// A time on the server's clock, and one on the client's that was not later.
    clocks: (Nanos, Nanos),
    pub(super) lease: Granted,
}

/// For how long the server takes the client for alive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    /// By which the server knows the client again.
    pub(super) secret: u128,
    /// How long a lease lasts from when it was asked for.
    pub(super) length: Nanos,
    /// Whether the client lives as long as its connection stands, however long it says nothing.
    pub(super) is_by_connection: bool,
}

impl Granted {
    /// Until when a lease is good that was asked for at this time: a tenth earlier than the server
    /// has it, so that what depends on it can be ended, and clocks may go wrong.
    pub(super) fn until(&self, asked_at: Nanos) -> Nanos {
        asked_at.saturating_add(self.length - self.length / 10)
    }

    /// When to ask again.
    pub(super) fn renews_at(&self, asked_at: Nanos) -> Nanos {
        asked_at.saturating_add(self.length / Nanos::from(RENEWALS))
    }
}

impl Facts {
    pub(super) fn take(fields: &mut Fields<'_>, asked_at: Nanos) -> Result<Self, Garbled> {
        let origin = Origin { incarnation: fields.u16()?, first_count: fields.u64()? };
        let facts = Self {
            origin,
            heap: Addr::from_bits(fields.u64()?),
            heap_bytes: fields.u64()?,
            records: Addr::from_bits(fields.u64()?),
            acting: fields.u16()?,
            all: fields.u16()?,
            slots: fields.u8()?,
            clocks: same_time((fields.u64()?, fields.u128()?), asked_at),
            lease: Granted {
                secret: fields.u128()?,
                length: fields.u64()?,
                is_by_connection: fields.u8()? != 0,
            },
        };
        // Nothing that is found from there on is beyond what addresses reach.
        let reaches = |at: Addr, bytes: u64| at.offset().saturating_add(bytes) <= REGION_BYTES_MAX;
        let records = u64::from(facts.all) * u64::from(facts.slots) * RECORD_WORDS as u64 * 8;
        let is_sound = facts.heap.region() != RegionId(0)
            && (facts.slots > 0 && facts.all > 0)
            && reaches(facts.heap, facts.heap_bytes)
            && reaches(facts.records, records);
        if is_sound { Ok(facts) } else { Err(Garbled("its facts are not those of a region")) }
    }

    /// Whether server and client read the same clock.
    pub(super) fn has_one_clock(&self) -> bool {
        self.clocks.0 == self.clocks.1
    }

    /// A time of the server on the client's clock: never later than it was.
    pub(super) fn on_own_clock(&self, theirs: Nanos) -> Nanos {
        let (server, client) = self.clocks;
        (client as i64).wrapping_add(theirs.wrapping_sub(server) as i64).max(0) as Nanos
    }
}

/// A time that the server's clock had after the client asked for it, and a time of the client's
/// clock that was not later. Where both read the clock of one kernel, it is the same time.
fn same_time((theirs, boot): (Nanos, u128), asked_at: Nanos) -> (Nanos, Nanos) {
    let is_one_clock = boot == boot_id() && boot != 0 && (asked_at..=boot_time()).contains(&theirs);
    (theirs, if is_one_clock { theirs } else { asked_at })
}
