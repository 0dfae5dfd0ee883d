//! DecLock: a reader-writer lock whose header grants in order of arrival, and whose holders tell
//! those in line by the entries that these left beside it (*DecLock*, arXiv 2505.17641, 2025).
#![doc = include_str!("../../../../docs/protocols/declock.md")]

use farlock_fabric::verb::Link;
use farlock_fabric::word::Field;
use farlock_fabric::{
    Addr, Endpoint, EndpointId, Mailbox, Nanos, Patience, Posted, Verb, Wait, Woken, word,
};

use super::queue::{Kind, Note, Released, next_generation, next_note, tell};
use crate::lock::expected_word;
use crate::prelude::*;
use crate::repair;
use crate::width;

word! {
    /// The header. Zero is free. It is changed by additions whose carries meet no other field.
    pub struct Header: u64 {
        /// Writers that hold or await the lock.
        WRITERS writers: 12,
        /// Clients that hold or await it.
        SIZE size: 12,
        /// How often the lock was repaired.
        GENERATION generation: 16 => width::GENERATION,
        /// A repairer lets the living of earlier generations leave: nothing else counts.
        RESET reset: 1,
        /// Releases: the position of the first in line.
        HEAD head: 23,
    }
}

word! {
    /// What a waiter leaves beside the header for those before it: who stands at a position.
    struct Entry: u64 {
        /// The waiter: a packed mailbox.
        WAITER waiter: 40,
        /// 0 shared, 1 exclusive.
        MODE mode: 1,
        /// The position.
        POSITION position: 23,
    }
}

/// The most entries, of 8 bytes each.
const ENTRIES_MAX: u32 = 256;
/// A ring in which nothing stands.
const NO_ENTRIES: [u64; ENTRIES_MAX as usize] = [0; ENTRIES_MAX as usize];
/// Entries read with a release: those right behind the client.
const NEXT: u32 = 4;
/// The pause between two reads of an entry that is not there yet, at first: a round trip.
const POLL_NS: Nanos = 1_862;
/// So often an entry is looked for, each time after twice as long.
const POLLS: u32 = 4;
/// The most such looks: the last pause has about a second.
const POLLS_MAX: u32 = 20;
/// How long a waiter trusts those before it, in nanoseconds. As long as it finds them alive, and
/// none of them leaves, twice as long each time.
const TRUST_NS: (Nanos, Nanos) = (100_000, 1_280_000_000);
/// When it has trusted for so long, it sleeps where it can watch memory, until a client comes
/// or leaves.
const CALM_NS: Nanos = 1_600_000;
/// And so long at most, for nothing tells when the record of one that has left says so.
const CALM_LOOK_NS: Nanos = 4_000_000_000;
/// How long where looking around costs round trips: three leases of DSLR's paper.
const TRUST_FAR_NS: Nanos = 30_000_000;
/// The most peers watched in one wait.
const WATCHED_MAX: usize = 64;

impl Header {
    /// A client of this mode more.
    const fn joining(mode: Mode) -> Self {
        Self::new().with(Self::SIZE, 1).with(Self::WRITERS, mode as u64)
    }

    /// What a release in this mode adds: a position more has been passed, and a client less is
    /// there. The sizes are at least what is taken off them, so nothing is borrowed from above.
    const fn leaving(mode: Mode) -> u64 {
        Self::new().with(Self::HEAD, 1).0.wrapping_sub(Self::joining(mode).0)
    }

    const fn is_reset(self) -> bool {
        self.reset() != 0
    }

    /// Whether a client of this mode that found this may hold at once.
    const fn admits(self, mode: Mode) -> bool {
        let beside_readers = matches!(mode, Mode::Shared) && self.writers() == 0;
        !self.is_reset() && (self.size() == 0 || beside_readers)
    }

    /// The position of a client that finds this when it comes.
    const fn position(self) -> u64 {
        (self.head() + self.size()) & Self::HEAD.max()
    }

    /// Whether the turn of this position has come. All before a writer have left when so many have.
    /// Readers that came later may leave before one that does not know yet that its turn has come;
    /// but as many as come before it do only when the writers before it have left.
    const fn is_turn_of(self, mode: Mode, position: u64) -> bool {
        let past = positions(position, self.head());
        match mode {
            Mode::Exclusive => past == 0,
            Mode::Shared => past <= Self::HEAD.max() / 2,
        }
    }

    /// What a release in this mode makes of it.
    const fn left_by(self, mode: Mode) -> Self {
        Self(self.0.wrapping_add(Self::leaving(mode)))
    }

    /// The same with its repair claimed, in the next generation.
    const fn claimed(self) -> Self {
        let next = next_generation(self.generation());
        self.with(Self::RESET, 1).with(Self::GENERATION, next)
    }

    /// The same with its repairer as the only client, past all positions that were ever given.
    const fn begun(self, mode: Mode) -> Self {
        let begun = Self::joining(mode).with(Self::GENERATION, self.generation());
        begun.with(Self::HEAD, self.position())
    }
}

/// How many positions there are from one to another.
const fn positions(from: u64, to: u64) -> u64 {
    to.wrapping_sub(from) & Header::HEAD.max()
}

impl Entry {
    const fn of(waiter: Mailbox, mode: Mode, position: u64) -> Self {
        Self::new()
            .with(Self::WAITER, waiter.bits())
            .with(Self::MODE, mode as u64)
            .with(Self::POSITION, position)
    }

    const fn wants_alone(self) -> bool {
        self.mode() != 0
    }
}

/// What a holder remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    generation: u16,
    position: u32,
    /// Whether an entry names it.
    has_entry: bool,
}

impl Grant {
    /// Of the client that found this when it came.
    const fn of(found: Header) -> Self {
        let (generation, position) = (found.generation() as u16, found.position() as u32);
        Self { generation, position, has_entry: false }
    }

    /// Of the client that is first in line there.
    const fn first(header: Header) -> Self {
        Self { position: header.head() as u32, ..Self::of(header) }
    }

    /// How a note names its position.
    const fn named(self) -> Released {
        Released::new().with(Released::COUNT, self.position as u64)
    }

    const fn is_void_in(self, header: Header) -> bool {
        header.is_reset() || header.generation() != self.generation as u64
    }
}

/// A reader-writer lock of a header and a ring of entries.
#[derive(Clone, Debug)]
pub struct DecLock {
    /// Entries in the ring: a power of two. Those in line further behind have none.
    pub entries: u32,
    /// How often a holder that leaves looks for an entry that is not there yet.
    pub polls: u32,
    /// The pause between two looks at first, in nanoseconds.
    pub poll_ns: Nanos,
    /// How waits spend their time where the back end has a choice.
    pub patience: Patience,
}

impl Default for DecLock {
    fn default() -> Self {
        let patience = Patience::DEFAULT;
        Self { entries: ENTRIES_MAX, polls: POLLS, poll_ns: POLL_NS, patience }
    }
}

/// What a look at the header says to a waiter.
enum Look {
    /// Its turn has come.
    Turn,
    /// The lock was repaired, or is being repaired.
    Void,
    /// Living clients will change the header.
    Wait,
    /// No living client will.
    Stuck(Header),
}

/// What a waiter knows of those that it waits for.
struct Watch {
    /// How long they are trusted, in nanoseconds, and how much of that is left.
    trust_ns: Nanos,
    left_ns: Nanos,
    /// It sleeps until the header changes.
    is_calm: bool,
    /// The header at the last look.
    seen: Option<Header>,
    watched: Vec<EndpointId>,
}

impl Watch {
    const fn new<E: Endpoint>() -> Self {
        let trust_ns = fresh_ns::<E>();
        Self { trust_ns, left_ns: trust_ns, is_calm: false, seen: None, watched: Vec::new() }
    }

    /// Waits for a reason to look, for a while at most.
    async fn wait<E: Endpoint>(
        &mut self,
        site: &Site<'_, E>,
        wait: Wait<'_>,
        at_most_ns: Nanos,
    ) -> Woken {
        let limit = self.left_ns.min(at_most_ns);
        let interval = Some(limit);
        // One that has waited for long is woken by the first client that comes or leaves.
        let calm = self.seen.filter(|_| self.is_calm);
        let word = calm.map(|seen| (site.lock, seen.0)).or(wait.word);
        let wait = Wait { word, interval, peers: &self.watched, ..wait };
        let woken = site.endpoint.wait(wait).await;
        match woken {
            Woken::Elapsed => self.left_ns -= limit,
            Woken::Changed if calm.is_some() => self.left_ns = 0,
            Woken::PeerGone(_) => (self.left_ns, self.watched) = (0, Vec::new()),
            _ => {}
        }
        woken
    }

    /// Whether living clients will change the header, which stood so when it was read. Those that
    /// left since the last look are trusted to; then this looks around.
    async fn finds_movers<E: Endpoint>(
        &mut self,
        site: &Site<'_, E>,
        header: Header,
    ) -> Outcome<bool> {
        let last = self.seen.replace(header);
        if self.left_ns > 0 {
            return Ok(true);
        }
        if last.is_none_or(|last| last.head() != header.head()) {
            (self.trust_ns, self.left_ns) = (fresh_ns::<E>(), fresh_ns::<E>());
            self.watched.clear();
            self.is_calm = false;
            return Ok(true);
        }
        let mut movers = repair::participants(site.endpoint, site.lock, site.slot()).await?;
        movers.retain(|p| match p.record.phase {
            Phase::Waiting => {
                let is_valid = !header.is_reset() && p.record.generation == header.generation();
                is_valid && header.is_turn_of(p.record.mode, p.record.ticket.into())
            }
            Phase::Coming => false,
            _ => true,
        });
        self.watched = movers.iter().map(|p| p.endpoint).take(WATCHED_MAX).collect();
        let is_calm = E::WATCHES_MEMORY && self.trust_ns >= CALM_NS && movers.len() <= WATCHED_MAX;
        self.is_calm = is_calm;
        self.left_ns = if is_calm { CALM_LOOK_NS } else { self.trust_ns };
        let most_ns = if E::LOOKS_AROUND_CHEAPLY { TRUST_NS.1 } else { TRUST_FAR_NS };
        self.trust_ns = (2 * self.trust_ns).min(most_ns);
        Ok(!movers.is_empty())
    }

    /// What it carries from one look to the next, as numbers.
    fn survivors(&self) -> [u64; 2] {
        let mixed = |sum: u64, peer: &EndpointId| sum.rotate_left(7) ^ peer.bits();
        let trust = self.trust_ns ^ self.left_ns.rotate_left(32);
        let watched = self.watched.iter().fold(trust, mixed);
        [watched, self.seen.map_or(u64::MAX, Header::head)]
    }
}

/// How long those are trusted of whom nothing is known.
const fn fresh_ns<E: Endpoint>() -> Nanos {
    if E::LOOKS_AROUND_CHEAPLY { TRUST_NS.0 } else { TRUST_FAR_NS }
}

/// Where the header and the entries lie.
impl DecLock {
    fn index(&self, position: u64) -> u32 {
        position as u32 & (self.entries - 1)
    }

    fn entry(&self, site: &Site<'_, impl Endpoint>, position: u64) -> Addr {
        site.lock.plus(8 + 8 * u64::from(self.index(position)))
    }

    /// How many entries from this position on lie side by side, of so many.
    fn beside(&self, position: u64, count: u32) -> u16 {
        count.min(self.entries - self.index(position)) as u16
    }
}

impl<E: Endpoint> Protocol<'_, E, DecLock> {
    /// The release of a hold, with a look at who is next.
    fn leave(self, mode: Mode, grant: Grant) -> Posted {
        let position = u64::from(grant.position);
        let (addr, words) =
            (self.rules.entry(&self, position + 1), self.rules.beside(position + 1, NEXT));
        let add = Header::leaving(mode);
        let read = Link::from(Verb::Read { addr, words });
        let leave = Link::from(Verb::Faa64 { addr: self.lock, add });
        if !(grant.has_entry && mode == Mode::Shared) {
            return self.endpoint.post_chain(&[read, leave]);
        }
        // A reader's entry never outlives its hold: a writer that leaves lets in all readers up to
        // the next writer, and would take an old entry at a writer's position for a reader's. Where
        // others have left before this one, a newcomer may have its place in the ring by now.
        let (addr, mine) = (self.rules.entry(&self, position), Entry::of(self.me, mode, position));
        let forget = Link::from(Verb::Cas64 { addr, compare: mine.0, swap: 0 });
        self.endpoint.post_chain(&[forget, read, leave])
    }

    /// The entry right behind the first position, if the release that found `old` has read it.
    fn entry_read(self, mode: Mode, grant: Grant, head: u64) -> Option<Entry> {
        let next = u64::from(grant.position) + 1;
        let mut words = [0; NEXT as usize];
        let link = usize::from(grant.has_entry && mode == Mode::Shared);
        let read =
            self.endpoint.copy_read(link, &mut words[..self.rules.beside(next, NEXT).into()]);
        let entry = Entry(*words[..read].get(positions(next, head) as usize)?);
        (entry.waiter() != 0 && entry.position() == head).then_some(entry)
    }

    /// The entries of these positions, of those that have room in the ring.
    async fn read_entries(self, first: u64, count: u32) -> Outcome<Vec<Option<Entry>>> {
        let mut entries = Vec::new();
        let mut left = count.min(self.rules.entries);
        while left > 0 {
            let position = (first + entries.len() as u64) & Header::HEAD.max();
            let words = self.rules.beside(position, left);
            let addr = self.rules.entry(&self, position);
            self.endpoint.verb(Verb::Read { addr, words }).await?;
            let mut read = vec![0; words.into()];
            self.endpoint.copy_read(0, &mut read);
            entries.extend((position..).zip(read).map(|(position, word)| {
                let entry = Entry(word);
                (entry.waiter() != 0 && entry.position() == position).then_some(entry)
            }));
            left -= u32::from(words);
        }
        Ok(entries)
    }
}

// Acquiring.

impl<E: Endpoint> Protocol<'_, E, DecLock> {
    /// Waits for the turn of a client that came when the header was as `found`. Nobody has to tell
    /// it: its turn is when all before it have left, which the header says. A note spares it the
    /// wait until it looks at that. `None`: the lock was repaired, or is being repaired.
    async fn await_turn(self, mode: Mode, found: Header) -> Outcome<Option<Grant>> {
        let (mut grant, generation) = (Grant::of(found), found.generation());
        let position = u64::from(grant.position);
        self.publish_ticket(Phase::Waiting, mode, generation, grant.position);
        let entry = [Entry::of(self.me, mode, position).0];
        let mut watch = Watch::new::<E>();
        // One that no entry names at once gets no note: it looks often, and leaves its entry later.
        let has_room = found.size() < self.rules.entries.into();
        if has_room {
            self.write_entry(position, &entry).await?;
            grant.has_entry = true;
        }
        loop {
            if let Some(is_told) = self.read_mail(grant) {
                return Ok(is_told.then_some(grant));
            }
            let [watched, seen] = watch.survivors();
            let entered = u64::from(grant.has_entry);
            self.endpoint.checkpoint(&[generation << 32 | position, entered, watched, seen]);
            let at_most_ns = if has_room { Nanos::MAX } else { self.rules.poll_ns };
            let (mail, patience) = (Some(self.slot()), self.rules.patience);
            let wait = Wait { mail, patience, ..Wait::default() };
            if watch.wait(&self, wait, at_most_ns).await == Woken::Mail {
                continue;
            }
            let mut look = self.look(mode, grant, &mut watch).await?;
            let ahead = positions(watch.seen.map_or(0, Header::head), position);
            if matches!(look, Look::Wait) && !grant.has_entry && ahead < self.rules.entries.into() {
                self.write_entry(position, &entry).await?;
                grant.has_entry = true;
                // Those before it may have looked for it before that.
                look = self.look(mode, grant, &mut watch).await?;
            }
            match look {
                Look::Turn => return Ok(Some(grant)),
                Look::Void => return Ok(None),
                Look::Stuck(header) if self.claim(header).await? => {
                    return self.rebuild(mode, header).await;
                }
                Look::Wait | Look::Stuck(_) => {}
            }
        }
    }

    /// Looks at the header.
    async fn look(self, mode: Mode, grant: Grant, watch: &mut Watch) -> Outcome<Look> {
        let header = Header(self.read().await?);
        if grant.is_void_in(header) {
            return Ok(Look::Void);
        }
        if header.is_turn_of(mode, grant.position.into()) {
            return Ok(Look::Turn);
        }
        let moves = watch.finds_movers(&self, header).await?;
        Ok(if moves { Look::Wait } else { Look::Stuck(header) })
    }

    async fn write_entry(self, position: u64, data: &[u64]) -> Outcome<()> {
        self.endpoint.verb(Verb::Write { addr: self.rules.entry(&self, position), data }).await
    }

    /// Reads the mail of a waiter. `Some`: it is told that its turn has come, or that it must begin
    /// again.
    fn read_mail(self, grant: Grant) -> Option<bool> {
        while let Some(note) = next_note(&self, grant.generation.into()) {
            match note.kind {
                Kind::Reset => return Some(false),
                Kind::Handover if note.released.count() == grant.named().count() => {
                    return Some(true);
                }
                // Of another of its turns: that one saw for itself that it had come.
                _ => self.event(Event::StaleMessage { lock: self.lock }),
            }
        }
        None
    }

    /// Waits while the lock is being repaired. `Some`: until it did that itself, since no living
    /// client does.
    async fn await_repair(self, mode: Mode) -> Outcome<Option<Grant>> {
        let mut watch = Watch::new::<E>();
        loop {
            let seen = Header(self.read().await?);
            // The repairer does not wait for this client.
            self.publish(Phase::Coming, mode, seen.generation());
            while next_note(&self, seen.generation()).is_some() {}
            if !seen.is_reset() {
                return Ok(None);
            }
            let [watched, last] = watch.survivors();
            self.endpoint.checkpoint(&[seen.0, watched, last]);
            let (word, mail) = (Some((self.lock, seen.0)), Some(self.slot()));
            let wait = Wait { word, mail, patience: self.rules.patience, ..Wait::default() };
            let at_most_ns = if E::WATCHES_MEMORY { Nanos::MAX } else { self.rules.poll_ns };
            watch.wait(&self, wait, at_most_ns).await;
            if !watch.finds_movers(&self, seen).await?
                && self.claim(seen).await?
                && let Some(grant) = self.rebuild(mode, seen).await?
            {
                return Ok(Some(grant));
            }
        }
    }
}

// Repairing.

impl<E: Endpoint> Protocol<'_, E, DecLock> {
    /// Claims the repair of a lock that no living client would change, if it still stands so.
    async fn claim(self, stuck: Header) -> Outcome<bool> {
        Ok(self.cas64(stuck.0, stuck.claimed().0).await? == stuck.0)
    }

    /// Begins the line of a claimed lock anew, with itself, when the living of earlier generations
    /// have left. `None`: others have claimed it in turn.
    async fn rebuild(self, mode: Mode, stuck: Header) -> Outcome<Option<Grant>> {
        let mut seen = stuck.claimed();
        let generation = seen.generation();
        self.publish(Phase::Repairing, mode, generation);
        if !repair::drain(&self, generation, |_| true).await? {
            return Ok(None);
        }
        // No client is left that would write an entry, or read one.
        let (addr, data) = (self.rules.entry(&self, 0), &NO_ENTRIES[..self.rules.entries as usize]);
        self.endpoint.verb(Verb::Write { addr, data }).await?;
        loop {
            let begun = seen.begun(mode);
            let found = Header(self.cas64(seen.0, begun.0).await?);
            if found == seen {
                self.event(Event::Repaired { lock: self.lock, generation, dead_readers: 0 });
                return Ok(Some(Grant::first(begun)));
            }
            if !found.is_reset() || found.generation() != generation {
                return Ok(None);
            }
            seen = found;
            self.endpoint.checkpoint(&[seen.0]);
        }
    }
}

// Releasing.

impl<E: Endpoint> Protocol<'_, E, DecLock> {
    /// A writer has left: tells the next writer, or all readers up to the one after them. A waiter
    /// that is not found is not waited for: it finds out by itself.
    async fn tell_next(self, left: Header, known: Option<Entry>) -> Outcome<()> {
        let (mut position, mut polls) = (left.head(), 0);
        let mut entries: Vec<Option<Entry>> = known.map(Some).into_iter().collect();
        while position != left.position() {
            let place = positions(left.head(), position) as usize;
            if place >= self.rules.entries as usize {
                // Those further behind have no room in the ring.
                return Ok(());
            }
            if place >= entries.len() || entries[place].is_none() {
                if polls > 0 && !self.pause([left.0, position], polls).await {
                    return Ok(());
                }
                polls += 1;
                entries = self.read_entries(left.head(), left.size() as u32).await?;
            }
            let Some(Some(entry)) = entries.get(place) else { continue };
            if entry.wants_alone() && place > 0 {
                return Ok(());
            }
            self.tell(left.generation(), *entry).await?;
            if entry.wants_alone() {
                return Ok(());
            }
            (position, polls) = ((position + 1) & Header::HEAD.max(), 0);
        }
        Ok(())
    }

    /// A reader has left, and writers wait: tells the first in line if that is one. If it is a
    /// reader, that one holds as this one did.
    async fn tell_writer(self, left: Header, known: Option<Entry>) -> Outcome<()> {
        let (mut entries, mut polls) = (vec![known], 0);
        loop {
            if let Some(Some(first)) = entries.first() {
                if first.wants_alone() {
                    self.tell(left.generation(), *first).await?;
                }
                return Ok(());
            }
            // A reader that was let in at once left no entry; a writer may not have left its own
            // yet, unless all of them are elsewhere.
            let writers = entries.iter().flatten().filter(|entry| entry.wants_alone()).count();
            let is_known =
                writers as u64 == left.writers() || left.size() > self.rules.entries.into();
            if polls > 0 && (is_known || !self.pause([left.0, 0], polls).await) {
                return Ok(());
            }
            polls += 1;
            entries = self.read_entries(left.head(), left.size() as u32).await?;
        }
    }

    /// Pauses before an entry is looked for once more, each time for longer. False: it was looked
    /// for often enough.
    async fn pause(self, at: [u64; 2], polls: u32) -> bool {
        if polls > self.rules.polls {
            return false;
        }
        self.endpoint.checkpoint(&[at[0], at[1], polls.into()]);
        let interval = Some(self.rules.poll_ns << (polls - 1));
        let patience = self.rules.patience;
        self.endpoint.wait(Wait { interval, patience, ..Wait::default() }).await;
        true
    }

    /// Tells a waiter that its turn has come. The dead cannot be told; those behind them find out.
    async fn tell(self, generation: u64, entry: Entry) -> Outcome<()> {
        let mut note = Note::new(Kind::Handover, self.me, self.lock, generation);
        note.released = note.released.with(Released::COUNT, entry.position());
        tell(&self, Mailbox::from_bits(entry.waiter()), &note).await.map(drop)
    }
}

impl LockKind for DecLock {
    const BYTES: u64 = 16 + 8 * ENTRIES_MAX as u64;
    const SHARES: bool = true;
    const FIELDS: &'static [Field] = Header::FIELDS;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    /// `entries=COUNT`: those in the ring; `polls=COUNT`: how often a
    /// client that leaves looks for an entry; `poll=NANOS`: the pause between the first two looks;
    /// `spins=COUNT`, `yields=COUNT`.
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        match name {
            "entries" => Some(Setting::power_of_two(&mut self.entries, 1..=ENTRIES_MAX)),
            "polls" => Some(Setting::count(&mut self.polls, 0..=POLLS_MAX)),
            "poll" => Some(Setting::nanos(&mut self.poll_ns, 1)),
            _ => Setting::patience(&mut self.patience, name),
        }
    }

    fn promises(&self) -> Promises {
        Promises {
            order: Order { readers_in_line: true, outlives_pauses: false, ..Order::FIFO },
            leaves_mail: true,
            proof: Proof {
                variants: &["entries=1"],
                larger: &["entries=4"],
                patient: "entries=2:polls=1:poll=15000000",
                ..Proof::SLEEPER
            },
            ..Promises::EXCLUSION
        }
    }

    fn near_wrap(&self, steps: u16) -> u128 {
        let header = Header::new().with(Header::GENERATION, u64::MAX);
        header.with(Header::HEAD, u64::from(steps).wrapping_neg()).0.into()
    }
}

impl Granted for Grant {
    #[inline(always)]
    fn generation(self) -> u64 {
        self.generation.into()
    }

    #[inline(always)]
    fn ticket(self) -> u32 {
        self.position
    }
}

impl<E: Endpoint> Lock<E> for DecLock {
    type Want = Mode;
    type Grant = Grant;

    #[inline(always)]
    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        Verb::Faa64 { addr: site.lock, add: Header::joining(mode).0 }
    }

    #[inline(always)]
    fn opened(&self, _: &Site<'_, E>, mode: Mode, old: u128) -> Option<Grant> {
        let found = Header(old as u64);
        found.admits(mode).then(|| Grant::of(found))
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Outcome<Grant> {
        let mut found = Header(old as u64);
        loop {
            site.endpoint.checkpoint(&[found.0]);
            if found.admits(mode) {
                return Ok(Grant::of(found));
            }
            if !found.is_reset()
                && let Some(grant) = site.by(self).await_turn(mode, found).await?
            {
                return Ok(grant);
            }
            site.event(Event::Restarted { lock: site.lock });
            if let Some(grant) = site.by(self).await_repair(mode).await? {
                return Ok(grant);
            }
            site.publish(Phase::Opening, mode, 0);
            found = Header(site.verb(self.opening(site, mode)).await? as u64);
        }
    }

    #[inline(always)]
    fn closing(&self, site: &Site<'_, E>, mode: Mode, _: Grant) -> Option<Verb<'static>> {
        Some(Verb::Faa64 { addr: site.lock, add: Header::leaving(mode) })
    }

    #[inline(always)]
    fn close(&self, site: &Site<'_, E>, mode: Mode, grant: Grant) -> Option<Posted> {
        Some(site.by(self).leave(mode, grant))
    }

    /// Also keeps what the release has read of the first in line.
    #[inline(always)]
    fn closed(&self, site: &Site<'_, E>, mode: Mode, grant: Grant, old: u128) -> bool {
        let (old, left) = (Header(old as u64), Header(old as u64).left_by(mode));
        if grant.is_void_in(left) {
            return false;
        }
        debug_assert!(old.size() > 0, "a holder is one of those in line");
        debug_assert!(mode == Mode::Shared || old.writers() > 0, "a writer is one of the writers");
        site.left(left.0.into());
        let nobody_waits = match mode {
            Mode::Shared => left.writers() == 0,
            Mode::Exclusive => left.size() == 0,
        };
        if !nobody_waits {
            let first = site.by(self).entry_read(mode, grant, left.head());
            site.set_behind(first.map_or(0, |entry| entry.0));
        }
        nobody_waits
    }

    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        grant: Grant,
        old: Option<u128>,
    ) -> Outcome<()> {
        let old = old.expect("a release of this lock posts a verb");
        let left = Header(old as u64).left_by(mode);
        if grant.is_void_in(left) {
            site.event(Event::Superseded { lock: site.lock });
            return Ok(());
        }
        let first = site.take_behind().map(Entry);
        match mode {
            Mode::Exclusive => site.by(self).tell_next(left, first).await,
            Mode::Shared => site.by(self).tell_writer(left, first).await,
        }
    }

    /// Joins if the header is as expected.
    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        let compare = expected_word(self, site, mode, seen) as u64;
        let swap = compare.wrapping_add(Header::joining(mode).0);
        Some(Verb::Cas64 { addr: site.lock, compare, swap })
    }
}
