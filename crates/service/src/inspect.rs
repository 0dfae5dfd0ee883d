//! The holders and the waiters of locks: the slot records of a region, read beside its directory.
//!
//! Reads only; disturbs nobody. Records are read while their owners go on, so a picture of a busy
//! region is one of a moment that never was, but each line of it was true when it was read.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use farlock_fabric::{
    Addr, Connection, Endpoint, EndpointId, Home, Park, Peer, RunState, Verb, WideAtomics, block_on,
};
use farlock_locks::record::citron::UnitsWord;
use farlock_locks::record::claim::ClaimWord;
use farlock_locks::shelf::{Shelf, Shelved};
use farlock_locks::slot::{self, Phase, SlotRecord};
use farlock_locks::{Mode, Token};

use crate::directory::{Directory, DirectoryError, Entry};
use crate::protocol::{LOCK_KIND, RANGE_KIND, RANGE_UNITS, UNIT_AT};
use crate::records::read_records;
use crate::region::range_heap;
use crate::shelf::{SHELF_BYTES, shelf_at};
use crate::text::{in_words, shown};

/// The word of a slot record in which a service notes its process, beside those of
/// [`farlock_locks::slot`]: a dead endpoint's display is gone, its records are not.
pub(crate) const PID: usize = 4;

/// What [`PID`] says of this process: its number, and above that what tells its home from others.
pub(crate) fn own_process() -> u64 {
    u64::from(std::process::id()) | Home::own().id << 32
}

/// The word of a holder's record in which its session notes its waiters behind the hold, which
/// have no record: see [`company`].
pub(crate) const COMPANY: usize = 7;

/// What [`COMPANY`] says: how many wait for the lock alone, and how many for it shared.
pub(crate) fn company(alone: usize, shared: usize) -> u64 {
    let count = |count: usize| u64::from(u32::try_from(count).unwrap_or(u32::MAX));
    count(alone) | count(shared) << 32
}

/// The most of one session that are listed as waiting behind its own hold.
const COMPANY_SHOWN_MAX: u64 = 1000;

/// Which sort of lock: their words and their records say other things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sort {
    /// Had as a whole.
    Lock,
    /// A table of ranges.
    Ranges,
}

/// A holder or a waiter of a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Participant {
    /// Its endpoint.
    pub(crate) endpoint: EndpointId,
    /// Its process, as that process's own namespace numbers it; 0 where it noted none.
    pub pid: u32,
    /// The host of its process, or the host's address, where that number means another process
    /// here, or none: on another host, in another container. `None` where it is a process here.
    pub host: Option<String>,
    /// What it calls itself; empty where it is dead.
    pub command: String,
    /// Whether it holds the lock or awaits it.
    pub is_holder: bool,
    /// In which mode.
    pub mode: Mode,
    /// Which positions, of a table of ranges: up to `u64::MAX` where there is no end.
    pub range: Option<Range<u64>>,
    /// The token of its grant, if it holds.
    pub token: Option<Token>,
    /// For how long it has held or awaited, where it noted since when.
    pub elapsed: Option<Duration>,
    /// Whether it lives.
    pub life: Life,
}

impl Participant {
    /// A waiter of the same session behind this holder.
    fn behind(&self) -> Self {
        Self { is_holder: false, token: None, elapsed: None, ..self.clone() }
    }
}

/// Whether a holder or a waiter lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Life {
    /// It does.
    Alive,
    /// It does, but its process is stopped: by Ctrl-Z, a debugger.
    Stopped,
    /// It is dead, but a command it started still runs and keeps the lock from others.
    Orphaned,
    /// It is dead, or was killed and is about to be; the next that wants the lock takes it over.
    Dead,
}

impl Life {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Stopped => "stopped",
            Self::Orphaned => "orphaned",
            Self::Dead => "dead",
        }
    }
}

/// "process 71 (make), holding exclusively for 3.2 s", for errors.
impl fmt::Display for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        if let Some(host) = &self.host {
            write!(f, " on {}", shown(host))?;
        }
        if !self.command.is_empty() {
            write!(f, " ({})", shown(&self.command))?;
        }
        let how = match self.mode {
            Mode::Exclusive => "alone",
            Mode::Shared => "shared",
        };
        write!(f, ", {how}")?;
        if let Some(range) = &self.range {
            write!(f, ", {}", range_in_words(range))?;
        }
        if let Some(elapsed) = self.elapsed {
            write!(f, ", for {}", in_words(elapsed))?;
        }
        match self.life {
            Life::Alive => Ok(()),
            Life::Stopped => write!(f, "; it is stopped"),
            Life::Orphaned => write!(f, "; it died, its command still runs"),
            Life::Dead => write!(f, "; it is dead"),
        }
    }
}

/// A lock with its holders and waiters.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LockView {
    /// Its name.
    pub name: String,
    /// The name of its protocol.
    pub kind: String,
    /// Holders first, then waiters; each group by how long it has been there.
    pub participants: Vec<Participant>,
}

/// Every lock of a region with everybody at it. An empty directory has none.
///
/// # Errors
/// See [`DirectoryError`].
pub(crate) fn locks<E: WideAtomics + Park>(
    region: &impl Connection,
    endpoint: &E,
) -> Result<Vec<LockView>, DirectoryError> {
    block_on(endpoint, async {
        let Some(directory) = Directory::existing(endpoint, region.heap(), LOCK_KIND).await? else {
            return Ok(Vec::new());
        };
        let ranges = range_heap(region, &directory);
        let shelf = shelf_of(region, &directory);
        let range_directory = match shelf {
            Some(_) => Directory::existing(endpoint, ranges, RANGE_KIND).await?,
            None => None,
        };
        let sort_of = |lock| if lock < ranges.0 { Sort::Lock } else { Sort::Ranges };
        let mut at = present(region, endpoint, shelf, None, sort_of).await?;
        let mut entries = directory.list(endpoint).await?;
        if let Some(directory) = range_directory {
            entries.append(&mut directory.list(endpoint).await?);
            entries.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let view = |entry: Entry| {
            let participants = at.remove(&entry.lock).unwrap_or_default();
            LockView { name: entry.name, kind: entry.kind, participants }
        };
        Ok(entries.into_iter().map(view).collect())
    })
}

/// Everybody at one lock, as [`LockView::participants`].
///
/// # Errors
/// [`DirectoryError::Fabric`].
pub(crate) fn participants<E: WideAtomics + Park>(
    region: &impl Connection,
    endpoint: &E,
    lock: Addr,
    sort: Sort,
) -> Result<Vec<Participant>, DirectoryError> {
    block_on(endpoint, async {
        let directory = match sort {
            Sort::Ranges => Directory::existing(endpoint, region.heap(), LOCK_KIND).await?,
            Sort::Lock => None,
        };
        let shelf = directory.and_then(|directory| shelf_of(region, &directory));
        let mut at = present(region, endpoint, shelf, Some(lock), |_| sort).await?;
        Ok(at.remove(&lock).unwrap_or_default())
    })
}

/// The shelf of a region where tables of ranges are used.
fn shelf_of(region: &impl Connection, directory: &Directory) -> Option<Shelf> {
    let (base, bytes) = range_heap(region, directory);
    let (heap, length) = region.heap();
    let is_there = heap.plus(length) >= base.plus(bytes + SHELF_BYTES);
    is_there.then(|| shelf_at(base.plus(bytes)))
}

/// Everybody at any lock, or at this one.
async fn present<E: WideAtomics>(
    region: &impl Connection,
    endpoint: &E,
    shelf: Option<Shelf>,
    lock: Option<Addr>,
    sort_of: impl Fn(Addr) -> Sort,
) -> Result<BTreeMap<Addr, Vec<Participant>>, DirectoryError> {
    let mut at: BTreeMap<Addr, Vec<Participant>> = BTreeMap::new();
    let peers = region.peers();
    // The place of one that died is occupied until it is taken anew.
    for (index, words) in read_records(endpoint, endpoint.occupied()).await? {
        let found = peers.binary_search_by_key(&index, |peer| peer.id.index);
        let peer = found.ok().map(|at| &peers[at]);
        let Some(record) = SlotRecord::decode(&words) else { continue };
        let is_there = matches!(record.phase, Phase::Held | Phase::Waiting | Phase::Claiming);
        if !is_there || lock.is_some_and(|lock| lock != record.lock) {
            continue;
        }
        let sort = sort_of(record.lock);
        if peer.is_none() && !left_behind(endpoint, index, &record, sort).await? {
            continue;
        }
        let mut found = participant(endpoint, index, peer, &record, words[PID]);
        if sort == Sort::Ranges {
            found.range = Some(range_of(endpoint, record.lock, words[slot::PART]).await?);
        }
        let there = at.entry(record.lock).or_default();
        if found.is_holder && matches!(found.life, Life::Alive | Life::Stopped) {
            for (mode, count) in modes_of(words[COMPANY]) {
                let behind = Participant { mode, ..found.behind() };
                there.extend((0..count).map(|_| behind.clone()));
            }
        }
        there.push(found);
    }
    for (owner, shelved) in on_shelf(endpoint, shelf, lock).await? {
        let found = peers.binary_search_by_key(&owner.index, |peer| peer.id.index);
        let peer = found.ok().map(|at| &peers[at]);
        let mut found = participant(endpoint, owner.index, peer, &record_of(&shelved), 0);
        found.range = Some(range_of(endpoint, shelved.lock, shelved.part).await?);
        at.entry(shelved.lock).or_default().push(found);
    }
    for (lock, participants) in &mut at {
        if sort_of(*lock) == Sort::Lock {
            drop_uncounted(endpoint, *lock, participants).await?;
        }
        participants.sort_by_key(|p| (!p.is_holder, std::cmp::Reverse(p.elapsed)));
    }
    Ok(at)
}

/// What is written down of holds of any lock, or of this one, and whose they are.
async fn on_shelf<E: Endpoint>(
    endpoint: &E,
    shelf: Option<Shelf>,
    lock: Option<Addr>,
) -> Result<Vec<(EndpointId, Shelved)>, DirectoryError> {
    let mut found = Vec::new();
    let Some(shelf) = shelf else { return Ok(found) };
    let tell = |owner, shelved: Shelved| {
        found.extend(lock.is_none_or(|lock| lock == shelved.lock).then_some((owner, shelved)));
    };
    shelf.for_each(endpoint, tell).await?;
    Ok(found)
}

/// What a slot's record would say of such a hold.
fn record_of(shelved: &Shelved) -> SlotRecord {
    SlotRecord {
        phase: Phase::Held,
        mode: shelved.mode,
        generation: 0,
        ticket: 0,
        lock: shelved.lock,
        token: shelved.token,
        since: shelved.since_us * 1000,
        part: None,
    }
}

/// Drops dead shared holders that the lock's word does not count any more, the earliest first: of
/// those that died long ago the records stay until their places have a new user.
async fn drop_uncounted<E: Endpoint>(
    endpoint: &E,
    lock: Addr,
    participants: &mut Vec<Participant>,
) -> Result<(), DirectoryError> {
    let shares = |p: &Participant| p.is_holder && p.mode == Mode::Shared;
    let is_dead = |p: &Participant| shares(p) && p.life == Life::Dead;
    // A damaged address names no lock.
    if !participants.iter().any(is_dead)
        || endpoint.verb(Verb::Read { addr: lock, words: 2 }).await.is_err()
    {
        return Ok(());
    }
    let readers = ClaimWord(endpoint.old()).readers();
    let living = participants.iter().filter(|p| shares(p) && !is_dead(p)).count() as u64;
    let mut counted = readers.saturating_sub(living);
    participants.sort_by_key(|p| std::cmp::Reverse(p.token));
    participants.retain(|p| {
        let stays = !is_dead(p) || counted > 0;
        counted -= u64::from(is_dead(p) && stays);
        stays
    });
    Ok(())
}

/// How many of a session wait in each mode behind its own hold.
fn modes_of(company: u64) -> [(Mode, u64); 2] {
    let shown = |count: u64| count.min(COMPANY_SHOWN_MAX);
    [(Mode::Exclusive, shown(company & u64::from(u32::MAX))), (Mode::Shared, shown(company >> 32))]
}

/// Whether what a dead client's record says still stands in the lock's word: nobody repaired it.
async fn left_behind<E: Endpoint>(
    endpoint: &E,
    index: u16,
    record: &SlotRecord,
    sort: Sort,
) -> Result<bool, DirectoryError> {
    // A node of a tree does not say whose it is.
    if sort == Sort::Ranges {
        return Ok(false);
    }
    // The address is from a record that anybody may have damaged; then nothing stands anywhere.
    if endpoint.verb(Verb::Read { addr: record.lock, words: 2 }).await.is_err() {
        return Ok(false);
    }
    let word = ClaimWord(endpoint.old());
    Ok(match (record.phase, record.mode) {
        // The low bits of what the word calls its holder are an index.
        (Phase::Held, Mode::Exclusive) => word.holder() as u16 == index,
        (Phase::Held, Mode::Shared) => word.readers() != 0,
        _ => word.tail() != 0,
    })
}

fn participant<E: Endpoint>(
    endpoint: &E,
    index: u16,
    peer: Option<&Peer>,
    record: &SlotRecord,
    pid: u64,
) -> Participant {
    let is_holder = record.phase == Phase::Held;
    let elapsed = (record.since != 0)
        .then(|| Duration::from_nanos(endpoint.now().saturating_sub(record.since)));
    Participant {
        endpoint: peer.map_or(EndpointId { index, incarnation: 0 }, |peer| peer.id),
        pid: peer.map_or(pid as u32, |peer| peer.pid),
        host: match peer {
            Some(peer) => host_elsewhere(&peer.home),
            None => host_of_the_dead(pid),
        },
        command: peer.map(|peer| peer.label.clone()).unwrap_or_default(),
        is_holder,
        mode: record.mode,
        range: None,
        token: is_holder
            .then(|| Token::new((record.token >> Token::COUNT_BITS) as u16, record.token)),
        elapsed,
        life: match peer {
            None => Life::Dead,
            Some(peer) if peer.orphaned => Life::Orphaned,
            Some(peer) => life_of(peer),
        },
    }
}

/// The positions of a table of ranges that a record names as units.
async fn range_of<E: Endpoint>(
    endpoint: &E,
    lock: Addr,
    units: u64,
) -> Result<Range<u64>, DirectoryError> {
    // A damaged address names no table.
    let is_read = endpoint.read64(lock.plus(UNIT_AT)).await.is_ok();
    let unit = if is_read { endpoint.old() as u64 } else { 1 };
    let units = UnitsWord(units);
    let (first, end) = (units.start(), units.end());
    let at = |units: u64| units.saturating_mul(unit);
    Ok(at(first)..if end >= RANGE_UNITS { u64::MAX } else { at(end) })
}

/// "all of it", "10 and more", "from 10 to 20".
pub(crate) fn range_in_words(range: &Range<u64>) -> String {
    match (range.start, range.end) {
        (0, u64::MAX) => "all of it".to_owned(),
        (start, u64::MAX) => format!("from {start} on"),
        (start, end) => format!("from {start} to {end}"),
    }
}

/// A host of which nothing is known but that it is none where this process could see it.
const ANOTHER: &str = "another host";

/// The same of a dead one that noted this as its process: which host it was is not known any more.
fn host_of_the_dead(noted: u64) -> Option<String> {
    (noted != 0 && noted >> 32 != own_process() >> 32).then(|| ANOTHER.to_owned())
}

/// The host of a process that is none of those that this one can see.
fn host_elsewhere(home: &Home) -> Option<String> {
    let name = || if home.host.is_empty() { ANOTHER.to_owned() } else { home.host.clone() };
    (!home.is_own()).then(name)
}

/// What the system says of the process of an endpoint, as far as its number means the same here.
fn life_of(peer: &Peer) -> Life {
    let state = peer.home.is_own().then(|| RunState::of(peer.pid, peer.started_ticks));
    match state.flatten() {
        None | Some(RunState::Runs) => Life::Alive,
        Some(RunState::Stopped) => Life::Stopped,
        Some(RunState::Ends) => Life::Dead,
    }
}

/// The holders among all at a lock.
pub(crate) fn holders(participants: Vec<Participant>) -> Vec<Participant> {
    participants.into_iter().filter(|p| p.is_holder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_process_elsewhere_is_told_from_one_here() {
        assert_eq!(host_of_the_dead(own_process()), None);
        assert_eq!(host_of_the_dead(0), None, "it noted none");
        assert_eq!(host_of_the_dead(own_process() ^ 1 << 32).as_deref(), Some(ANOTHER));
    }
}
