//! ShiftLock with leases (section 3.6): who holds too long loses the lock, and so do the dead.
//!
//! Nobody is asked whether a client lives. A client that waits, for its turn or for its successor,
//! looks at the count now and then. If that stands still for three leases by the waiter's own
//! clock, it *resets* the lock: one conditional atomic, which compares the count and the generation
//! that it saw, begins a new generation with nobody in it. A client of an older generation begins
//! again.
//!
//! Why nobody still holds by then: every change of hands changes the count. A lease begins at a
//! moment at which the lock had certainly not yet been granted, or at most one lease after it, and
//! so it ends at most two leases after the count has changed. The third is for what the holder
//! posted at its last moment. Three things can make a grant old, and each has its own answer:
//!
//! * A message was long on its way, or its receiver slept. The receiver knows when it last saw the
//!   count before this grant. If that is more than a lease ago, it *renews*: it raises the count
//!   once more, provided that it still is the grant's. That the generation has not changed would
//!   not be enough: it may change the moment after.
//! * A reader discovers late that the epoch has flipped. It cannot raise the count, for which the
//!   next writer waits; it leaves, and begins again.
//! * A repairer decided long ago. Its atomic compares what it saw: if anybody was granted the lock
//!   since, it fails.

use farlock_fabric::{Fault, Mailbox, MaskedCas, Nanos, Wait, WideAtomics, Woken};

use super::extended::{Extended, Held, Term};
use super::{End, Grant, RELEASED_MASK, Released, ShiftWord, UPPER_HALF, add};
use crate::prelude::*;
use crate::record::queue::{Kind, MAILBOX_FULL_RETRY_NS, Note, next_generation, next_note};

/// What a waiter knows of the count, by its own clock.
#[derive(Clone, Copy, Debug)]
struct Watch {
    /// The count and the generation at the last look.
    seen: Released,
    /// When a look that saw them was first over.
    since: Nanos,
    /// When the last look was begun.
    looked: Nanos,
    /// When the last look was begun that saw others.
    before: Nanos,
}

impl Watch {
    /// Of a client that found this with a verb that it posted then.
    fn new<E: WideAtomics>(site: &Site<'_, E>, seen: Released, posted: Nanos) -> Self {
        Self { seen, since: site.endpoint.now(), looked: posted, before: 0 }
    }

    async fn look<E: WideAtomics>(&mut self, site: &Site<'_, E>) -> Outcome<Released> {
        let begun = site.endpoint.now();
        self.sees(site, Released(site.read_at(site.lock.plus(UPPER_HALF)).await?), begun);
        Ok(self.seen)
    }

    fn sees<E: WideAtomics>(&mut self, site: &Site<'_, E>, seen: Released, begun: Nanos) {
        if seen != self.seen {
            (self.seen, self.since, self.before) = (seen, site.endpoint.now(), self.looked);
        }
        self.looked = begun;
    }

    /// What it carries from one look to the next, and `more`.
    fn survivors(&self, more: [u64; 2]) -> [u64; 6] {
        [self.seen.0, self.since, self.looked, self.before, more[0], more[1]]
    }

    /// A moment at which the count was not yet this, which it is now.
    fn not_yet(&self, released: Released) -> Nanos {
        if released == self.seen { self.before } else { self.looked }
    }
}

/// Whether a note was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Yes,
    /// Its receiver is dead.
    Dead,
    /// The lock was reset meanwhile.
    Over,
}

// Waiting.

impl<E: WideAtomics> Protocol<'_, E, Extended> {
    /// The lease of a lock that has one, as all have that wait here.
    fn term(self) -> Term {
        self.rules.lease.expect("without a lease the plain lock's waits are used")
    }

    /// How long a wait for a word lasts before it looks again.
    fn poll_ns(self) -> Nanos {
        let glance_ns = self.term().glance_ns();
        if E::WATCHES_MEMORY { glance_ns } else { glance_ns.min(self.rules.lock.poll_ns) }
    }

    /// A writer that found the lock taken. `None`: it has to begin again.
    pub(super) async fn wait_exclusive(self, old: ShiftWord) -> Outcome<Option<Held>> {
        self.publish(Phase::Waiting, Mode::Exclusive, old.generation());
        let watch = Watch::new(&self, old.released(), self.opened_at());
        let turn = if old.tail() == 0 {
            let released = add(old.released(), old.readers());
            let grant = Grant { released, epoch: old.epoch() != 0, streak: 1 };
            self.wait_for_readers(watch, grant).await?
        } else {
            self.follow(watch, Mailbox::from_bits(old.tail())).await?
        };
        Ok(match turn {
            End::Mine(held) => Some(held),
            End::Again | End::Broken => None,
        })
    }

    /// Reports to the writer before, and waits for its note.
    async fn follow(self, mut watch: Watch, predecessor: Mailbox) -> Outcome<End<Held>> {
        let generation = watch.seen.generation();
        let report = Note::new(Kind::Successor, self.me, self.lock, generation);
        if self.tell(&mut watch, predecessor, &report).await? == Told::Over {
            return Ok(End::Again);
        }
        let note = loop {
            if let Some(note) = next_note(&self, generation) {
                break note;
            }
            if !self.await_mail(&mut watch, generation).await? {
                return Ok(End::Again);
            }
        };
        let grant = Grant { released: note.released, epoch: note.epoch != 0, streak: note.streak };
        match note.kind {
            Kind::ModeChanged => self.wait_for_readers(watch, grant).await,
            Kind::Handover | Kind::Combined => {
                self.hold(grant, watch.not_yet(grant.released)).await
            }
            Kind::Successor | Kind::Reset | Kind::First => Ok(End::Again),
            Kind::Asked | Kind::Done | Kind::Refused => Ok(End::Again),
        }
    }

    /// Waits until the count is the one of `grant`.
    async fn wait_for_readers(self, mut watch: Watch, grant: Grant) -> Outcome<End<Held>> {
        loop {
            let seen = watch.look(&self).await?;
            if seen == grant.released {
                return self.hold(grant, watch.before).await;
            }
            if !self.goes_on(&mut watch, grant.released.generation()).await? {
                return Ok(End::Again);
            }
            self.endpoint.checkpoint(&watch.survivors([grant.released.0, 0]));
            let word = Some((self.lock.plus(UPPER_HALF), watch.seen.0));
            let interval = Some(self.poll_ns());
            let patience = self.rules.lock.patience;
            self.endpoint.wait(Wait { word, interval, patience, ..Wait::default() }).await;
        }
    }

    /// A reader that found a writer in line waits for the epoch to flip. `None`: it has to begin
    /// again.
    pub(super) async fn wait_shared(self, old: ShiftWord) -> Outcome<Option<Held>> {
        let generation = old.generation();
        self.publish(Phase::Waiting, Mode::Shared, generation);
        let mut watch = Watch::new(&self, old.released(), self.opened_at());
        let mut not_yet = self.opened_at();
        loop {
            let begun = self.endpoint.now();
            let seen = self.read().await?;
            let word = ShiftWord(u128::from(seen));
            // The generation first: a reset leaves the epoch as it was, but who knows for how long.
            if word.generation_low() != old.generation_low() {
                return Ok(None);
            }
            if word.epoch() != old.epoch() {
                return self.admitted(word, generation, not_yet).await;
            }
            not_yet = begun;
            if begun.saturating_sub(watch.looked) >= self.term().glance_ns() {
                watch.look(&self).await?;
                if !self.goes_on(&mut watch, generation).await? {
                    return Ok(None);
                }
            }
            self.endpoint.checkpoint(&watch.survivors([seen, not_yet]));
            let interval = Some(self.poll_ns());
            let (word, patience) = (Some((self.lock, seen)), self.rules.lock.patience);
            self.endpoint.wait(Wait { word, interval, patience, ..Wait::default() }).await;
        }
    }

    /// A reader sees the flip, which had certainly not happened at `not_yet`.
    async fn admitted(
        self,
        word: ShiftWord,
        generation: u64,
        not_yet: Nanos,
    ) -> Outcome<Option<Held>> {
        let released = Released(self.read_at(self.lock.plus(UPPER_HALF)).await?);
        if released.generation() != generation {
            return Ok(None);
        }
        let now = self.endpoint.now();
        if now.saturating_sub(not_yet) > self.term().ns {
            let guess = ShiftWord(word.0 | u128::from(released.0) << 64);
            self.leave_strictly(generation, guess).await?;
            return Ok(None);
        }
        let grant = Grant { released, epoch: word.epoch() != 0, streak: 0 };
        Ok(Some(Held { grant, readers: word.readers() as u16, expires: self.term().end(now) }))
    }

    /// The hold of a writer that finds itself granted the lock, which it certainly was not at
    /// `not_yet`.
    async fn hold(self, grant: Grant, not_yet: Nanos) -> Outcome<End<Held>> {
        let now = self.endpoint.now();
        let held = Held { grant, readers: 0, expires: self.term().end(now) };
        if now.saturating_sub(not_yet) <= self.term().ns {
            return Ok(End::Mine(held));
        }
        let released = add(grant.released, 1);
        let op = MaskedCas {
            compare: u128::from(grant.released.0) << 64,
            compare_mask: RELEASED_MASK,
            swap: u128::from(released.0) << 64,
            swap_mask: RELEASED_MASK,
        };
        if ShiftWord(self.masked_cas128(op, None).await?).released() != grant.released {
            return Ok(End::Again);
        }
        Ok(End::Mine(Held { grant: Grant { released, ..grant }, ..held }))
    }

    /// Waits for mail, and looks at the count if there is none for a while. False if the lock was
    /// reset.
    async fn await_mail(self, watch: &mut Watch, generation: u64) -> Outcome<bool> {
        self.endpoint.checkpoint(&watch.survivors([generation, self.successor_bits()]));
        let (mail, interval) = (Some(self.slot()), Some(self.term().glance_ns()));
        let wait = Wait { mail, interval, patience: self.rules.lock.patience, ..Wait::default() };
        if self.endpoint.wait(wait).await == Woken::Mail {
            return Ok(true);
        }
        watch.look(&self).await?;
        self.goes_on(watch, generation).await
    }

    /// Whether the waiter goes on waiting after a look. If the count has stood still for too long,
    /// it resets the lock and then does not.
    async fn goes_on(self, watch: &mut Watch, generation: u64) -> Outcome<bool> {
        let now = self.endpoint.now();
        if watch.seen.generation() == generation
            && now.saturating_sub(watch.since) >= self.term().stall_ns()
        {
            let found = reset(&self, watch.seen).await?;
            if found == watch.seen {
                return Ok(false);
            }
            watch.sees(&self, found, now);
        }
        Ok(watch.seen.generation() == generation)
    }
}

// Releasing.

impl<E: WideAtomics> Protocol<'_, E, Extended> {
    /// Gives the lock to the successor, once that is known.
    pub(super) async fn hand_over(self, grant: Grant, old: Option<ShiftWord>) -> Outcome<()> {
        let generation = grant.released.generation();
        if old.is_some_and(|old| old.generation() != generation) {
            self.event(Event::Superseded { lock: self.lock });
            return Ok(());
        }
        let mut watch = Watch::new(&self, grant.released, 0);
        let successor = loop {
            let _ = next_note(&self, generation);
            if let Some(successor) = self.successor() {
                break successor;
            }
            // Who got in line and never reports holds everybody up, until this client or another
            // of those who wait loses patience.
            if !self.await_mail(&mut watch, generation).await? {
                return Ok(());
            }
        };
        self.set_successor(None);
        let Some(note) = self.plain().count_release(grant).await? else { return Ok(()) };
        watch.sees(&self, add(grant.released, 1), self.endpoint.now());
        let told = self.tell(&mut watch, successor, &note).await?;
        if told == Told::Dead && note.kind == Kind::Handover {
            // Nobody holds, and nobody will: those behind need not wait for that to show.
            reset(&self, note.released).await?;
        }
        Ok(())
    }

    /// Sends a note, and again while the receiver's mailbox is full, until the lock is reset. The
    /// receiver may be gone for long: it is asked less and less often.
    async fn tell(self, watch: &mut Watch, to: Mailbox, note: &Note) -> Outcome<Told> {
        let mut pause_ns = MAILBOX_FULL_RETRY_NS;
        loop {
            match self.endpoint.send(to, note.encode()).await {
                Ok(()) => return Ok(Told::Yes),
                Err(Fault::PeerGone) => {
                    self.peer_died(to.endpoint);
                    return Ok(Told::Dead);
                }
                Err(Fault::MailboxFull) => {}
                Err(fault) => return Err(fault),
            }
            self.endpoint.checkpoint(&watch.survivors([pause_ns, 0]));
            let peers = [to.endpoint];
            let interval = Some(pause_ns);
            self.endpoint.wait(Wait { peers: &peers, interval, ..Wait::default() }).await;
            pause_ns = (2 * pause_ns).min(self.term().glance_ns());
            watch.look(&self).await?;
            if !self.goes_on(watch, note.released.generation()).await? {
                return Ok(Told::Over);
            }
        }
    }
}

/// Begins a new generation with nobody in it, if the count and the generation still are these.
/// Returns what they were. The epoch stays; the count goes on, so that no token comes twice.
async fn reset<E: WideAtomics>(site: &Site<'_, E>, seen: Released) -> Outcome<Released> {
    let next = next_generation(seen.generation());
    let released = add(seen, 1).with(Released::GENERATION, next);
    let op = MaskedCas {
        compare: u128::from(seen.0) << 64,
        compare_mask: RELEASED_MASK,
        swap: ShiftWord(u128::from(released.0) << 64).with(ShiftWord::GENERATION_LOW, next).0,
        swap_mask: !ShiftWord::EPOCH.mask(),
    };
    let found = ShiftWord(site.masked_cas128(op, None).await?).released();
    if found == seen {
        site.event(Event::Repaired { lock: site.lock, generation: next, dead_readers: 0 });
    }
    Ok(found)
}
