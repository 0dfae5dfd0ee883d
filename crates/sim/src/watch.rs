//! Waits that have begun, and what ends them.

use farlock_fabric::{Addr, EndpointId, Nanos, Slot};

use crate::queue::Event;

#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) owner: Option<EndpointId>,
    pub(crate) generation: u32,
    pub(crate) task: u32,
    pub(crate) mail: Option<Slot>,
    pub(crate) word: Option<(Addr, u64)>,
    /// Bits of the word that do not count.
    pub(crate) ignoring: u64,
    pub(crate) peers: Vec<EndpointId>,
    /// When the interval ends, in the world's time.
    pub(crate) deadline: Option<Nanos>,
    /// Explored mode: when a wait that lasts until its word changes would otherwise end.
    pub(crate) patience: Option<Nanos>,
    /// That time was given to it.
    pub(crate) elapsed: bool,
    /// When it began.
    pub(crate) begun: Nanos,
    /// How many waits had begun before it.
    pub(crate) number: u64,
    /// It is about to look at its word.
    pub(crate) looking: bool,
    /// It looked at its word and found it changed.
    pub(crate) changed: bool,
}

impl Watch {
    /// It has nothing more to wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.elapsed || self.changed
    }
}

#[derive(Default)]
pub(crate) struct Watches {
    pub(crate) slab: Vec<Watch>,
    pub(crate) free: Vec<u32>,
    /// How many waits have begun.
    pub(crate) begun: u64,
    /// The waits that last until a word changes, sorted by its address.
    pub(crate) by_word: Vec<(Addr, u32)>,
}

impl Watches {
    pub(crate) fn owner(&self, index: u32) -> EndpointId {
        self.slab[index as usize].owner.unwrap_or(EndpointId::NOBODY)
    }

    #[cold]
    pub(crate) fn extend(&mut self) -> u32 {
        self.slab.push(Watch::default());
        (self.slab.len() - 1) as u32
    }

    /// A wait lasts until the word at this address changes.
    #[inline(never)]
    pub(crate) fn look_out(&mut self, addr: Addr, index: u32) {
        let place = self.by_word.partition_point(|&(other, _)| other <= addr);
        self.by_word.insert(place, (addr, index));
    }

    /// How many waits of the same owner began before this one and last: which of them it is, to an
    /// observer that knows the owner's history alone.
    pub(crate) fn rank(&self, index: u32) -> u64 {
        let watch = &self.slab[index as usize];
        let is_before = |other: &&Watch| other.owner == watch.owner && other.number < watch.number;
        match watch.owner {
            Some(_) => self.slab.iter().filter(is_before).count() as u64,
            None => 0,
        }
    }

    /// The waits on words that would end by the clock, and when.
    pub(crate) fn patient(&self) -> impl Iterator<Item = (Nanos, Event)> {
        let waits = self.slab.iter().zip(0_u32..).filter(|(watch, _)| !watch.is_over());
        waits.filter_map(|(watch, index)| {
            watch.owner?;
            Some((watch.patience?, Event::Elapse(index)))
        })
    }

    /// When the waits of this owner that are not over end by the clock.
    pub(crate) fn ends(&self, owner: EndpointId) -> impl Iterator<Item = Nanos> {
        let own = self.slab.iter().filter(move |watch| watch.owner == Some(owner));
        own.filter(|watch| !watch.is_over()).filter_map(|watch| watch.deadline.or(watch.patience))
    }

    /// The owners of waits that are over, though they have not been told, and why.
    pub(crate) fn over(&self) -> impl Iterator<Item = (EndpointId, bool)> {
        let over = self.slab.iter().filter(|watch| watch.is_over());
        over.filter_map(|watch| Some((watch.owner?, watch.changed)))
    }
}
