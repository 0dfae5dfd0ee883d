//! A store over several memory nodes: each has a part of it, in a region of its own, and a hash of
//! the key says in which part a pair is.
//!
//! ```text
//! key --hash--> part 2 of 3        a        b        c       the order in which they are named
//!                               part 1   part 2   part 3    each a store, but that its header says
//!                                                           which part it is, and of which store
//! ```
//!
//! Nothing knows of the whole but its clients: no node knows of the others, and no operation needs
//! two. So a node that is away takes its own keys along and no more.
//!
//! *How it is made.* A client that opens it looks at all places first, and refuses what is not one
//! of its parts before anything is written. Where no part is there yet the first one is made before
//! the others, with a number that is drawn; the header's one compare decides between two that do so
//! at once, and both go on with what it says. The others get the same number. So a crash leaves no
//! part, or the first and perhaps more, and the client that opens it next makes those that are
//! missing. When all are there each is marked. From then on none is made that is missing, unless
//! that is asked for: a wrong server may have been named, and keys would have two places.

use std::cell::OnceCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use farlock_fabric::{ConnectError, fork_count};
use farlock_kv::part_of;

use super::error::KvError;
use super::hub::{Hub, while_away};
use super::index::{Choice, Index, StoreOptions};
use super::part::Part;
use super::share::{PARTS_MAX, PartOf, Share};
use crate::RegionOptions;

/// A store over several memory nodes, as all handles of it share it.
pub(crate) struct Spread {
    pub(super) index: Index,
    wanted: StoreOptions,
    /// The number that all its parts have.
    whole: u32,
    /// Whether all its parts were made.
    is_whole: bool,
    places: Vec<RegionOptions>,
    /// Those of its parts that are open.
    hubs: Vec<Mutex<Weak<Hub>>>,
    forks: u64,
}

/// The same as a handle has it: with its own place in each part.
pub(super) struct Several {
    pub(super) spread: Arc<Spread>,
    parts: Box<[Lazy]>,
}

/// A part that has a place when it is used: so a handle that is made waits for no server.
#[derive(Default)]
struct Lazy {
    /// What keeps it open; let go of before the part, which sees whether it is the last.
    hub: OnceCell<Arc<Hub>>,
    part: OnceCell<Part>,
}

/// The parts of a store, as far as they are open.
type Hubs = Vec<Option<Arc<Hub>>>;

/// What is at one of the places.
struct Found {
    /// A region, or why there is none: its server is away, or has no such store.
    hub: Result<Box<Hub>, KvError>,
    /// What was chosen for the store there.
    choice: Option<Choice>,
    /// Whether all of its parts were made.
    is_whole: bool,
    /// A number that is drawn.
    drawn: u32,
}

impl Several {
    /// Opens a store whose parts are at these places, or makes them. Servers that are away are
    /// waited for so long; then their parts are left for later if another part is there.
    pub(super) fn open(
        places: Vec<RegionOptions>,
        wanted: StoreOptions,
        patience: &[Duration],
    ) -> Result<Self, KvError> {
        let (spread, hubs) = Spread::open(places, wanted, patience)?;
        let several = Self::with(Arc::new(spread), hubs);
        // What is wrong with them is told now.
        for part in &several.parts {
            match part.hub.get().map(|hub| part.begin(hub)) {
                Some(Err(error)) if !error.is_of_server_away() => return Err(error),
                _ => {}
            }
        }
        Ok(several)
    }

    /// Another handle.
    pub(super) fn of(spread: &Arc<Spread>) -> Result<Self, KvError> {
        spread.check()?;
        // One that is being opened is not waited for.
        let open = |hub: &Mutex<Weak<Hub>>| hub.try_lock().ok()?.upgrade();
        Ok(Self::with(Arc::clone(spread), spread.hubs.iter().map(open).collect()))
    }

    fn with(spread: Arc<Spread>, hubs: Hubs) -> Self {
        let lazy = |hub: Option<Arc<Hub>>| Lazy {
            hub: hub.map_or_else(OnceCell::new, OnceCell::from),
            part: OnceCell::new(),
        };
        Self { spread, parts: hubs.into_iter().map(lazy).collect() }
    }

    pub(super) fn count(&self) -> usize {
        self.parts.len()
    }

    /// The part that has this key.
    #[inline]
    pub(super) fn part_of(&self, key: &[u8]) -> Result<&Part, KvError> {
        self.part(part_of(key, self.parts.len()))
    }

    #[inline]
    pub(super) fn part(&self, index: usize) -> Result<&Part, KvError> {
        match self.parts[index].part.get() {
            Some(part) => Ok(part),
            None => self.begin(index),
        }
    }

    #[cold]
    fn begin(&self, index: usize) -> Result<&Part, KvError> {
        let part = &self.parts[index];
        if part.hub.get().is_none() {
            let hub = self.spread.hub(index)?;
            part.hub.get_or_init(|| hub);
        }
        let hub = part.hub.get().expect("it is there by now");
        hub.check()?;
        part.begin(hub)
    }

    /// Bytes of memory that those of its parts take that are open.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.iter().filter_map(|part| part.hub.get()).map(|hub| hub.bytes()).sum()
    }
}

impl Lazy {
    /// Has a place from now on.
    fn begin(&self, hub: &Arc<Hub>) -> Result<&Part, KvError> {
        let part = Part::of(Arc::clone(hub))?;
        Ok(self.part.get_or_init(|| part))
    }
}

impl Spread {
    /// Whether verbs take a round trip in this part.
    pub(super) fn is_far_in(&self, index: usize) -> bool {
        self.places[index].server.is_some()
    }

    fn open(
        places: Vec<RegionOptions>,
        wanted: StoreOptions,
        patience: &[Duration],
    ) -> Result<(Self, Hubs), KvError> {
        check_places(&places)?;
        let mut found = look_at_all(&places, &wanted, patience)?;
        let known = agreed(&places, &wanted.name, &found)?;
        let hubs = places.iter().map(|_| Mutex::default()).collect();
        let (index, whole) = known.unwrap_or_default();
        let is_whole = found.iter().any(|found| found.is_whole);
        let forks = fork_count();
        let mut spread = Self { index, wanted, whole, is_whole, places, hubs, forks };
        if known.is_none() {
            found = spread.make_first(found)?;
        }
        KvError::unless_index(spread.name(), spread.index, spread.wanted.index)?;
        let mut opened = Vec::with_capacity(found.len());
        for (at, found) in found.into_iter().enumerate() {
            let hub = match found.hub {
                // Its keys are refused when they are asked for.
                _ if found.choice.is_none() && !spread.makes() => {
                    opened.push(None);
                    continue;
                }
                Ok(hub) => spread.take(at, *hub),
                Err(error) if error.is_of_server_away() => {
                    opened.push(None);
                    continue;
                }
                Err(_) => spread.open_hub(at),
            };
            opened.push(match hub {
                Ok(hub) => Some(Arc::new(hub)),
                Err(error) if error.is_of_server_away() => None,
                Err(error) => return Err(error),
            });
        }
        if !spread.is_whole && spread.makes() && opened.iter().all(Option::is_some) {
            opened.iter().flatten().try_for_each(|hub| hub.make_whole())?;
            spread.is_whole = true;
        }
        for (at, hub) in opened.iter().enumerate() {
            *spread.known(at) = hub.as_ref().map_or_else(Weak::new, Arc::downgrade);
        }
        Ok((spread, opened))
    }

    /// Nothing of the store is there: makes its first part, which decides of all.
    fn make_first(&mut self, mut found: Vec<Found>) -> Result<Vec<Found>, KvError> {
        let is_away = |found: &Found| matches!(&found.hub, Err(error) if error.is_of_server_away());
        // One that is away may have a part.
        if let Some(away) = found.iter().position(is_away) {
            found.swap(0, away);
        }
        let mut first = found.remove(0);
        if first.hub.is_err() && self.wanted.create && !is_away(&first) {
            first = Found::of(Hub::connect(&self.places[0], &self.wanted)?)?;
        }
        let (mut hub, drawn) = (first.hub?, first.drawn);
        (self.index, self.whole) = (self.wanted.index.unwrap_or_default(), drawn);
        hub.prepare(self.choice(0))?;
        // Another client may have been first.
        let made = hub.choice;
        self.check_part(0, made)?;
        let share = made.share.expect("it is this part");
        (self.index, self.whole) = (made.index, share.whole);
        found.insert(0, Found { hub: Ok(hub), choice: Some(made), is_whole: false, drawn });
        Ok(found)
    }

    /// Makes what is there the part that it is to be, unless it is that.
    fn take(&self, at: usize, mut hub: Hub) -> Result<Hub, KvError> {
        hub.prepare(self.choice(at))?;
        self.check_part(at, hub.choice)?;
        if hub.choice != self.choice(at) {
            let (name, at) = (self.name().to_owned(), self.places[at].place());
            return Err(KvError::ForeignPart { name, at });
        }
        Ok(hub)
    }

    fn check_part(&self, at: usize, has: Choice) -> Result<(), KvError> {
        check_part(self.name(), &self.places, at, has, Vec::new)
    }

    fn choice(&self, at: usize) -> Choice {
        let of = PartOf::at(at, self.places.len());
        Choice { index: self.index, share: Some(Share { of, whole: self.whole }) }
    }

    /// A part that is open, or is opened now.
    fn hub(&self, at: usize) -> Result<Arc<Hub>, KvError> {
        self.check()?;
        let mut known = self.known(at);
        if let Some(hub) = known.upgrade() {
            return hub.check().map(|()| hub);
        }
        let hub = Arc::new(self.open_hub(at)?);
        *known = Arc::downgrade(&hub);
        Ok(hub)
    }

    fn open_hub(&self, at: usize) -> Result<Hub, KvError> {
        let existing = self.wanted.clone().existing();
        let wanted = if self.makes() { &self.wanted } else { &existing };
        match Hub::connect(&self.places[at], wanted) {
            Err(KvError::Open { source: ConnectError::Absent { .. }, .. }) => Err(self.no_part(at)),
            connected => {
                let hub = connected?;
                if !self.makes() && hub.found()?.0.is_none() {
                    return Err(self.no_part(at));
                }
                let hub = self.take(at, hub)?;
                if self.is_whole {
                    hub.make_whole()?;
                }
                Ok(hub)
            }
        }
    }

    /// Whether parts that are missing are made.
    fn makes(&self) -> bool {
        self.wanted.create && (!self.is_whole || self.wanted.remake)
    }

    fn no_part(&self, at: usize) -> KvError {
        let (name, of) = (self.name().to_owned(), PartOf::at(at, self.places.len()));
        KvError::NoPart { name, at: self.places[at].place(), of }
    }

    /// A part, if it is open.
    fn known(&self, at: usize) -> MutexGuard<'_, Weak<Hub>> {
        // Nothing that can panic leaves it half changed.
        self.hubs[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses in a child of the process that opened it.
    fn check(&self) -> Result<(), KvError> {
        if fork_count() == self.forks { Ok(()) } else { Err(KvError::Forked) }
    }

    pub(super) fn name(&self) -> &str {
        &self.wanted.name
    }

    /// Whether it is at these places, in this order, makes what is to be made, and none of its
    /// parts that were open is gone.
    pub(super) fn serves(&self, places: &[RegionOptions], wanted: &StoreOptions) -> bool {
        if self.wanted.remake != wanted.remake || wanted.create && !self.wanted.create {
            return false;
        }
        let is_whole = |at| self.known(at).upgrade().is_none_or(|hub| hub.check().is_ok());
        self.check().is_ok() && self.places == places && (0..places.len()).all(is_whole)
    }
}

impl Found {
    fn of(hub: Hub) -> Result<Self, KvError> {
        let (choice, is_whole, drawn) = hub.found()?;
        Ok(Self { hub: Ok(Box::new(hub)), choice, is_whole, drawn })
    }
}

/// Refuses places over which no store can be.
fn check_places(places: &[RegionOptions]) -> Result<(), KvError> {
    let where_is = |place: &RegionOptions| match &place.server {
        Some(server) => (Some(server.clone()), None, place.name.clone()),
        None => (None, Some(place.dir.clone()), place.name.clone()),
    };
    let is_again =
        |at: usize| places[..at].iter().any(|before| where_is(before) == where_is(&places[at]));
    let why = match places.len() {
        0 => "there is none",
        parts if parts > PARTS_MAX => "there are too many",
        parts if (1..parts).any(is_again) => "one is named twice",
        _ => return Ok(()),
    };
    Err(KvError::BadParts { why })
}

/// Looks what is at the places, at all of them at once.
fn look_at_all(
    places: &[RegionOptions],
    wanted: &StoreOptions,
    patience: &[Duration],
) -> Result<Vec<Found>, KvError> {
    wanted.check_name()?;
    std::thread::scope(|scope| {
        let look = |(place, patience): (_, &Duration)| {
            let thread = std::thread::Builder::new().name("farlock-kv-look".to_owned());
            let patience = *patience;
            thread.spawn_scoped(scope, move || look(place, wanted, patience))
        };
        let looks: Vec<_> = places.iter().zip(patience).map(look).collect();
        let mut found = Vec::with_capacity(looks.len());
        for look in looks {
            let looked = look.map_err(KvError::Thread)?.join();
            found.push(looked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(found)
    })
}

fn look(
    place: &RegionOptions,
    wanted: &StoreOptions,
    patience: Duration,
) -> Result<Found, KvError> {
    let existing = wanted.clone().existing();
    let error = match while_away(patience, || Hub::connect(place, &existing)) {
        Ok(hub) => return Found::of(hub),
        Err(error) => error,
    };
    let is_absent = matches!(&error, KvError::Open { source: ConnectError::Absent { .. }, .. });
    match is_absent || error.is_of_server_away() {
        true => Ok(Found { hub: Err(error), choice: None, is_whole: false, drawn: 0 }),
        false => Err(error),
    }
}

/// The index and the number of the store whose parts these are, if any of them is there.
fn agreed(
    places: &[RegionOptions],
    name: &str,
    found: &[Found],
) -> Result<Option<(Index, u32)>, KvError> {
    let choices: Vec<Option<Choice>> = found.iter().map(|found| found.choice).collect();
    let there = || choices.iter().enumerate().filter_map(|(at, choice)| Some((at, (*choice)?)));
    for (at, choice) in there() {
        check_part(name, places, at, choice, || order_of(places, &choices))?;
    }
    let known = |choice: Choice| Some((choice.index, choice.share?.whole));
    let first = there().find_map(|(_, choice)| known(choice));
    match there().find(|(_, choice)| known(*choice) != first) {
        None => Ok(first),
        Some((at, _)) => {
            Err(KvError::ForeignPart { name: name.to_owned(), at: places[at].place() })
        }
    }
}

/// Refuses what is another part than that of this place.
fn check_part(
    name: &str,
    places: &[RegionOptions],
    at: usize,
    choice: Choice,
    order: impl FnOnce() -> Vec<String>,
) -> Result<(), KvError> {
    let (has, wanted) = (choice.share.map(|share| share.of), PartOf::at(at, places.len()));
    if has == Some(wanted) {
        return Ok(());
    }
    let (name, at, wanted) = (name.to_owned(), places[at].place(), Some(wanted));
    Err(KvError::OtherPart { name, at, has, wanted, order: order() })
}

/// The places in the order in which they have the parts of one store; none if they have not.
fn order_of(places: &[RegionOptions], choices: &[Option<Choice>]) -> Vec<String> {
    let place_of = |at: usize| {
        let is_it = |choice: &Option<Choice>| {
            let of = choice.and_then(|choice| choice.share).map(|share| share.of);
            of == Some(PartOf::at(at, places.len()))
        };
        choices.iter().position(is_it).map(|found| places[found].place())
    };
    (0..places.len()).map(place_of).collect::<Option<_>>().unwrap_or_default()
}
