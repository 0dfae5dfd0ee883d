//! The MCS queue lock on far memory: exclusive, first come, first served, handed from client to
//! client (ShiftLock, FAST'25, algorithm 1 and section 3.3).
#![doc = include_str!("../../../../docs/protocols/mcs.md")]

use farlock_fabric::word::Field;
use farlock_fabric::{Mailbox, MaskedCas, Patience, Verb, WideAtomics, word};

use super::errand;
use super::queue::{
    Kind, Note, Released, await_mail, await_successor, next_generation, next_note, tell,
};
use crate::prelude::*;
use crate::repair;
use crate::width;

word! {
    /// The word of an MCS lock. Zero is free.
    pub struct McsWord: u128 {
        /// The last client in line: a packed mailbox, or nobody.
        TAIL tail: 40,
        /// Unused.
        SPARE spare: 24,
        /// Releases; behind by less than [`COUNT_LAG_MAX`] while the lock is handed over.
        COUNT count: 48 => width::COUNT,
        /// How often the lock was repaired.
        GENERATION generation: 16 => width::GENERATION,
    }
}

/// A handover changes no far memory, so the count in the word lags behind the one that travels with
/// the lock. The holder that reaches a multiple of this writes the count down.
pub const COUNT_LAG_MAX: u64 = 1 << width::LAG;

/// What an MCS holder remembers: the count and the generation of the lock.
pub type Grant = Released;

/// A first-come-first-served lock that is handed from client to client.
#[derive(Clone, Debug, Default)]
pub struct Mcs {
    patience: Patience,
}

impl Mcs {
    /// The lock is free and this slot has left it with `count` releases.
    fn free_word(count: u64, generation: u64) -> McsWord {
        McsWord::new().with(McsWord::COUNT, count).with(McsWord::GENERATION, generation)
    }
}

impl<E: WideAtomics> Protocol<'_, E, Mcs> {
    /// Makes this slot the tail whatever the word was.
    #[inline]
    fn enqueue(self) -> MaskedCas<u128> {
        let tail = McsWord::TAIL;
        MaskedCas {
            swap: tail.place(self.me.bits()),
            swap_mask: tail.mask(),
            ..MaskedCas::default()
        }
    }

    /// Waits for the predecessor's handover. `None`: the lock was repaired, begin again.
    async fn follow(self, old: McsWord) -> Outcome<Option<Grant>> {
        let generation = old.generation();
        self.publish(Phase::Waiting, Mode::Exclusive, generation);
        let predecessor = Mailbox::from_bits(old.tail());
        let note = Note::new(Kind::Successor, self.me, self.lock, generation);
        if !tell(&self, predecessor, &note).await? {
            return self.repair(generation).await;
        }
        let peers = [predecessor.endpoint];
        let mut gone = false;
        loop {
            match next_note(&self, generation) {
                Some(Note { kind: Kind::Reset, .. }) => return Ok(None),
                Some(note) => {
                    errand::granted_with(&self, note);
                    return Ok(Some(note.released));
                }
                // A predecessor that died has sent what it ever will.
                None if gone => break,
                None => {}
            }
            errand::refuse_if_withdrawn(&self).await;
            self.endpoint.checkpoint(&[generation, u64::from(gone), self.successor_bits()]);
            gone = await_mail(&self, &peers, self.rules.patience).await?;
        }
        self.peer_died(predecessor.endpoint);
        self.repair(generation).await
    }

    /// Takes a broken lock over. `None`: another client did; begin again.
    async fn repair(self, generation: u64) -> Outcome<Option<Grant>> {
        let next = McsWord::GENERATION.of(McsWord::GENERATION.place(generation + 1));
        let op = MaskedCas {
            compare: McsWord::GENERATION.place(generation),
            compare_mask: McsWord::GENERATION.mask(),
            swap: McsWord::new()
                .with(McsWord::TAIL, self.me.bits())
                .with(McsWord::GENERATION, next)
                .0,
            swap_mask: McsWord::TAIL.mask() | McsWord::GENERATION.mask(),
        };
        let old = McsWord(self.masked_cas128(op, None).await?);
        if old.generation() != generation {
            return Ok(None);
        }
        self.set_successor(None);
        self.publish(Phase::Repairing, Mode::Exclusive, next);
        if !repair::drain(&self, next, |mode| mode == Mode::Exclusive).await? {
            return Ok(None);
        }
        // Above every count that can have travelled with the lock: before the theft, and after it
        // from one to the next of those who were in line.
        let count = (old.count() + 2 * COUNT_LAG_MAX) & McsWord::COUNT.max();
        let grant = Released::new().with(Released::COUNT, count).with(Released::GENERATION, next);
        if !self.write_count(grant).await? {
            return Ok(None);
        }
        self.event(Event::Repaired { lock: self.lock, generation: next, dead_readers: 0 });
        Ok(Some(grant))
    }

    /// Writes the count down, unless the lock was repaired since: then `Ok(false)`.
    async fn write_count(self, released: Released) -> Outcome<bool> {
        let op = MaskedCas {
            compare: McsWord::GENERATION.place(released.generation()),
            compare_mask: McsWord::GENERATION.mask(),
            swap: McsWord::COUNT.place(released.count()),
            swap_mask: McsWord::COUNT.mask(),
        };
        Ok(McsWord(self.masked_cas128(op, None).await?).generation() == released.generation())
    }
}

impl LockKind for Mcs {
    const BYTES: u64 = 16;
    const SHARES: bool = false;
    const FIELDS: &'static [Field] = McsWord::FIELDS;
    const TOKENS: TokenSource = TokenSource::Word;

    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        Setting::patience(&mut self.patience, name)
    }

    fn promises(&self) -> Promises {
        Promises {
            order: Order::FIFO,
            proof: Proof { handed_on: &[""], ..Proof::SLEEPER },
            ..Promises::EXCLUSION
        }
    }

    fn near_wrap(&self, steps: u16) -> u128 {
        Released::near_wrap(steps)
    }
}

impl Granted for Released {
    #[inline(always)]
    fn generation(self) -> u64 {
        Self::generation(self)
    }

    #[inline(always)]
    fn count(self) -> u64 {
        Self::count(self)
    }
}

impl<E: WideAtomics> Lock<E> for Mcs {
    type Want = Mode;
    type Grant = Grant;

    #[inline(always)]
    fn opening(&self, site: &Site<'_, E>, _: Mode) -> Verb<'static> {
        Verb::MaskedCas128 { addr: site.lock, op: site.by(self).enqueue(), hint: site.hint() }
    }

    #[inline(always)]
    fn opened(&self, _: &Site<'_, E>, _: Mode, old: u128) -> Option<Grant> {
        let old = McsWord(old);
        (old.tail() == 0).then_some(Released((old.0 >> 64) as u64))
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Outcome<Grant> {
        let mut old = old;
        loop {
            site.endpoint.checkpoint(&[old as u64, (old >> 64) as u64]);
            if let Some(grant) = site.by(self).follow(McsWord(old)).await? {
                return Ok(grant);
            }
            site.event(Event::Restarted { lock: site.lock });
            repair::dismiss(site, next_generation(McsWord(old).generation())).await?;
            site.set_successor(None);
            site.publish(Phase::Opening, Mode::Exclusive, 0);
            old = site.masked_cas128(site.by(self).enqueue(), None).await?;
            if let Some(grant) = self.opened(site, mode, old) {
                return Ok(grant);
            }
        }
    }

    /// Nothing if a successor has reported: then the lock is handed over without a verb on it.
    #[inline(always)]
    fn closing(&self, site: &Site<'_, E>, _: Mode, grant: Grant) -> Option<Verb<'static>> {
        let note = next_note(site, grant.generation());
        debug_assert!(note.is_none_or(|n| n.kind == Kind::Reset), "a holder is granted nothing");
        if site.successor().is_some() {
            return None;
        }
        let generation = grant.generation();
        let me = McsWord::new().with(McsWord::TAIL, site.me.bits());
        let op = MaskedCas {
            compare: me.with(McsWord::GENERATION, generation).0,
            compare_mask: McsWord::TAIL.mask() | McsWord::GENERATION.mask(),
            swap: McsWord::new().with(McsWord::COUNT, grant.count() + 1).0,
            swap_mask: McsWord::TAIL.mask() | McsWord::COUNT.mask(),
        };
        let hint = Self::free_word(grant.count(), generation).0 | me.0;
        Some(Verb::MaskedCas128 { addr: site.lock, op, hint: Some(hint) })
    }

    #[inline(always)]
    fn closed(&self, site: &Site<'_, E>, _: Mode, grant: Grant, old: u128) -> bool {
        let old = McsWord(old);
        if old.tail() == site.me.bits() && old.generation() == grant.generation() {
            site.left(Self::free_word(grant.count() + 1, grant.generation()).0);
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
        let (mut grant, mut old) = (grant, old);
        loop {
            let generation = grant.generation();
            let found = old.unwrap_or(0);
            site.endpoint.checkpoint(&[
                grant.0,
                site.successor_bits(),
                old.is_some().into(),
                found as u64,
                (found >> 64) as u64,
            ]);
            if old.is_some_and(|old| McsWord(old).generation() != generation) {
                site.event(Event::Superseded { lock: site.lock });
                return repair::dismiss(site, next_generation(generation)).await;
            }
            if let Some(successor) = await_successor(site, generation, self.patience).await? {
                site.set_successor(None);
                let mut note = Note::new(Kind::Handover, site.me, site.lock, generation);
                note.released = grant.with(Released::COUNT, grant.count() + 1);
                if let Some(word) = site.kept.unload(site.slot(), site.lock, grant.0) {
                    (note.kind, note.word) = (Kind::Combined, word);
                }
                if note.released.count().is_multiple_of(COUNT_LAG_MAX) {
                    site.by(self).write_count(note.released).await?;
                }
                if tell(site, successor, &note).await? {
                    return Ok(());
                }
            }
            // The successor died: take the lock over and release it again.
            match site.by(self).repair(generation).await? {
                None => return repair::dismiss(site, next_generation(generation)).await,
                Some(again) => grant = again,
            }
            old = None;
            if let Some(verb) = self.closing(site, mode, grant) {
                if self.closed(site, mode, grant, site.verb(verb).await?) {
                    return Ok(());
                }
                old = Some(site.endpoint.old());
            }
        }
    }

    fn trying(&self, site: &Site<'_, E>, _: Mode, _: Option<u128>) -> Option<Verb<'static>> {
        let op = MaskedCas { compare_mask: McsWord::TAIL.mask(), ..site.by(self).enqueue() };
        Some(Verb::MaskedCas128 { addr: site.lock, op, hint: site.hint() })
    }

    fn tried(&self, site: &Site<'_, E>, mode: Mode, _: Option<u128>, old: u128) -> Tried<Grant> {
        match self.opened(site, mode, old) {
            Some(grant) => Tried::Granted(grant),
            None => Tried::Busy,
        }
    }
}
