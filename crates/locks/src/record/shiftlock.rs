//! ShiftLock: a reader-writer lock whose writers hand it to each other and let the waiting readers
//! in after at most N of them (Gao, Wang, Shu: ShiftLock, FAST'25).
#![doc = include_str!("../../../../docs/protocols/shiftlock.md")]

mod bypass;
pub mod extended;
mod lease;
mod suspicion;

use farlock_fabric::word::Field;
use farlock_fabric::{
    EndpointId, Mailbox, MaskedCas, MaskedFaa, Nanos, Patience, Posted, Verb, Wait, WideAtomics,
    Woken, word,
};

use suspicion::Suspicion;

use super::barging::patience_in_line;
use super::queue::{
    Kind, Note, Released, await_mail, await_successor, next_generation, next_note, tell,
};
use crate::prelude::*;
use crate::repair;
use crate::width;

word! {
    /// The word of a ShiftLock (section 3.7, figure 3, with the generation of `docs/protocols`).
    /// Zero is free.
    pub struct ShiftWord: u128 {
        /// Flips whenever the lock passes from writers to readers.
        EPOCH epoch: 1,
        /// Nobody holds the lock though writers are in line: a client that runs may pass them.
        OPEN open: 1,
        /// The low bits of the generation: with them one 8-byte read decides admission.
        GENERATION_LOW generation_low: 7 => width::GENERATION_LOW,
        /// Readers that hold or await the lock.
        READERS readers: 15 => width::READERS,
        /// The last writer in line: a packed mailbox, or nobody.
        TAIL tail: 40,
        /// Releases, of readers and writers.
        COUNT count: 48 => width::COUNT,
        /// How often the lock was repaired.
        GENERATION generation: 16 => width::GENERATION,
    }
}

impl ShiftWord {
    /// The count with its generation: the upper half.
    #[inline]
    const fn released(self) -> Released {
        Released((self.0 >> 64) as u64)
    }

    /// Both places of the generation.
    #[inline]
    const fn with_generation(self, generation: u64) -> Self {
        self.with(Self::GENERATION, generation).with(Self::GENERATION_LOW, generation)
    }
}

const RELEASED_MASK: u128 = ShiftWord::COUNT.mask() | ShiftWord::GENERATION.mask();
/// Where the upper half lies, in bytes after the lock's address.
const UPPER_HALF: u64 = 8;

/// Writers in a row before the readers' turn (section 3.5.2).
pub const WRITERS_MAX: u16 = 16;
/// The pause between two reads of a word that is waited for, in nanoseconds (the artifact's).
pub const POLL_NS: Nanos = 1_862;
/// How it is proved, with leases and without.
const PROOF: Proof = Proof {
    variants: &[
        "n=1",
        "n=1:keep",
        "bypass=1",
        "bypass=1:newcomer-yields=1",
        "strict",
        "attempts=2",
    ],
    larger: &["n=4", "bypass=2", "n=2:keep"],
    handed_on: &["", "lease=10000000"],
    leased: &["", "strict", "n=1:keep"],
    // It trusts readers for 30 ms, and looks at them as often as its polling interval says.
    patient: "poll=15000000",
    hurried: "poll=20000",
    ..Proof::SLEEPER
};

/// What a holder remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The count when the lock was granted, and the generation.
    pub(crate) released: Released,
    /// The epoch while the lock is held.
    pub(crate) epoch: bool,
    /// Writers in a row that held in the order of the line, this one included; 0 for who passed
    /// the line.
    pub(crate) streak: u16,
}

/// A reader-writer lock, handed over among writers.
#[derive(Clone, Debug)]
pub struct ShiftLock {
    /// Writers in a row before the readers' turn, not counting those that pass the line; 1 lets
    /// readers in after every writer.
    pub writers_max: u16,
    /// How many may pass between two writers of the line. All clients of a lock must agree on it.
    pub bypass: u8,
    /// How often a newcomer that may pass gives its processor up before it gets in line. `None`: 5
    /// times where every verb completes at once, else never.
    pub newcomer_yields: Option<u8>,
    /// Whether a writer whose turn it is to let readers in keeps the lock among writers as long as
    /// no reader waits (section 3.5.2, future work).
    pub keep: bool,
    /// The pause between two reads where a wait cannot watch memory, in nanoseconds.
    pub poll_ns: Nanos,
    /// How waits spend their time where the back end has a choice.
    pub patience: Patience,
}

impl Default for ShiftLock {
    fn default() -> Self {
        let (poll_ns, patience) = (POLL_NS, Patience::DEFAULT);
        Self {
            writers_max: WRITERS_MAX,
            bypass: 0,
            newcomer_yields: None,
            keep: false,
            poll_ns,
            patience,
        }
    }
}

/// How a wait for other clients ended.
enum End<T> {
    /// As it should.
    Mine(T),
    /// The lock was repaired meanwhile: begin again.
    Again,
    /// A client died without which this would wait for ever.
    Broken,
}

// Acquiring.

impl ShiftLock {
    /// A reader more.
    #[inline(always)]
    fn enter() -> MaskedFaa<u128> {
        MaskedFaa { add: ShiftWord::READERS.place(1), boundary: ShiftWord::BOUNDARY }
    }

    /// A reader less, a release more (algorithm 3, line 2).
    #[inline(always)]
    pub(crate) fn leave() -> MaskedFaa<u128> {
        let one_less = ShiftWord::READERS.place(ShiftWord::READERS.max());
        MaskedFaa { add: one_less | ShiftWord::COUNT.place(1), boundary: ShiftWord::BOUNDARY }
    }

    /// Polls by the clock where a wait cannot watch memory.
    fn poll_interval<E: WideAtomics>(&self) -> Option<Nanos> {
        (!E::WATCHES_MEMORY).then_some(self.poll_ns)
    }
}

impl<E: WideAtomics> Protocol<'_, E, ShiftLock> {
    /// Makes this slot the tail whatever the word was: the unconditional swap of section 3.3.
    #[inline(always)]
    fn enqueue(self) -> MaskedCas<u128> {
        MaskedCas {
            swap: ShiftWord::TAIL.place(self.me.bits()),
            swap_mask: ShiftWord::TAIL.mask(),
            ..MaskedCas::default()
        }
    }

    /// The same if nobody holds or awaits the lock.
    #[inline(always)]
    fn enqueue_if_free(self) -> MaskedCas<u128> {
        let compare_mask = ShiftWord::TAIL.mask() | ShiftWord::READERS.mask();
        MaskedCas { compare_mask, ..self.enqueue() }
    }

    /// The verb of a writer that gets in line, or of a reader that counts itself in.
    #[inline(always)]
    fn entry(self, mode: Mode) -> Verb<'static> {
        let (addr, hint) = (self.lock, self.hint());
        match mode {
            Mode::Exclusive => Verb::MaskedCas128 { addr, op: self.enqueue(), hint },
            Mode::Shared => Verb::MaskedFaa128 { addr, op: ShiftLock::enter(), hint },
        }
    }

    /// The verb by which a reader, or a writer of the line without a successor, leaves.
    #[inline(always)]
    fn exit(self, mode: Mode, grant: Grant) -> Option<Verb<'static>> {
        let addr = self.lock;
        if mode == Mode::Shared {
            return Some(Verb::MaskedFaa128 { addr, op: ShiftLock::leave(), hint: self.hint() });
        }
        if self.successor().is_some() {
            return None;
        }
        // Algorithm 3, line 6: no tail, one release more, the epoch flipped, in one verb.
        let held = ShiftWord(u128::from(grant.released.0) << 64)
            .with(ShiftWord::TAIL, self.me.bits())
            .with(ShiftWord::EPOCH, u64::from(grant.epoch))
            .with(ShiftWord::GENERATION_LOW, grant.released.generation());
        let swap_mask = ShiftWord::TAIL.mask() | RELEASED_MASK | ShiftWord::EPOCH.mask();
        let op = MaskedCas {
            compare: held.0,
            compare_mask: ShiftWord::TAIL.mask() | RELEASED_MASK,
            swap: left_free(grant).0 & swap_mask,
            swap_mask,
        };
        Some(Verb::MaskedCas128 { addr, op, hint: Some(held.0) })
    }

    /// A writer that found the lock taken: behind readers alone, or behind another writer.
    async fn wait_exclusive(self, old: ShiftWord) -> Outcome<Option<Grant>> {
        let generation = old.generation();
        self.publish(Phase::Waiting, Mode::Exclusive, generation);
        let turn = if old.tail() == 0 {
            let grant = Grant {
                released: add(old.released(), old.readers()),
                epoch: old.epoch() != 0,
                streak: 1,
            };
            self.wait_for_readers(grant).await?
        } else {
            self.follow(Mailbox::from_bits(old.tail()), generation).await?
        };
        match turn {
            End::Mine(grant) => Ok(Some(grant)),
            End::Again => Ok(None),
            End::Broken => self.repair(generation, Mode::Exclusive).await,
        }
    }

    /// Reports to the writer before, and waits for its note (algorithm 2, lines 12 to 20).
    async fn follow(self, predecessor: Mailbox, generation: u64) -> Outcome<End<Grant>> {
        let report = Note::new(Kind::Successor, self.me, self.lock, generation);
        if !tell(&self, predecessor, &report).await? {
            return Ok(End::Broken);
        }
        let peers = [predecessor.endpoint];
        let mut gone = false;
        let note = loop {
            match next_note(&self, generation) {
                Some(note) => break note,
                // A predecessor that died has sent what it ever will.
                None if gone => {
                    self.peer_died(predecessor.endpoint);
                    return Ok(End::Broken);
                }
                None => {}
            }
            self.endpoint.checkpoint(&[generation, u64::from(gone), self.successor_bits()]);
            gone =
                await_mail(&self, &peers, patience_in_line(self.rules.bypass, self.rules.patience))
                    .await?;
        };
        let grant = Grant { released: note.released, epoch: note.epoch != 0, streak: note.streak };
        match note.kind {
            Kind::ModeChanged => self.wait_for_readers(grant).await,
            Kind::Handover | Kind::Combined => Ok(End::Mine(grant)),
            Kind::First => self.first_in_line(grant).await,
            Kind::Successor | Kind::Reset | Kind::Asked | Kind::Done | Kind::Refused => {
                Ok(End::Again)
            }
        }
    }

    /// Waits until the count is the one of `grant`: until all readers before this writer have left
    /// (algorithm 2, lines 15 and 21).
    async fn wait_for_readers(self, grant: Grant) -> Outcome<End<Grant>> {
        let upper = self.lock.plus(UPPER_HALF);
        let mut suspicion = Suspicion::new::<E>(self.rules.poll_ns);
        loop {
            // Looking around comes before reading the count: a reader that is not seen any more has
            // left, and its release shows.
            let is_sure = suspicion.look_around(&self).await?;
            let seen = Released(self.read_at(upper).await?);
            if seen.generation() != grant.released.generation() {
                return Ok(End::Again);
            }
            if seen == grant.released {
                return Ok(End::Mine(grant));
            }
            if is_sure {
                self.peer_died(EndpointId::NOBODY);
                return Ok(End::Broken);
            }
            self.endpoint.checkpoint(&[grant.released.0, suspicion.survivor()]);
            let wait = Wait {
                word: Some((upper, seen.0)),
                peers: &suspicion.watched,
                interval: Some(suspicion.interval()),
                patience: self.rules.patience,
                ..Wait::default()
            };
            suspicion.woken::<E>(self.endpoint.wait(wait).await);
        }
    }

    /// A reader that found a writer in line waits for the epoch to flip (algorithm 2, line 5). One
    /// 8-byte read tells whether it has, and whether the lock was repaired.
    async fn wait_shared(self, old: ShiftWord) -> Outcome<Option<Grant>> {
        let generation = old.generation();
        self.publish(Phase::Waiting, Mode::Shared, generation);
        let mut gone = EndpointId::NOBODY;
        loop {
            let seen = self.read().await?;
            let word = ShiftWord(u128::from(seen));
            if word.generation_low() != old.generation_low() {
                // The repairer waits for this release of a reader that never held.
                self.endpoint.masked_faa128(self.lock, ShiftLock::leave(), None).await?;
                return Ok(None);
            }
            if word.epoch() != old.epoch() {
                return self.admitted(word, generation).await.map(Some);
            }
            let last_writer = Mailbox::from_bits(word.tail()).endpoint;
            if gone.is_somebody() && gone == last_writer {
                self.peer_died(gone);
                return self.repair(generation, Mode::Shared).await;
            }
            self.endpoint.checkpoint(&[seen]);
            let watched = [last_writer];
            let wait = Wait {
                word: Some((self.lock, seen)),
                peers: if last_writer.is_somebody() { &watched } else { &[] },
                interval: self.rules.poll_interval::<E>(),
                patience: self.rules.patience,
                ..Wait::default()
            };
            gone = match self.endpoint.wait(wait).await {
                Woken::PeerGone(peer) => peer,
                _ => EndpointId::NOBODY,
            };
        }
    }

    /// Learns the token of an admitted reader: the count, read after the flip, so that it is above
    /// the token of the writer that let the reader in. The poll's own upper half may be older.
    async fn admitted(self, word: ShiftWord, generation: u64) -> Outcome<Grant> {
        let seen = Released(self.read_at(self.lock.plus(UPPER_HALF)).await?);
        let released = seen.with(Released::GENERATION, generation);
        Ok(Grant { released, epoch: word.epoch() != 0, streak: 0 })
    }
}

// Releasing.

impl<E: WideAtomics> Protocol<'_, E, ShiftLock> {
    /// Gives the lock to the successor, to the readers first if it is their turn (algorithm 3,
    /// lines 10 to 19), or to any client that runs if newcomers may pass. `None` if the successor
    /// is dead.
    async fn pass_on(self, successor: Mailbox, grant: Grant) -> Outcome<Option<()>> {
        let Some(note) = self.count_release(grant).await? else {
            repair::dismiss(&self, next_generation(grant.released.generation())).await?;
            return Ok(Some(()));
        };
        let told = tell(&self, successor, &note).await?;
        Ok(told.then_some(()))
    }

    /// Counts the release of a writer that knows its successor, by one conditional atomic: it fails
    /// where the lock was repaired. Returns the note for the successor, or `None` if it failed.
    async fn count_release(self, grant: Grant) -> Outcome<Option<Note>> {
        let readers_turn = grant.streak >= self.rules.writers_max;
        let released = add(grant.released, 1);
        let mut keeps = readers_turn && self.rules.keep;
        loop {
            let flips = readers_turn && !keeps;
            let epoch = grant.epoch ^ flips;
            let open = !flips && !self.rules.is_closed_at(released);
            let no_readers = if keeps { ShiftWord::READERS.mask() } else { 0 };
            let op = MaskedCas {
                compare: u128::from(grant.released.0) << 64,
                compare_mask: RELEASED_MASK | no_readers,
                swap: ShiftWord(u128::from(released.0) << 64)
                    .with(ShiftWord::EPOCH, u64::from(epoch))
                    .with(ShiftWord::OPEN, u64::from(open))
                    .0,
                swap_mask: RELEASED_MASK | ShiftWord::EPOCH.mask() | ShiftWord::OPEN.mask(),
            };
            let old = ShiftWord(self.masked_cas128(op, None).await?);
            if old.released() != grant.released {
                self.event(Event::Superseded { lock: self.lock });
                return Ok(None);
            }
            if old.0 & no_readers != 0 {
                keeps = false;
                continue;
            }
            if open {
                self.left(old.0 & !op.swap_mask | op.swap);
            }
            return Ok(Some(Note {
                kind: match (flips, open) {
                    (true, _) => Kind::ModeChanged,
                    (false, true) => Kind::First,
                    (false, false) => Kind::Handover,
                },
                from: self.me,
                lock: self.lock,
                released: if flips { add(released, old.readers()) } else { released },
                epoch: u64::from(epoch),
                streak: if flips { 1 } else { grant.streak.saturating_add(1) },
                word: 0,
            }));
        }
    }

    /// Leaves an acquired lock like any writer, for an acquisition that repaired it on its way.
    async fn release_exclusive(self, grant: Grant) -> Outcome<()> {
        let mut old = None;
        if let Some(verb) = self.rules.closing(&self, Mode::Exclusive, grant) {
            if self.rules.closed(&self, Mode::Exclusive, grant, self.verb(verb).await?) {
                return Ok(());
            }
            old = Some(self.endpoint.old());
        }
        // Boxed, since handing over may repair and a repair may release.
        Box::pin(self.rules.hand_over(&self, Mode::Exclusive, grant, old)).await
    }
}

// Repairing.

impl<E: WideAtomics> Protocol<'_, E, ShiftLock> {
    /// Takes a broken lock over: steals it, lets the living leave, and takes the dead readers off
    /// the count. `None`: begin again, since another client was first or, for a reader, since the
    /// lock is whole again.
    ///
    /// The arithmetic: of the `r` readers in the word when it was stolen at count `c`, each living
    /// one leaves exactly once, holding or not. If the count is `c2` when all have left, `c2 - c`
    /// of them lived.
    async fn repair(self, generation: u64, mode: Mode) -> Outcome<Option<Grant>> {
        let next = ShiftWord::new().with(ShiftWord::GENERATION, generation + 1).generation();
        let op = MaskedCas {
            compare: ShiftWord::GENERATION.place(generation),
            compare_mask: ShiftWord::GENERATION.mask(),
            swap: ShiftWord::new().with(ShiftWord::TAIL, self.me.bits()).with_generation(next).0,
            swap_mask: ShiftWord::TAIL.mask()
                | ShiftWord::OPEN.mask()
                | ShiftWord::GENERATION.mask()
                | ShiftWord::GENERATION_LOW.mask(),
        };
        let stolen = ShiftWord(self.masked_cas128(op, None).await?);
        if mode == Mode::Shared {
            // A waiting reader is among those who leave.
            self.endpoint.masked_faa128(self.lock, ShiftLock::leave(), None).await?;
        }
        if stolen.generation() != generation {
            return Ok(None);
        }
        self.set_successor(None);
        self.publish(Phase::Repairing, Mode::Exclusive, next);
        if !repair::drain(&self, next, |mode| mode == Mode::Exclusive).await? {
            return Ok(None);
        }
        let Some(released) = self.bury(stolen, next).await? else { return Ok(None) };
        let grant = Grant { released, epoch: stolen.epoch() != 0, streak: 1 };
        if mode == Mode::Exclusive {
            return Ok(Some(grant));
        }
        self.release_exclusive(grant).await?;
        Ok(None)
    }

    /// Takes dead readers off the stolen word and moves the count, so that no token comes twice.
    /// Readers of the new generation come meanwhile, hence the loop; releases do not. `None` if the
    /// lock was stolen in turn.
    async fn bury(self, stolen: ShiftWord, generation: u64) -> Outcome<Option<Released>> {
        let mut seen = stolen.with(ShiftWord::GENERATION, generation);
        loop {
            let left = seen.count().wrapping_sub(stolen.count()) & ShiftWord::COUNT.max();
            assert!(left <= stolen.readers(), "every reader of the old generation leaves once");
            let dead_readers = stolen.readers() - left;
            let released = add(seen.released(), 1);
            let op = MaskedCas {
                compare: seen.0,
                compare_mask: ShiftWord::READERS.mask() | RELEASED_MASK,
                swap: ShiftWord(u128::from(released.0) << 64)
                    .with(ShiftWord::READERS, seen.readers().wrapping_sub(dead_readers))
                    .0,
                swap_mask: ShiftWord::READERS.mask() | RELEASED_MASK,
            };
            let found = ShiftWord(self.masked_cas128(op, None).await?);
            if found.generation() != generation {
                return Ok(None);
            }
            if (found.0 ^ seen.0) & op.compare_mask == 0 {
                self.event(Event::Repaired { lock: self.lock, generation, dead_readers });
                return Ok(Some(released));
            }
            seen = found;
            self.endpoint.checkpoint(&[seen.0 as u64, (seen.0 >> 64) as u64]);
        }
    }
}

impl LockKind for ShiftLock {
    const BYTES: u64 = 16;
    const SHARES: bool = true;
    const FIELDS: &'static [Field] = ShiftWord::FIELDS;
    const TOKENS: TokenSource = TokenSource::Word;

    /// `n=COUNT`: writers in a row before the readers' turn; `bypass=COUNT`: how many may pass
    /// between two of them; `newcomer-yields=COUNT`: how often a newcomer yields before it gets in
    /// line; `keep`: the readers' turn is passed over while none waits; `poll=NANOS`: the pause
    /// between two reads where a wait cannot watch memory; `spins=COUNT`, `yields=COUNT`.
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        match name {
            "n" => Some(Setting::count(&mut self.writers_max, 1..=u16::MAX)),
            "bypass" => Some(Setting::count(&mut self.bypass, 0..=u8::MAX)),
            "newcomer-yields" => {
                Some(Setting::count(self.newcomer_yields.get_or_insert(0), 0..=u8::MAX))
            }
            "keep" => Some(Setting::flag(&mut self.keep)),
            "poll" => Some(Setting::nanos(&mut self.poll_ns, 1)),
            _ => Setting::patience(&mut self.patience, name),
        }
    }

    fn promises(&self) -> Promises {
        let writers_in_a_row = self.writers_max.saturating_mul(u16::from(self.bypass) + 1);
        Promises {
            order: Order {
                bypass_max: Some(self.bypass.into()),
                writers_before_reader: Some(writers_in_a_row),
                outlives_pauses: false,
                ..Order::NONE
            },
            acts_on_memory: self.bypass > 0,
            proof: PROOF,
            ..Promises::EXCLUSION
        }
    }

    fn near_wrap(&self, steps: u16) -> u128 {
        Released::near_wrap(steps) | ShiftWord::GENERATION_LOW.mask()
    }
}

impl Granted for Grant {
    #[inline(always)]
    fn generation(self) -> u64 {
        self.released.generation()
    }

    #[inline(always)]
    fn count(self) -> u64 {
        self.released.count()
    }
}

impl<E: WideAtomics> Lock<E> for ShiftLock {
    type Want = Mode;
    type Grant = Grant;

    #[inline(always)]
    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        match mode {
            Mode::Exclusive if self.bypass > 0 => site.by(self).attempt_verb(),
            _ => site.by(self).entry(mode),
        }
    }

    #[inline(always)]
    fn open(&self, site: &Site<'_, E>, mode: Mode) -> Posted {
        match mode {
            Mode::Exclusive if self.bypass > 0 => site.endpoint.post(site.by(self).attempt_verb()),
            _ => site.endpoint.post(site.by(self).entry(mode)),
        }
    }

    #[inline(always)]
    fn opened(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Option<Grant> {
        let old = ShiftWord(old);
        if mode == Mode::Exclusive && self.bypass > 0 {
            return site.by(self).attempted(old);
        }
        found_free(mode, old)
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Outcome<Grant> {
        let mut old = old;
        loop {
            site.endpoint.checkpoint(&[old as u64, (old >> 64) as u64]);
            if mode == Mode::Exclusive && self.bypass > 0 {
                match site.by(self).get_in_line(ShiftWord(old)).await? {
                    Ok(grant) => return Ok(grant),
                    Err(found) => old = found.0,
                }
            }
            let granted = match mode {
                Mode::Exclusive => site.by(self).wait_exclusive(ShiftWord(old)).await?,
                Mode::Shared => site.by(self).wait_shared(ShiftWord(old)).await?,
            };
            if let Some(grant) = granted {
                site.by(self).begin_barging(grant, false);
                return Ok(grant);
            }
            site.event(Event::Restarted { lock: site.lock });
            if mode == Mode::Exclusive {
                repair::dismiss(site, next_generation(ShiftWord(old).generation())).await?;
            }
            site.set_successor(None);
            site.publish(Phase::Opening, mode, 0);
            old = site.verb(self.opening(site, mode)).await?;
            if let Some(grant) = self.opened(site, mode, old) {
                return Ok(grant);
            }
        }
    }

    #[inline(always)]
    fn closing(&self, site: &Site<'_, E>, mode: Mode, grant: Grant) -> Option<Verb<'static>> {
        if mode == Mode::Exclusive {
            sort_mail(site, grant);
            if grant.streak == 0 {
                return Some(site.by(self).passed(grant));
            }
        }
        site.by(self).exit(mode, grant)
    }

    #[inline(always)]
    fn close(&self, site: &Site<'_, E>, mode: Mode, grant: Grant) -> Option<Posted> {
        if mode == Mode::Exclusive {
            sort_mail(site, grant);
            if grant.streak == 0 {
                return Some(site.endpoint.post(site.by(self).passed(grant)));
            }
        }
        site.by(self).exit(mode, grant).map(|verb| site.endpoint.post(verb))
    }

    #[inline(always)]
    fn closed(&self, site: &Site<'_, E>, mode: Mode, grant: Grant, old: u128) -> bool {
        let old = ShiftWord(old);
        if mode == Mode::Shared {
            debug_assert!(old.readers() > 0, "a reader that leaves is one of the readers");
            return true;
        }
        if grant.streak == 0 {
            return has_passed(site, grant, old);
        }
        if old.tail() == site.me.bits() && old.released() == grant.released {
            site.left(left_free(grant).with(ShiftWord::READERS, old.readers()).0);
            return true;
        }
        false
    }

    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        grant: Grant,
        old: Option<u128>,
    ) -> Outcome<()> {
        assert!(mode == Mode::Exclusive, "a reader's closing verb always releases");
        let generation = grant.released.generation();
        if old.is_some_and(|old| ShiftWord(old).generation() != generation) {
            site.event(Event::Superseded { lock: site.lock });
            return repair::dismiss(site, next_generation(generation)).await;
        }
        assert!(grant.streak > 0, "nobody else ends the hold of who passed the line");
        if let Some(successor) = await_successor(site, generation, self.patience).await? {
            site.set_successor(None);
            if site.by(self).pass_on(successor, grant).await?.is_some() {
                return Ok(());
            }
        }
        // The successor died: take the lock over, and release it again.
        match site.by(self).repair(generation, Mode::Exclusive).await? {
            Some(grant) => site.by(self).release_exclusive(grant).await,
            None => repair::dismiss(site, next_generation(generation)).await,
        }
    }

    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        let seen = ShiftWord(seen.or(site.hint()).unwrap_or(0));
        let (tail, readers) = (ShiftWord::TAIL, ShiftWord::READERS);
        let op = match mode {
            Mode::Exclusive => site.by(self).enqueue_if_free(),
            // An addition cannot be conditional: compare the number of readers, and store one more.
            Mode::Shared => MaskedCas {
                compare: readers.place(seen.readers()),
                compare_mask: tail.mask() | readers.mask(),
                swap: readers.place(seen.readers() + 1),
                swap_mask: readers.mask(),
            },
        };
        Some(Verb::MaskedCas128 { addr: site.lock, op, hint: site.hint() })
    }

    fn tried(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>, old: u128) -> Tried<Grant> {
        let expected = ShiftWord(seen.or(site.hint()).unwrap_or(0)).readers();
        let found = ShiftWord(old);
        match found_free(mode, found) {
            None => Tried::Busy,
            Some(_) if mode == Mode::Shared && found.readers() != expected => Tried::Again(old),
            Some(grant) => Tried::Granted(grant),
        }
    }
}

/// Whether who passed the line has opened the lock again, where its verb found this word.
#[inline(always)]
fn has_passed<E: WideAtomics>(site: &Site<'_, E>, grant: Grant, found: ShiftWord) -> bool {
    if found.released() != grant.released {
        return false;
    }
    let released = u128::from(add(grant.released, 1).0) << 64;
    site.left(found.0 & !RELEASED_MASK | released | ShiftWord::OPEN.mask());
    true
}

/// The grant of a client that found this word and got in line or counted itself in, if nobody was
/// there.
#[inline(always)]
fn found_free(mode: Mode, old: ShiftWord) -> Option<Grant> {
    let free = old.tail() == 0 && (mode == Mode::Shared || old.readers() == 0);
    free.then(|| Grant { released: old.released(), epoch: old.epoch() != 0, streak: 1 })
}

/// A holder learns who is behind it.
#[inline(always)]
fn sort_mail<E: WideAtomics>(site: &Site<'_, E>, grant: Grant) {
    let note = next_note(site, grant.released.generation());
    debug_assert!(note.is_none_or(|n| n.kind == Kind::Reset), "a holder is granted nothing");
}

/// The lock's word after its holder found nobody in line, if no reader waits.
#[inline(always)]
fn left_free(grant: Grant) -> ShiftWord {
    ShiftWord(u128::from(add(grant.released, 1).0) << 64)
        .with(ShiftWord::EPOCH, u64::from(!grant.epoch))
        .with(ShiftWord::GENERATION_LOW, grant.released.generation())
}

/// So many releases more. The count wraps within its field.
#[inline(always)]
fn add(released: Released, releases: u64) -> Released {
    released.with(Released::COUNT, released.count() + releases)
}
