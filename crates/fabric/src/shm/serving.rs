//! What a server of this region needs beyond what its endpoints have: which endpoints arrive, and
//! what to sleep on for many of them at once.

use super::endpoint::Shm;
use super::keeper::PlaceKeeper;
use super::place::{Display, Place};
use super::primitive::Ordering;
use super::process::Process;
use super::region::{REGION, Region};
use crate::addr::{Addr, EndpointId};
use crate::endpoint::{Nanos, RECORD_WORDS, Wait};
use crate::home::Home;

pub(crate) use super::lease::Lease;
pub(crate) use super::primitive::{Source, sleep, wake_all};
pub(crate) use super::succession::{Before, LeasedEndpoint, Serving};
pub(crate) use super::times::LOOK_AGAIN_NS;

impl Region {
    /// How many endpoints have arrived, wrapping. One is counted before its first verb.
    #[inline]
    pub(crate) fn arrivals(&self) -> u64 {
        self.mapping().header().arrivals.load(Ordering::SeqCst)
    }

    /// The living endpoints, in the order of their indices.
    pub(crate) fn occupants(&self) -> impl Iterator<Item = EndpointId> {
        let (taken, places) = (self.mapping().taken(), self.places());
        let next = move |last: &u16| taken.first_from(last + 1, places);
        std::iter::successors(taken.first_from(1, places), next)
            .filter_map(|index| self.mapping().occupant(index))
    }

    /// Places of the table, those of endpoints that only read among them.
    pub(crate) fn places(&self) -> u16 {
        self.mapping().layout().capacity.places()
    }

    /// Where the records of all slots begin.
    pub(crate) fn records(&self) -> Addr {
        Addr::new(REGION, self.mapping().layout().records as u64)
    }

    /// The place whose record this address is in.
    #[inline]
    pub(crate) fn place_at(&self, addr: Addr) -> Option<u16> {
        let bytes = addr.bits().checked_sub(self.records().bits())?;
        let number = bytes / (RECORD_WORDS as u64 * 8) / u64::from(self.slots());
        u16::try_from(number + 1).ok().filter(|index| *index <= self.places())
    }
}

/// The process that has an endpoint, for display.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    /// When it started, in clock ticks after boot; 0 where that is not known.
    pub(crate) started_ticks: u64,
    pub(crate) label: String,
    pub(crate) home: Home,
}

impl Owner {
    /// This process, under this name.
    pub(crate) fn this(label: String) -> Self {
        let Process { pid, started_ticks } = Process::own();
        Self { pid, started_ticks, label, home: Home::own().clone() }
    }
}

impl<K: PlaceKeeper> Shm<K> {
    /// Has others shown that this endpoint is that one's.
    pub(crate) fn show_as(&self, owner: &Owner) {
        let display = self.display();
        display.pid.store(owner.pid, Ordering::Relaxed);
        display.started_ticks.store(owner.started_ticks, Ordering::Relaxed);
        display.set_label(&owner.label);
        self.place().control.home.write(&owner.home);
    }

    /// The process that it is shown as.
    pub(crate) fn shown_process(&self) -> Process {
        let display = self.display();
        Process {
            pid: display.pid.load(Ordering::Relaxed),
            started_ticks: display.started_ticks.load(Ordering::Relaxed),
        }
    }

    /// Has others shown that the process it is shown as is gone, and something it started is not.
    pub(crate) fn show_orphaned(&self) {
        self.display().orphaned.store(1, Ordering::Relaxed);
    }

    fn display(&self) -> &Display {
        &self.place().display
    }

    fn place(&self) -> &Place {
        let place = self.region.mapping().place(self.identity().index);
        place.expect("an endpoint has a place")
    }

    /// Whether a look would end this wait. Nothing is armed.
    pub(crate) fn has_ended(&self, wait: &Wait<'_>) -> bool {
        self.look(wait).is_some()
    }

    /// What its pending waits are to be slept on by, and when they look again at the latest.
    pub(crate) fn sources(&self, sources: &mut Vec<Source>) -> Option<Nanos> {
        self.add_sources(sources);
        self.looks_again()
    }

    /// A sleep on its sources is over: nothing is armed any more, and every wait is to be polled.
    pub(crate) fn disarm(&self) {
        self.take_pending(false, &mut Vec::new());
    }
}
