//! The dead: which holders do not live any more, and what a try does about them.
//!
//! A client that holds the lock says so in its slot record, from before the verb that claims it
//! until after the verb that releases it. So the hold of a writer that the word names is over if
//! nobody of that name lives and has the lock in its record; and of the readers in the word, those
//! are dead for whom no living client's record speaks. A client that finds dead holders takes them
//! off the word, by a verb that compares what was seen, and counts a release, so that no token
//! comes twice.

use farlock_fabric::{
    EndpointId, Fault, Mailbox, MaskedCas, Nanos, Slot, Verb, Wait, WideAtomics, Woken,
};

use super::door::{enter_free, granted, pass};
use super::doubt::{Doubts, Inside};
use super::letter::{Kind, message};
use super::word::{
    Claim, ClaimWord, Grant, HOLD_MASK, LINE_MASK, LOOK_NS, Place, matched, name_of, next,
    read_word, swapped, turn_of,
};
use crate::prelude::*;
use crate::record::barging::patience_in_line;
use crate::repair::{self, Participant, SecondLook};
use crate::slot::{self, SlotRecord};

/// How long readers are trusted before anybody looks whether they live, in nanoseconds.
const TRUST_NS: Nanos = 100_000;
/// The same where looking around costs round trips: three leases of ShiftLock's paper.
const TRUST_FAR_NS: Nanos = 30_000_000;
/// How long a try waits before it looks again whether a doubtful reader is inside, in nanoseconds.
/// Three looks decide.
const DOUBT_NS: Nanos = 1_000_000;
/// The most peers watched in one wait.
const WATCHED_MAX: usize = 64;

/// How long a try waits for a sign of life of those in line, before it passes over them, in
/// nanoseconds: 100 ms in all, in parts, since the living mostly answer soon.
const PASS_OVER_NS: [Nanos; 4] = [1_000_000, 4_000_000, 20_000_000, 75_000_000];
/// The most of those in line that a try asks for a sign of life.
const ASKED_MAX: usize = 64;
/// How often a try looks again since others changed the word.
const LOOKS_MAX: u32 = 64;

/// Words of a slot record that are read to see whose it is.
const RECORD_WORDS_READ: usize = 2;

/// What the first in line knows of the holders.
#[derive(Debug)]
pub(super) struct Readers {
    /// How long they are still trusted, in nanoseconds; for ever if `None`.
    trust_ns: Option<Nanos>,
    fresh_ns: Nanos,
    watched: Vec<EndpointId>,
    second_look: SecondLook,
    doubts: Doubts,
}

impl Readers {
    pub(super) fn new<E: WideAtomics>() -> Self {
        let fresh_ns = if E::LOOKS_AROUND_CHEAPLY { TRUST_NS } else { TRUST_FAR_NS };
        let (watched, second_look) = (Vec::new(), SecondLook::new());
        let doubts = Doubts::default();
        Self { trust_ns: Some(fresh_ns), fresh_ns, watched, second_look, doubts }
    }

    /// Looks for the holders of the lock, and from now on watches them. Takes the dead off: then
    /// returns the word as it is without them.
    pub(super) async fn look_around<E: WideAtomics>(
        &mut self,
        site: &Site<'_, E>,
        seen: ClaimWord,
    ) -> Outcome<Option<ClaimWord>> {
        if seen.holder() != 0 {
            self.trust_ns = Some(self.fresh_ns);
            self.watched.clear();
            return Ok(match living_writer(site, seen).await? {
                Ok(writer) => {
                    self.watched.push(writer);
                    None
                }
                Err(found) => Some(found),
            });
        }
        if self.trust_ns != Some(0) {
            return Ok(None);
        }
        let Some(inside) = living_readers(site, seen).await? else {
            self.trust_ns = Some(self.fresh_ns);
            return Ok(None);
        };
        let living = self.doubts.living(site, seen.readers(), &inside).await?;
        if living < seen.readers() {
            return bury_readers(site, seen, living).await.map(Some);
        }
        // Their records may say too much: of one that has just left.
        self.trust_ns = Some(self.second_look.wait_ns().max(self.fresh_ns));
        self.watched = inside.endpoints().take(WATCHED_MAX).collect();
        Ok(None)
    }

    pub(super) fn watched(&self) -> &[EndpointId] {
        &self.watched
    }

    /// How long to wait before they are looked for, or before the word is read again.
    pub(super) fn interval(&self, poll: Option<Nanos>) -> Option<Nanos> {
        match (self.is_holder_watched(), poll) {
            (true, poll) => poll,
            (false, Some(poll)) => self.trust_ns.map(|trust| trust.min(poll)),
            (false, None) => self.trust_ns,
        }
    }

    /// A writer that is watched is not looked for: its death ends the wait.
    fn is_holder_watched(&self) -> bool {
        self.watched.len() == 1 && self.trust_ns == Some(self.fresh_ns)
    }

    pub(super) fn woken(&mut self, woken: Woken, poll: Option<Nanos>) {
        match woken {
            Woken::PeerGone(_) => {
                self.watched.clear();
                // A doubted reader has a while to say that it holds.
                self.trust_ns = Some(if self.doubts.are_none() { 0 } else { self.fresh_ns });
            }
            Woken::Elapsed => {
                let step = self.interval(poll).unwrap_or(0);
                self.trust_ns = self.trust_ns.map(|trust| trust.saturating_sub(step));
            }
            Woken::Changed => {
                self.watched.clear();
                self.trust_ns = Some(self.fresh_ns);
            }
            // A waiter that asks for a sign of life has waited so long before. But who was told
            // that it is doubted has a while from then on.
            Woken::Mail => {
                let is_sooner = |trust: Nanos| match self.doubts.are_none() {
                    true => trust.saturating_sub(LOOK_NS),
                    false => trust.min(self.fresh_ns),
                };
                self.trust_ns = self.trust_ns.map(is_sooner);
            }
        }
    }

    /// What it carries from one wait to the next, as a number.
    pub(super) fn survivor(&self) -> u64 {
        let trust = self.trust_ns.map_or(u64::MAX, |trust| trust + 1) ^ self.doubts.survivor();
        let trust = trust ^ self.second_look.survivor().rotate_left(32);
        self.watched.iter().fold(trust, |sum, peer| sum.rotate_left(7) ^ peer.bits())
    }
}

/// The endpoint that the word names, if it lives and its records say that it is at this lock.
async fn living_holder<E: WideAtomics>(
    site: &Site<'_, E>,
    word: ClaimWord,
) -> Outcome<Option<EndpointId>> {
    let index = word.holder() as u16;
    let named = |id: &EndpointId| name_of(*id) == word.holder();
    if index == 0 || index > site.endpoint.endpoints() {
        return Ok(None);
    }
    let Some(holder) = site.endpoint.occupant(index).filter(named) else { return Ok(None) };
    for slot in (0..site.endpoint.slots()).map(Slot) {
        // This slot does not hold the lock, for it awaits it.
        if holder == site.endpoint.id() && slot == site.slot() {
            continue;
        }
        let addr = site.endpoint.record(index, slot);
        site.endpoint.verb(Verb::Read { addr, words: RECORD_WORDS_READ as u16 }).await?;
        let mut words = [0; RECORD_WORDS_READ];
        site.endpoint.copy_read(0, &mut words);
        let record = SlotRecord::decode(&words);
        if record.is_some_and(|r| r.phase != Phase::Idle && r.lock == site.lock) {
            return Ok(Some(holder));
        }
    }
    Ok(None)
}

/// The writer that the word names, if it lives. If not, or if that hold is over, the word as it is
/// without it.
async fn living_writer<E: WideAtomics>(
    site: &Site<'_, E>,
    seen: ClaimWord,
) -> Outcome<Result<EndpointId, ClaimWord>> {
    if let Some(writer) = living_holder(site, seen).await? {
        return Ok(Ok(writer));
    }
    let now = read_word(site).await?;
    if !is_still_held(seen, now) {
        return Ok(Err(now));
    }
    Ok(match living_holder(site, seen).await? {
        Some(writer) => Ok(writer),
        None => Err(bury_writer(site, seen).await?),
    })
}

/// Whether the lock is held `now` as was `seen` before.
///
/// The halves of what is read may be of different moments. But every release counts: if the count
/// is as it was seen when the dead are taken off, nobody has released since it was seen, and the
/// holders, which are read here after that, are those of all the time from here on.
fn is_still_held(seen: ClaimWord, now: ClaimWord) -> bool {
    let held = |word: ClaimWord| (word.readers(), word.holder(), word.count());
    held(now) == held(seen)
}

/// The living who hold the lock, or may, where the word counts readers. `None` if readers came or
/// went meanwhile.
async fn living_readers<E: WideAtomics>(
    site: &Site<'_, E>,
    seen: ClaimWord,
) -> Outcome<Option<Inside>> {
    if !is_still_held(seen, read_word(site).await?) {
        return Ok(None);
    }
    let inside = Inside::of(repair::participants(site.endpoint, site.lock, site.slot()).await?);
    let now = read_word(site).await?;
    Ok(is_still_held(seen, now).then_some(inside))
}

/// Ends the hold of a dead writer. Returns the word as it is then.
async fn bury_writer<E: WideAtomics>(site: &Site<'_, E>, seen: ClaimWord) -> Outcome<ClaimWord> {
    let op = MaskedCas {
        compare: seen.0,
        compare_mask: HOLD_MASK,
        swap: ClaimWord::COUNT.place(next(seen.count())),
        swap_mask: HOLD_MASK,
    };
    bury(site, op, seen, 0).await
}

/// Takes dead readers off the count. Returns the word as it is then.
async fn bury_readers<E: WideAtomics>(
    site: &Site<'_, E>,
    seen: ClaimWord,
    living: u64,
) -> Outcome<ClaimWord> {
    let swap = ClaimWord::READERS.place(living) | ClaimWord::COUNT.place(next(seen.count()));
    let op = MaskedCas {
        compare: seen.0,
        compare_mask: ClaimWord::READERS.mask() | HOLD_MASK,
        swap,
        swap_mask: ClaimWord::READERS.mask() | ClaimWord::COUNT.mask(),
    };
    bury(site, op, seen, seen.readers() - living).await
}

async fn bury<E: WideAtomics>(
    site: &Site<'_, E>,
    op: MaskedCas<u128>,
    seen: ClaimWord,
    dead_readers: u64,
) -> Outcome<ClaimWord> {
    let found = site.masked_cas128(op, Some(seen.0)).await?;
    if !matched(&op, found) {
        return Ok(ClaimWord(found));
    }
    site.peer_died(EndpointId::NOBODY);
    site.event(Event::Repaired { lock: site.lock, generation: 0, dead_readers });
    Ok(ClaimWord(swapped(&op, found)))
}

impl<E: WideAtomics> Protocol<'_, E, Claim> {
    /// A try that found the lock taken: looks whether its holders live.
    ///
    /// Where no holder keeps it out, but waiters stand in line, it asks these for a sign of life,
    /// and is in vain when it sees one. After 100 ms without a sign it passes over them: they are
    /// stopped.
    pub(super) async fn try_past_the_dead(
        self,
        mode: Mode,
        seen: ClaimWord,
    ) -> Outcome<Option<Grant>> {
        self.may_stand_in_line();
        let granted = self.look_past_the_dead(mode, seen).await?;
        if granted.is_none() {
            self.stood_in_no_line();
        }
        Ok(granted)
    }

    async fn look_past_the_dead(self, mode: Mode, mut seen: ClaimWord) -> Outcome<Option<Grant>> {
        let ticket = self.acquisition();
        let (mut steps, mut doubts, mut asked) = (0, Doubts::default(), Asked::default());
        for looks in 0..LOOKS_MAX {
            self.publish_ticket(Phase::Trying, mode, 0, ticket);
            let (so_far, held) = ((steps as u64) << 32 | u64::from(looks), seen.watched());
            let known = [doubts.survivor(), asked.survivor(), self.signs()];
            self.endpoint.checkpoint(&[held, seen.count(), so_far, known[0], known[1], known[2]]);
            let line = match self.obstacle(mode, seen, &mut doubts).await? {
                Obstacle::Living => return Ok(None),
                Obstacle::Doubtful => {
                    seen = self.await_doubtful().await?;
                    continue;
                }
                Obstacle::None(line) => line,
                Obstacle::Buried(found) => {
                    seen = found;
                    continue;
                }
            };
            let op = match line {
                Line::Nobody => self.enter(mode, seen),
                Line::Dead => take_over(&self, mode, seen),
                Line::Waits(_) if steps == PASS_OVER_NS.len() => pass_over(&self, mode, seen),
                Line::Waits(waiters) => {
                    asked.ask(&self, &waiters).await?;
                    let before = seen;
                    seen = self.await_claim(seen, PASS_OVER_NS[steps]).await?;
                    if asked.is_answered(&self).await? {
                        return Ok(None);
                    }
                    let is_as_before = seen.count() == before.count() && seen.is_free_for(mode);
                    steps = if is_as_before { steps + 1 } else { 0 };
                    continue;
                }
            };
            self.publish_ticket(Phase::Claiming, mode, 0, ticket);
            let found = self.masked_cas128(op, Some(seen.0)).await?;
            if matched(&op, found) {
                self.left(found);
                return Ok(Some(granted(&self, mode, &op, found)));
            }
            seen = ClaimWord(found);
        }
        Ok(None)
    }

    /// What keeps a try from the lock.
    async fn obstacle(self, mode: Mode, seen: ClaimWord, doubts: &mut Doubts) -> Outcome<Obstacle> {
        if seen.holder() != 0 {
            return Ok(match living_writer(&self, seen).await? {
                Ok(_) => Obstacle::Living,
                Err(found) => Obstacle::Buried(found),
            });
        }
        if mode == Mode::Exclusive && seen.readers() > 0 {
            let Some(inside) = living_readers(&self, seen).await? else {
                return Ok(Obstacle::Buried(read_word(&self).await?));
            };
            let living = doubts.living(&self, seen.readers(), &inside).await?;
            if living < seen.readers() {
                return Ok(Obstacle::Buried(bury_readers(&self, seen, living).await?));
            }
            let is_doubtful = (inside.certain.len() as u64) < seen.readers();
            return Ok(if is_doubtful { Obstacle::Doubtful } else { Obstacle::Living });
        }
        if !seen.is_free_for(mode) {
            return Ok(Obstacle::Living);
        }
        if seen.tail() == 0 {
            return Ok(Obstacle::None(Line::Nobody));
        }
        let mut waiters = repair::participants(self.endpoint, self.lock, self.slot()).await?;
        waiters.retain(|p| {
            use Phase::{Claiming, Coming, Opening, Waiting};
            matches!(p.record.phase, Waiting | Claiming | Opening | Coming)
        });
        Ok(Obstacle::None(if waiters.is_empty() { Line::Dead } else { Line::Waits(waiters) }))
    }

    /// Gives readers that may be inside a while to say so.
    async fn await_doubtful(self) -> Outcome<ClaimWord> {
        let interval = Some(if E::COMPLETES_IN_POST { DOUBT_NS } else { TRUST_FAR_NS });
        let patience = patience_in_line(self.rules.bypass, self.rules.patience);
        self.endpoint.wait(Wait { interval, patience, ..Wait::default() }).await;
        read_word(&self).await
    }

    /// Waits until those in line have claimed a free lock, or a part of the time has passed that a
    /// try has for that.
    async fn await_claim(self, seen: ClaimWord, at_most_ns: Nanos) -> Outcome<ClaimWord> {
        let wait = Wait {
            word: Some((self.lock, seen.watched())),
            interval: Some(at_most_ns),
            patience: patience_in_line(self.rules.bypass, self.rules.patience),
            ..Wait::default()
        };
        self.endpoint.wait(wait).await;
        read_word(&self).await
    }
}

/// What keeps a try from the lock.
enum Obstacle {
    /// A living holder.
    Living,
    /// A living client that may hold it.
    Doubtful,
    /// No holder, but maybe waiters.
    None(Line),
    /// A dead holder was taken off, or the word changed: look at it again.
    Buried(ClaimWord),
}

/// The waiters.
enum Line {
    Nobody,
    /// None that lives and wants the lock.
    Dead,
    /// These, who live.
    Waits(Vec<Participant>),
}

/// Those in line that were asked for a sign of life, and of each how many it had given before.
#[derive(Debug, Default)]
struct Asked(Vec<(Place, u64)>);

impl Asked {
    /// Asks these, if they have not been asked: those that are in line, and not too many.
    async fn ask<E: WideAtomics>(
        &mut self,
        site: &Site<'_, E>,
        waiters: &[Participant],
    ) -> Outcome<()> {
        for waiter in waiters {
            if !matches!(waiter.record.phase, Phase::Waiting | Phase::Claiming) {
                continue;
            }
            let mailbox = Mailbox { endpoint: waiter.endpoint, slot: waiter.slot };
            let place = Place { mailbox, turn: turn_of(waiter.record.ticket) };
            let is_known = self.0.iter().any(|&(other, _)| other == place);
            if is_known || self.0.len() == ASKED_MAX {
                continue;
            }
            let signs = signs_of(site, place).await?;
            match site
                .endpoint
                .send(mailbox, message(Kind::Ask, site.lock, Place::of(site), place))
                .await
            {
                Ok(()) => self.0.push((place, signs)),
                Err(Fault::MailboxFull | Fault::PeerGone) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Whether one of them lives, and runs.
    async fn is_answered<E: WideAtomics>(&self, site: &Site<'_, E>) -> Outcome<bool> {
        for &(place, signs) in &self.0 {
            if signs_of(site, place).await? != signs {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What it carries from one look to the next, as a number.
    fn survivor(&self) -> u64 {
        self.0
            .iter()
            .fold(0, |sum: u64, &(place, signs)| sum.rotate_left(7) ^ place.bits() ^ signs << 50)
    }
}

/// How many signs of life the slot of this place has given.
async fn signs_of<E: WideAtomics>(site: &Site<'_, E>, place: Place) -> Outcome<u64> {
    let Mailbox { endpoint, slot } = place.mailbox;
    let record = site.endpoint.record(endpoint.index, slot);
    site.read_at(record.plus(slot::SIGN as u64 * 8)).await
}

/// The verb by which a try passes over the line, whose waiters are stopped. A reader may come
/// beside others.
fn pass_over<E: WideAtomics>(site: &Site<'_, E>, mode: Mode, seen: ClaimWord) -> MaskedCas<u128> {
    let op = pass(site, mode, seen);
    match mode {
        Mode::Exclusive => op,
        Mode::Shared => MaskedCas {
            compare: op.compare | seen.0 & ClaimWord::READERS.mask(),
            swap: ClaimWord::READERS.place(seen.readers() + 1),
            ..op
        },
    }
}

/// The verb by which a try claims a free lock and ends a line in which nobody waits.
fn take_over<E: WideAtomics>(site: &Site<'_, E>, mode: Mode, seen: ClaimWord) -> MaskedCas<u128> {
    let op = enter_free(site, mode, seen);
    let compare_mask = op.compare_mask | LINE_MASK | ClaimWord::COUNT.mask();
    MaskedCas {
        compare: op.compare & !LINE_MASK | seen.0 & (LINE_MASK | ClaimWord::COUNT.mask()),
        compare_mask,
        swap_mask: op.swap_mask | LINE_MASK,
        ..op
    }
}
