//! A sorted list of ranges in far memory, by one-sided verbs: the rival LLD of Citron (FAST'23,
//! table 1), which is the exclusive list of Kogan, Dice and Issa (Scalable Range Locks, EuroSys'20,
//! section 4.1) with its atomics executed by a NIC.
#![doc = include_str!("../../../../docs/protocols/far-list.md")]

use std::ops::Range;

use farlock_fabric::word::Field;
use farlock_fabric::{Addr, Endpoint, Nanos, Verb, Wait, word};

use crate::prelude::*;
use crate::want::{Extent, Want};

word! {
    /// Which entry comes next. The word of an entry says which use of it that is, too: so a compare
    /// fails on one that was used again.
    pub struct NextWord: u64 {
        /// The entry is taken out of use: the next client that comes by unlinks it.
        MARK mark: 1,
        /// The number of the next entry; zero at the end.
        NEXT next: 19,
        /// Which use of that.
        NEXT_USE next_use: 22,
        /// Which use of the entry itself; zero at the head.
        OWN_USE own_use: 22,
    }
}

word! {
    /// The units of an entry.
    pub struct UnitsWord: u64 {
        /// The first.
        FIRST first: 28,
        /// The last.
        LAST last: 28,
        /// The lowest bits of which use of the entry that is.
        OF_USE of_use: 8,
    }
}

/// Bytes of an entry, and of the head.
const ENTRY_BYTES: u64 = 16;
/// Clients that a lock in a table has room for, by 8 slots.
const TABLED_CLIENTS: u32 = 128;
/// The most clients.
const CLIENTS_MAX: u32 = 1 << 16;
/// Clients that one has room for whose size is asked for.
const CLIENTS: u32 = 1_024;
/// Slots of a client, at most.
const SLOTS: u32 = 8;
/// The most units.
const UNITS: u32 = 1 << 28;
/// The pause between two reads, in nanoseconds: a round trip.
const POLL_NS: Nanos = 1_862;

/// A list of the ranges that are held, each in an entry of its holder's slot.
#[derive(Clone, Debug)]
pub struct FarList {
    /// How many clients there is room for.
    pub clients: u32,
    /// The pause between two reads of a waiter, in nanoseconds.
    pub poll_ns: Nanos,
}

impl Default for FarList {
    fn default() -> Self {
        Self { clients: TABLED_CLIENTS, poll_ns: POLL_NS }
    }
}

/// An entry in one of its uses; number zero is the head, or the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Link {
    number: u64,
    of_use: u64,
}

impl Link {
    const HEAD: Self = Self { number: 0, of_use: 0 };

    const fn of(word: NextWord) -> Self {
        Self { number: word.next(), of_use: word.next_use() }
    }

    const fn put(self, into: NextWord) -> NextWord {
        into.with(NextWord::NEXT, self.number).with(NextWord::NEXT_USE, self.of_use)
    }
}

/// Which use of an entry comes after the one that its word says.
const fn use_after(word: NextWord) -> u64 {
    if word.own_use() == NextWord::OWN_USE.max() { 1 } else { word.own_use() + 1 }
}

/// Where a walk has come to: the entry before, as its word is, and what is in the way behind it.
struct Spot {
    before: Link,
    word: NextWord,
    in_the_way: Option<Link>,
}

/// What a holder remembers: which use of its entry this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant(u64);

impl Granted for Grant {}

impl<E: Endpoint> Protocol<'_, E, FarList> {
    fn addr(self, number: u64) -> Addr {
        self.lock.plus(number * ENTRY_BYTES)
    }

    /// The number of this slot's own entry.
    fn own(self) -> u64 {
        let slots = u64::from(self.endpoint.slots());
        // Index zero is nobody's.
        let client = u64::from(self.me.endpoint.index) - 1;
        let number = client * slots + u64::from(self.me.slot.0) + 1;
        let room = u64::from(self.rules.clients * SLOTS);
        assert!(number <= room, "the lock has room for its clients: say clients=COUNT");
        number
    }

    fn units(self, want: Extent) -> Range<u32> {
        let units = want.units(u32::MAX);
        units.start.min(UNITS - 1)..units.end.min(UNITS)
    }

    /// Reads an entry.
    async fn entry(self, number: u64) -> Outcome<(NextWord, UnitsWord)> {
        self.verb(Verb::Read { addr: self.addr(number), words: 2 }).await?;
        let old = self.endpoint.old();
        Ok((NextWord(old as u64), UnitsWord((old >> 64) as u64)))
    }

    /// Walks to where a range of these units belongs. Entries out of use are unlinked on the way;
    /// where one was used again meanwhile, the walk begins again.
    async fn walk(self, units: &Range<u32>) -> Outcome<Spot> {
        'walk: loop {
            let (mut before, mut word) = (Link::HEAD, self.entry(0).await?.0);
            loop {
                let here = Link::of(word);
                self.endpoint.checkpoint(&[before.number, before.of_use, word.0]);
                if here == Link::HEAD {
                    return Ok(Spot { before, word, in_the_way: None });
                }
                let (next, held) = self.entry(here.number).await?;
                if next.own_use() != here.of_use {
                    continue 'walk;
                }
                if next.mark() != 0 {
                    match self.relink(before, word, Link::of(next)).await? {
                        Some(linked) => word = linked,
                        None => continue 'walk,
                    }
                    continue;
                }
                if held.of_use() != here.of_use & UnitsWord::OF_USE.max() {
                    continue 'walk;
                }
                if held.first() >= units.end.into() {
                    return Ok(Spot { before, word, in_the_way: None });
                }
                if held.last() >= units.start.into() {
                    return Ok(Spot { before, word, in_the_way: Some(here) });
                }
                (before, word) = (here, next);
            }
        }
    }

    /// Lets another entry come behind this one, whose word is as it was seen; its word then.
    /// `None`: it is not, and the walk must begin again.
    async fn relink(self, at: Link, seen: NextWord, to: Link) -> Outcome<Option<NextWord>> {
        let (addr, linked) = (self.addr(at.number), to.put(seen));
        let verb = Verb::Cas64 { addr, compare: seen.0, swap: linked.0 };
        let found = self.verb(verb).await? as u64;
        Ok((found == seen.0).then_some(linked))
    }

    /// Links the slot's entry in where its units belong, with one doorbell: what is written first
    /// nobody finds before. False if another client came first.
    async fn link(self, spot: &Spot, units: &Range<u32>, of_use: u64) -> Outcome<bool> {
        let own = Link { number: self.own(), of_use };
        let next = Link::of(spot.word).put(NextWord::new().with(NextWord::OWN_USE, of_use));
        let held = UnitsWord::new()
            .with(UnitsWord::FIRST, units.start.into())
            .with(UnitsWord::LAST, u64::from(units.end) - 1)
            .with(UnitsWord::OF_USE, of_use & UnitsWord::OF_USE.max());
        let entry = Verb::Write { addr: self.addr(own.number), data: &[next.0, held.0] };
        let swap = own.put(spot.word).0;
        let addr = self.addr(spot.before.number);
        let link = Verb::Cas64 { addr, compare: spot.word.0, swap };
        self.endpoint.chain(&[entry.into(), link.into()]).await?;
        let is_linked = self.endpoint.old() as u64 == spot.word.0;
        if !is_linked {
            self.event(Event::Retried { lock: self.lock });
        }
        Ok(is_linked)
    }

    /// Waits until this entry is out of that use.
    async fn wait_for(self, entry: Link) -> Outcome<()> {
        loop {
            let word = NextWord(self.read_at(self.addr(entry.number)).await?);
            if word.mark() != 0 || word.own_use() != entry.of_use {
                return Ok(());
            }
            self.endpoint.checkpoint(&[entry.number, entry.of_use, word.0]);
            let interval = (!E::WATCHES_MEMORY).then_some(self.rules.poll_ns);
            let word = Some((self.addr(entry.number), word.0));
            self.endpoint.wait(Wait { word, interval, ..Wait::default() }).await;
        }
    }
}

impl LockKind for FarList {
    const BYTES: u64 = (TABLED_CLIENTS * SLOTS + 1) as u64 * ENTRY_BYTES;
    const SHARES: bool = false;
    const FIELDS: &'static [Field] = NextWord::FIELDS;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    fn fields_at(offset: u64) -> &'static [Field] {
        let is_units = !offset.is_multiple_of(ENTRY_BYTES);
        if is_units { UnitsWord::FIELDS } else { NextWord::FIELDS }
    }

    fn bytes(&self) -> u64 {
        Self::BYTES.max(u64::from(self.clients * SLOTS + 1) * ENTRY_BYTES)
    }

    fn units(&self) -> Option<u64> {
        Some(UNITS.into())
    }

    /// `clients=COUNT` for which there is room; `poll=NANOS` between two reads of a waiter. It has
    /// any `space=COUNT`, and then room for 1,024 clients.
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        match name {
            "clients" => Some(Setting::count(&mut self.clients, 1..=CLIENTS_MAX)),
            "poll" => Some(Setting::nanos(&mut self.poll_ns, 1)),
            "space" => Some(Setting::space(|units| {
                self.clients = self.clients.max(CLIENTS);
                units <= UNITS.into()
            })),
            _ => None,
        }
    }

    fn promises(&self) -> Promises {
        let proof = Proof {
            patient: "poll=2500000",
            in_parts: &[0, 1, 2, 3, 4],
            has_many_verbs: true,
            ..Proof::SLEEPER
        };
        Promises { outlives_clients: false, proof, ..Promises::EXCLUSION }
    }
}

impl<E: Endpoint> Lock<E> for FarList {
    type Want = Extent;
    type Grant = Grant;

    /// Reads which use of its entry was the last.
    fn opening(&self, site: &Site<'_, E>, _: Extent) -> Verb<'static> {
        Verb::Read { addr: site.by(self).addr(site.by(self).own()), words: 1 }
    }

    fn opened(&self, _: &Site<'_, E>, _: Extent, _: u128) -> Option<Grant> {
        None
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, want: Extent, old: u128) -> Outcome<Grant> {
        let by = site.by(self);
        let (units, of_use) = (by.units(want), use_after(NextWord(old as u64)));
        loop {
            let spot = by.walk(&units).await?;
            if let Some(other) = spot.in_the_way {
                site.publish(Phase::Waiting, want.mode(), 0);
                by.wait_for(other).await?;
            } else if by.link(&spot, &units, of_use).await? {
                return Ok(Grant(of_use));
            }
        }
    }

    fn closing(&self, site: &Site<'_, E>, _: Extent, _: Grant) -> Option<Verb<'static>> {
        let addr = site.by(self).addr(site.by(self).own());
        Some(Verb::Faa64 { addr, add: NextWord::new().with(NextWord::MARK, 1).0 })
    }

    /// Its entry is out of use, and still in the list.
    fn closed(&self, _: &Site<'_, E>, _: Extent, _: Grant, _: u128) -> bool {
        false
    }

    /// Takes the entry out of the list: it is used again.
    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        want: Extent,
        _: Grant,
        _: Option<u128>,
    ) -> Outcome<()> {
        let by = site.by(self);
        by.walk(&by.units(want)).await.map(|_| ())
    }

    fn trying(&self, _: &Site<'_, E>, _: Extent, _: Option<u128>) -> Option<Verb<'static>> {
        None
    }

    async fn attempt(&self, site: &Site<'_, E>, want: Extent) -> Outcome<Option<Grant>> {
        let by = site.by(self);
        let units = by.units(want);
        let of_use = use_after(by.entry(by.own()).await?.0);
        loop {
            let spot = by.walk(&units).await?;
            if spot.in_the_way.is_some() {
                return Ok(None);
            }
            if by.link(&spot, &units, of_use).await? {
                return Ok(Some(Grant(of_use)));
            }
        }
    }
}
