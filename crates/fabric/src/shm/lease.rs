//! Leases: what keeps the place of a client elsewhere while no server does.
//!
//! The thread of a server keeps the beacons of its clients' places. When the server ends, however
//! it ends, they go out, and the clients know nothing of that yet. So each such place has a lease,
//! a time of the boot clock until which it counts as alive all the same: its client reckons with an
//! earlier one. By then the next server may have taken the place over
//! ([`succession`](super::succession)); otherwise the first that looks finds the endpoint dead.

use super::primitive::{AtomicU64, Ordering, boot_time};
use crate::endpoint::Nanos;

/// What keeps a place while no server does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lease {
    /// What its client alone knows.
    pub(crate) secret: u128,
    /// Which of its client's lanes it is.
    pub(crate) lane: u32,
    /// Whether it ever had a tether.
    pub(crate) was_tied: bool,
    /// When it ends, on the boot clock.
    pub(crate) until: Nanos,
}

/// A lease in the region.
#[repr(C, align(64))]
pub(super) struct LeaseLine {
    pub(super) until: AtomicU64,
    pub(super) secret: [AtomicU64; 2],
    /// The lane and, above it, [`TIED`].
    pub(super) lane: AtomicU64,
    /// The last verb that a server began for the client, and 1 above that.
    pub(super) begun: AtomicU64,
    /// The same of the last one that it ended, and how above that.
    pub(super) ended: AtomicU64,
    /// What that one read.
    pub(super) old: [AtomicU64; 2],
}

const _: () = assert!(size_of::<LeaseLine>() == 64);

/// Above a lane: that it had a tether.
pub(super) const TIED: u64 = 1 << 32;

impl LeaseLine {
    pub(super) fn write(&self, lease: Option<&Lease>) {
        let Lease { secret, lane, was_tied, until } = lease.copied().unwrap_or(Lease::NONE);
        self.until.store(until, Ordering::Relaxed);
        self.secret[0].store(secret as u64, Ordering::Relaxed);
        self.secret[1].store((secret >> 64) as u64, Ordering::Relaxed);
        let tied = if was_tied { TIED } else { 0 };
        self.lane.store(u64::from(lane) | tied, Ordering::Relaxed);
        self.begun.store(0, Ordering::Relaxed);
        self.ended.store(0, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        boot_time() >= self.until.load(Ordering::Relaxed)
    }
}

impl Lease {
    const NONE: Self = Self { secret: 0, lane: 0, was_tied: false, until: 0 };
}
