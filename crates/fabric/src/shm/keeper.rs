//! Who keeps an endpoint's place: its own thread, or a keeper on the thread that attached, for a
//! lane that goes from thread to thread.
//!
//! ```text
//! Region::endpoint()   Shm<Keeper>                 stays on its thread, moves out when dropped
//! Region::lane()       Shm<Kept>  and a Keeper     the lane may be moved, the keeper may not
//! ```
//!
//! A keeper and its lane know nothing of each other; either may end first.
//!
//! * **The keeper ends first**: it closes the gate for good, makes every processor pass a barrier,
//!   and waits until the lane is not within a verb. Then it moves out, and everybody sees the
//!   endpoint dead. The lane's verbs end with [`Revoked`](crate::Fault::Revoked) from then on.
//! * **The keeper's thread or process ends without that**: a process that finds the beacon out
//!   closes the gate and makes every processor pass a barrier before it says that the endpoint is
//!   dead. The kernel puts out a beacon of an ending process only after every other thread of it
//!   was told to end, and no thread that was told so leaves the interrupt of a barrier for its
//!   program. So no verb takes effect after the death.
//! * **The keeper is forgotten, and its thread ends while the process lives on**: the same, and the
//!   process that finds the beacon out also waits until the lane is in no verb, up to 100 ms.
//! * **The lane ends first**: nothing happens; the endpoint lives as long as its keeper.
//!
//! A lane without its keeper still stores into its own place: its record, its mailboxes, the line
//! of its gate. All of that is harmless as long as the place is nobody else's. So the process
//! marks the place of a lane ([`mark`](super::mark)), and while the mark stands, which is as long
//! as the lane exists and its process lives, nobody moves in.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::thread::ThreadId;

use super::primitive::{Planted, planted};
use super::region::Region;
use super::tether::Tether;
use crate::addr::EndpointId;
use crate::endpoint::NotSend;

/// What keeps an endpoint's place: a [`Keeper`] of its own, or one elsewhere.
pub trait PlaceKeeper: 'static {
    /// Another thread than the one that keeps the place may execute the verbs. So the place may be
    /// left while a verb is under way, and each says while it is: two plain stores to the
    /// endpoint's own line. No cheaper word tells the keeper that a thread of this process stands
    /// between its look at the gate and its locked instruction.
    const IS_ELSEWHERE: bool;

    /// A verb may change memory from now on.
    #[inline(always)]
    fn will_change(&self) {}

    /// A verb that changes memory has taken effect, and read this; no sleeper was woken yet.
    #[inline(always)]
    fn has_changed(&self, _old: u128) {}
}

/// Its thread leaves the place, or dies, between two verbs.
impl PlaceKeeper for Keeper {
    const IS_ELSEWHERE: bool = false;
}

impl PlaceKeeper for Kept {
    const IS_ELSEWHERE: bool = true;
}

/// Keeps an endpoint's place for the thread that attached. Dropping it leaves the region: the
/// endpoint is dead, and its lane's verbs are refused.
///
/// It belongs to its thread, whose end, in order or by a panic, drops it. One that was forgotten
/// ([`std::mem::forget`]) keeps its place until its thread ends; then a verb of its lane that was
/// begun, and has been starved for 100 ms, may still take effect, and no later one.
///
/// In a child made by `fork` it is only safe to drop it, which does nothing.
///
/// ```compile_fail,E0277
/// fn moves<T: Send>() {}
/// moves::<farlock_fabric::shm::Keeper>();
/// ```
#[derive(Debug)]
#[must_use = "the endpoint lives as long as its keeper"]
pub struct Keeper {
    pub(super) id: EndpointId,
    pub(super) tether: Option<Tether>,
    /// Whether another value executes the verbs.
    pub(super) has_lane: bool,
    /// Whether the place is left to the next server of its client, as a crash would leave it.
    pub(super) is_left: bool,
    /// The process that attached: a forked child is another.
    pid: u32,
    /// The thread that attached: a thread that is nearly over no longer knows its name.
    thread: ThreadId,
    pub(super) region: Region,
    _not_send: NotSend,
}

impl Keeper {
    /// Keeps the place that the calling thread has just moved into.
    pub(super) fn new(
        region: &Region,
        id: EndpointId,
        tether: Option<Tether>,
        has_lane: bool,
    ) -> Self {
        let (pid, region) = (region.process().pid, region.clone());
        let thread = std::thread::current().id();
        region.keepers().add(thread);
        let is_left = false;
        Self { id, tether, has_lane, is_left, pid, thread, region, _not_send: PhantomData }
    }

    /// Whose place it keeps.
    pub fn id(&self) -> EndpointId {
        self.id
    }

    /// The descriptor that keeps this endpoint alive in the processes that have it when this one
    /// dies; only a tethered endpoint has one. Its duplicates count as it does. A keeper that is
    /// dropped lets go of all of them.
    pub fn tether_fd(&self) -> Option<BorrowedFd<'_>> {
        self.tether.as_ref().map(Tether::fd)
    }

    /// Whether programs executed by this process inherit the tether: not at first. Without a
    /// tether nothing happens.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_tether_inherited(&self, inherited: bool) -> std::io::Result<()> {
        self.tether.as_ref().map_or(Ok(()), |tether| tether.set_inherited(inherited))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            return;
        }
        let mapping = self.region.mapping();
        if self.is_left {
            mapping.place(self.id.index).expect("an endpoint has a place").beacon.extinguish();
            return self.region.keepers().remove(self.thread);
        }
        let is_over = !self.has_lane || mapping.stop_lane(self.id);
        let tether = self.tether.take();
        let is_orphaned = tether.is_some() && planted(Planted::LeavesOrphan);
        if let Some(tether) = tether
            && !planted(Planted::LeavesTether)
        {
            tether.release();
            mapping.tethers().remove(self.id.index);
        }
        // Else the place stays this thread's until that ends: a verb may still take effect.
        if is_over && !is_orphaned {
            mapping.move_out(self.id);
        }
        self.region.keepers().remove(self.thread);
    }
}

/// What a lane has instead of a [`Keeper`]: the mark that keeps its place from others while the
/// lane exists.
#[derive(Debug)]
pub struct Kept {
    index: u16,
    /// The process that attached: a forked child is another.
    pid: u32,
    region: Region,
}

impl Kept {
    /// The place with this index is marked already.
    pub(super) fn new(region: &Region, index: u16) -> Self {
        Self { index, pid: region.process().pid, region: region.clone() }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // A forked child shares the marks of its parent, whose lane goes on.
        if std::process::id() == self.pid {
            self.region.unmark(self.index);
        }
    }
}
