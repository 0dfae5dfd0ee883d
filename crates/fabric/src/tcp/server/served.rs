//! A region that is served, and what its guests were told of its endpoints.

use std::time::{Duration, Instant};

use super::guest::Tenure;
use crate::addr::EndpointId;
use crate::connection::Connection;
use crate::endpoint::Nanos;
use crate::error::ConnectError;
use crate::home::boot_id;
use crate::shm::serving::Serving;
use crate::shm::{Host, Region};
use crate::tcp::clock::boot_time;
use crate::tcp::wire::{Framing, MAGIC, PEERS_MAX, VERSION, put_ids, reply};
use crate::verb::Verb;

/// How seldom is looked whether a region's file is still there.
const LOOK_FOR_FILE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Served {
    /// What clients call it.
    pub(super) name: String,
    pub(super) host: Host,
    pub(super) region: Region,
    /// The guests that use it, by their numbers.
    pub(super) guests: Vec<usize>,
    /// By index, which lane has a seat there: the guest's number and the lane's.
    pub(super) seated: Vec<Option<(usize, u32)>>,
    /// How many had arrived when all were told.
    seen: u64,
    /// By index, the incarnation that lives there as far as was told; or 0.
    told: Vec<u16>,
    /// Whether none acts there but lanes that have a seat; else that is looked for again.
    is_alone: bool,
    looked_at: Instant,
    _serving: Serving,
    pub(super) is_gone: bool,
}

impl Served {
    /// # Errors
    /// See [`ConnectError`]: another server serves it.
    pub(super) fn new(name: &str, host: Host) -> Result<Self, ConnectError> {
        let region = host.region().clone();
        let (places, serving) = (usize::from(region.places()), region.serve()?);
        Ok(Self {
            name: name.to_owned(),
            host,
            region,
            guests: Vec::new(),
            seated: vec![None; places + 1],
            seen: 0,
            told: vec![0; places + 1],
            is_alone: false,
            looked_at: Instant::now(),
            _serving: serving,
            is_gone: false,
        })
    }

    /// What a new guest is told first.
    pub(super) fn welcome(&self, out: &mut Vec<u8>, lease: &Tenure, length: Nanos) {
        let now = boot_time();
        let (heap, heap_bytes) = self.host.heap();
        let origin = self.host.origin();
        let mut frame = Framing::new(out, reply::WELCOME);
        frame.u64(MAGIC).u16(VERSION).u16(origin.incarnation).u64(origin.first_count);
        frame.u64(heap.bits()).u64(heap_bytes).u64(self.region.records().bits());
        frame.u16(self.host.places()).u16(self.region.places()).u8(self.region.slots());
        frame.u64(now).u128(boot_id());
        frame.u128(lease.secret).u64(length).u8(lease.is_by_connection.into()).end();
        let all = self.told.iter().zip(0..).filter(|(told, _)| **told != 0);
        let all = all.map(|(told, index)| EndpointId { index, incarnation: *told });
        for living in all.collect::<Vec<_>>().chunks(PEERS_MAX) {
            let mut frame = Framing::new(out, reply::LIVING);
            put_ids(&mut frame, living);
            frame.end();
        }
    }

    /// Whether endpoints came that the guests were not told of.
    #[inline]
    pub(super) fn has_newcomers(&self) -> bool {
        self.region.arrivals() != self.seen
    }

    /// Whether others act in the region than those that are served now: processes of this host, or
    /// clients that are away.
    pub(super) fn has_locals(&mut self) -> bool {
        let is_local = |index: u16| {
            let incarnation = self.told[usize::from(index)];
            let is_known = incarnation != 0 && self.seated[usize::from(index)].is_none();
            is_known && self.region.is_alive(EndpointId { index, incarnation })
        };
        self.is_alone = self.is_alone || !(1..=self.host.places()).any(is_local);
        !self.is_alone
    }

    /// An endpoint is that of this lane, or of none that is here.
    pub(super) fn seat(&mut self, id: EndpointId, lane: Option<(usize, u32)>) {
        self.seated[usize::from(id.index)] = lane;
        self.is_alone = false;
    }

    /// What is to be told of newcomers: frames.
    pub(super) fn newcomers(&mut self, news: &mut Vec<u8>) {
        self.is_alone = false;
        while self.has_newcomers() {
            self.seen = self.region.arrivals();
            for id in self.region.occupants() {
                let told = &mut self.told[usize::from(id.index)];
                if *told != id.incarnation {
                    *told = id.incarnation;
                    put_peer(news, true, id);
                }
            }
        }
    }

    /// The dead endpoint whose record this verb reads, if it was told of its life.
    #[inline]
    pub(super) fn dead_looked_at(&self, verb: &Verb<'_>) -> Option<EndpointId> {
        let Verb::Read { addr, .. } = verb else { return None };
        let index = self.region.place_at(*addr)?;
        let id = EndpointId { index, incarnation: self.told[usize::from(index)] };
        (id.incarnation != 0 && !self.region.is_alive(id)).then_some(id)
    }

    /// What is to be told of a death: a frame, if it was told of the life.
    pub(super) fn death(&mut self, id: EndpointId, news: &mut Vec<u8>) {
        if let Some(told) = self.told.get_mut(usize::from(id.index))
            && *told == id.incarnation
        {
            *told = 0;
            put_peer(news, false, id);
        }
    }

    /// Looks, once in a while, whether those that connect by its name find another region. Returns
    /// whether that is new.
    pub(super) fn finds_itself_gone(&mut self, now: Instant) -> bool {
        if self.is_gone || now.duration_since(self.looked_at) < LOOK_FOR_FILE {
            return false;
        }
        self.looked_at = now;
        self.is_gone = self.host.is_deleted();
        self.is_gone
    }
}

fn put_peer(out: &mut Vec<u8>, lives: bool, id: EndpointId) {
    Framing::new(out, reply::PEER).u8(lives.into()).id(id).end();
}
