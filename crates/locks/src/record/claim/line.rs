//! The line: who is next.
//!
//! A waiter stands behind the one whose place it found in the word's tail, and reports to it. The
//! *first* in line, behind nobody, claims the lock as soon as nobody holds it, and then, or when it
//! leaves, makes the next one first. Being first is no right: two may take themselves for first,
//! and the word decides. So no waiter has to be sure that another client is gone, and a waiter
//! makes itself first
//!
//! * when it is told to, or finds that the one before has left the line;
//! * when the one before is dead and was first or holding; if that one was in mid-line, it takes
//!   its place behind the one before that;
//! * when the lock has been free for a while, and the one before gives no sign of life: it is
//!   stopped;
//! * when nothing is known of the one before, a while later, whether the lock is free or not: a
//!   lock that many want is never free for long.
//!
//! A waiter that runs gives a sign whenever a client behind it asks. A client asks if it could have
//! the lock and sees nobody take it. While the lock is held nobody asks, and nobody looks at a
//! clock.

use farlock_fabric::{
    Addr, EndpointId, Fault, Mailbox, MaskedCas, Nanos, Verb, Wait, WideAtomics, Woken,
};

use super::dead::Readers;
use super::doubt::is_believed;
use super::letter::{Kind, Mail, Published, message, sort_mail};
use super::word::{
    Claim, ClaimWord, Grant, HELD_MASK, LINE_MASK, LOOK_NS, Place, Rank, matched, name_of,
    read_word, turn_of,
};
use crate::prelude::*;
use crate::record::barging::patience_in_line;
use crate::slot::{self, SlotRecord};

const LOOKS_IN_VAIN: u64 = 2;

/// How often a waiter looks at a word that it watches, each time after twice as long: who has freed
/// the lock may be stopped before it wakes anybody. Then it sleeps, for a lock that is held for
/// long is to cost nothing.
const LOOKS_WHILE_HELD: u32 = 4;

/// Where each look costs a trip, so many clients make one each in [`LOOK_NS`], and more do not make
/// more.
const LOOKING_TOGETHER: Nanos = 64;

/// Words of a slot record that those behind always read.
const RECORD_WORDS_READ: usize = 2;

/// Where a waiter is, as its slot remembers it from one wait to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Position {
    /// In no line.
    Out,
    /// Behind this one, to which it has reported or not.
    Behind(Place, bool),
    /// Behind a waiter of which nothing is known any more.
    Lost,
    /// Behind nobody.
    First,
}

impl Position {
    const FIRST: u64 = 1 << 63;
    const LOST: u64 = 1 << 62;
    const REPORTED: u64 = 1 << 61;

    fn bits(self) -> u64 {
        match self {
            Self::Out => 0,
            Self::Behind(place, false) => place.bits(),
            Self::Behind(place, true) => place.bits() | Self::REPORTED,
            Self::Lost => Self::LOST,
            Self::First => Self::FIRST,
        }
    }

    fn from_bits(bits: u64) -> Self {
        match bits {
            0 => Self::Out,
            Self::FIRST => Self::First,
            Self::LOST => Self::Lost,
            _ => Self::Behind(Place::from_bits(bits), bits & Self::REPORTED != 0),
        }
    }

    fn of<E: WideAtomics>(site: &Site<'_, E>) -> Self {
        Self::from_bits(site.position())
    }

    fn take<E: WideAtomics>(self, site: &Site<'_, E>) {
        site.set_position(self.bits());
    }
}

/// What there is to know of the one before.
enum Before {
    /// It is not before this waiter any more.
    Gone,
    /// It is dead, and stood behind this one.
    Stood(Place),
    /// It is dead, and nobody knows where it stood.
    Unknown,
    /// It is in line. Where it was asked for a sign of life the number changes with each that it
    /// gives, and this is the lock's word, if that was read along.
    There(u64, Option<ClaimWord>),
}

/// What a waiter that is not first has seen of the lock.
#[derive(Default)]
struct Watch {
    /// The word, at the last look.
    seen: Option<ClaimWord>,
    /// The sign of life of the one before, at the last look.
    sign: u64,
    /// Whether the lock could be had then.
    could_have: bool,
    /// For how many intervals it could be had, and nothing changed.
    intervals: u64,
    /// It is time to look at the word again.
    is_due: bool,
    /// The word has been as it is for an interval, and the lock is held.
    is_calm: bool,
    /// How often it was looked at since then.
    looks: u32,
    /// For how many intervals nothing has been known of the one before.
    lost: u64,
}

impl Watch {
    fn looks(&mut self, word: ClaimWord, mode: Mode, sign: u64) {
        let could_have = word.is_free_for(mode);
        let count = self.seen.map(ClaimWord::count);
        if !could_have || count != Some(word.count()) || sign != self.sign {
            self.intervals = 0;
        }
        self.is_calm &= !could_have;
        (self.seen, self.sign, self.could_have) = (Some(word), sign, could_have);
        self.is_due = false;
    }

    fn is_in_vain(&self) -> bool {
        self.could_have && self.intervals >= LOOKS_IN_VAIN
    }

    /// Whether a waiter of which nobody knows where it stands has waited long enough.
    fn is_lost_for_long(&self) -> bool {
        self.lost >= LOOKS_IN_VAIN
    }

    fn woken(&mut self, woken: Woken, is_lost: bool) {
        let is_elapsed = woken == Woken::Elapsed;
        self.lost += u64::from(is_elapsed && is_lost);
        self.intervals += u64::from(is_elapsed && self.could_have);
        let nothing_moved = is_elapsed || self.is_calm && woken != Woken::Changed;
        self.is_calm = nothing_moved && !self.could_have;
        self.looks = if self.is_calm { self.looks + u32::from(is_elapsed) } else { 0 };
        self.is_due = woken != Woken::Mail || self.is_calm;
    }

    fn survivors(&self) -> [u64; 3] {
        let count = self.seen.filter(|_| self.could_have).map_or(0, |word| word.count() + 1);
        let flags = u64::from(self.could_have) | u64::from(self.is_calm) << 1;
        [count, self.sign, self.lost << 32 | self.intervals << 2 | flags]
    }
}

impl<E: WideAtomics> Protocol<'_, E, Claim> {
    /// Gets in line.
    pub(super) async fn enqueue(self, mode: Mode, seen: ClaimWord) -> Outcome<()> {
        let swap = Place::of(&self).as_tail();
        let op = MaskedCas { swap, swap_mask: LINE_MASK, ..MaskedCas::default() };
        let found = ClaimWord(self.masked_cas128(op, Some(seen.0)).await?);
        let before = (found.tail() != 0).then(|| Place::tail_of(found));
        stand(&self, mode, before);
        Ok(())
    }

    /// Waits in line until the lock is held. `None`: withdrawn, and in no line any more.
    pub(super) async fn wait_for_turn(self, mode: Mode) -> Outcome<Option<Grant>> {
        self.wait_behind(mode).await?;
        let granted = self.claim_as_first(mode).await;
        self.set_position(0);
        granted
    }

    /// Waits until nobody is before this waiter.
    async fn wait_behind(self, mode: Mode) -> Outcome<()> {
        let mut watch = Watch::default();
        let mut holders = Readers::new::<E>();
        loop {
            answer(&self, mode);
            let withdrawn = self.is_withdrawn();
            let (before, reported) = match Position::of(&self) {
                Position::First => return Ok(()),
                Position::Out => panic!("a waiter stands in line"),
                Position::Lost if watch.is_lost_for_long() => {
                    Position::First.take(&self);
                    return Ok(());
                }
                Position::Lost => (None, true),
                Position::Behind(before, reported) => (Some(before), reported),
            };
            if let Some(before) = before.filter(|_| !reported) {
                report(&self, before).await?;
            }
            let (sign, seen) = match before {
                None => (0, None),
                // After the report: one that leaves without having read it shows that it leaves.
                Some(before) => match look_before(&self, before, watch.is_due).await? {
                    Before::There(sign, seen) => (sign, seen),
                    Before::Gone => {
                        Position::First.take(&self);
                        continue;
                    }
                    Before::Stood(place) => {
                        stand(&self, mode, Some(place));
                        continue;
                    }
                    Before::Unknown => {
                        Position::Lost.take(&self);
                        continue;
                    }
                },
            };
            if watch.is_due {
                let seen = match seen {
                    Some(seen) => seen,
                    None => read_word(&self).await?,
                };
                watch.looks(seen, mode, sign);
                if self.looks_in_vain(&mut watch, &mut holders, seen).await? {
                    continue;
                }
            }
            self.wait_for_news(mode, (&mut watch, &mut holders), before, withdrawn).await;
        }
    }

    /// Looks at the word after a while in which nobody has told anything. Whether that has changed
    /// what this waiter is to do: it is first now, or the dead were taken off.
    async fn looks_in_vain(
        self,
        watch: &mut Watch,
        holders: &mut Readers,
        seen: ClaimWord,
    ) -> Outcome<bool> {
        if watch.is_in_vain() {
            Position::First.take(&self);
            return Ok(true);
        }
        if let (true, Position::Behind(before, _)) = (watch.could_have, Position::of(&self)) {
            // A report also asks for a sign of life.
            report(&self, before).await?;
        }
        // The first in line looks for the dead at once; the others do where nothing moves, for the
        // first may be stopped.
        if !watch.is_calm {
            *holders = Readers::new::<E>();
        } else if holders.look_around(&self, seen).await?.is_some() {
            *watch = Watch::default();
            return Ok(true);
        }
        Ok(false)
    }

    /// When a waiter looks again at a word that changes. Where each look costs a trip, those that
    /// have found the lock held do so half as often, and hundreds together no oftener than some.
    fn look_ns(self, watch: &Watch) -> Nanos {
        let is_held = watch.seen.is_some() && !watch.could_have;
        if self.rules.outside == 0 || !is_held {
            return LOOK_NS;
        }
        let all = self.endpoint.occupied().count() as Nanos;
        LOOK_NS * (all / LOOKING_TOGETHER).max(2)
    }

    /// Waits until something may have changed for a waiter that is not first. A client behind it
    /// that asks for a sign of life gets one, and does not put off the next look.
    async fn wait_for_news(
        self,
        mode: Mode,
        (watch, holders): (&mut Watch, &mut Readers),
        before: Option<Place>,
        mut withdrawn: bool,
    ) {
        let is_watching = E::WATCHES_MEMORY && watch.is_calm;
        let poll = if is_watching { look_after(watch.looks) } else { Some(self.look_ns(watch)) };
        let interval = if watch.is_calm { holders.interval(poll) } else { poll };
        let deadline = interval.map(|interval| self.endpoint.now().saturating_add(interval));
        let mut peers: Vec<EndpointId> = holders.watched().to_vec();
        peers.extend(before.map(|before| before.mailbox.endpoint));
        // Where memory can be watched, the word wakes only a waiter that sees nothing move.
        let word = watch.seen.filter(|_| !E::WATCHES_MEMORY || watch.is_calm);
        let word = word.map(|seen| (self.lock, seen.watched()));
        let mut interval = interval;
        let woken = loop {
            let [count, sign, rest] = watch.survivors();
            let memory = [self.position(), self.successor_bits(), self.signs()];
            let [position, behind, signs] = memory;
            let held = holders.survivor();
            self.endpoint.checkpoint(&[position, behind, signs, held, count, sign, rest]);
            let (mail, patience) =
                (Some(self.slot()), patience_in_line(self.rules.bypass, self.rules.patience));
            let wait = Wait { word, mail, peers: &peers, interval, patience, ..Wait::default() };
            let woken = self.wait_or_withdraw(wait, withdrawn).await;
            if woken != Some(Woken::Mail) {
                break woken.unwrap_or(Woken::Changed);
            }
            let mail = answer(&self, mode);
            withdrawn = self.is_withdrawn();
            // What the one before sent may have found no room: look at it.
            if self.position() != position || mail.was_full {
                break Woken::Mail;
            }
            interval = deadline.map(|deadline| deadline.saturating_sub(self.endpoint.now()));
            if interval == Some(0) {
                break Woken::Elapsed;
            }
        };
        if watch.is_calm {
            holders.woken(woken, poll);
        }
        watch.woken(woken, Position::of(&self) == Position::Lost);
    }

    /// Claims the lock when nobody holds it, as the first in line. `None`: withdrawn, and has left.
    async fn claim_as_first(self, mode: Mode) -> Outcome<Option<Grant>> {
        publish_position(&self, None);
        let (mut readers, mut looks) = (Readers::new::<E>(), 0);
        // A waiter is told to be first when the lock is free: a writer need not look.
        let mut seen = match mode {
            Mode::Exclusive => ClaimWord::new(),
            Mode::Shared => read_word(&self).await?,
        };
        loop {
            answer(&self, mode);
            if self.is_withdrawn() {
                leave(&self, mode).await?;
                return Ok(None);
            }
            if seen.is_free_for(mode) {
                match self.claim(mode, seen).await? {
                    Ok(grant) => return Ok(Some(grant)),
                    Err(found) => seen = found,
                }
                self.endpoint.checkpoint(&[seen.watched(), self.successor_bits(), self.signs()]);
                continue;
            }
            if let Some(found) = readers.look_around(&self, seen).await? {
                seen = found;
                self.endpoint.checkpoint(&[seen.watched(), self.successor_bits(), self.signs()]);
                continue;
            }
            let woken = self.await_release(&mut readers, seen, &mut looks).await;
            // What has changed is perhaps free. Where a look costs a round trip a writer claims it
            // at once, and a claim in vain tells as much as a look.
            let claims_blindly = mode == Mode::Exclusive && self.rules.outside > 0;
            seen = match woken {
                Woken::Changed if claims_blindly => ClaimWord::new(),
                _ => read_word(&self).await?,
            };
        }
    }

    /// Waits until the word is no more as seen, or it is time to look at it, or for those who hold
    /// the lock, after so many looks in vain.
    async fn await_release(self, readers: &mut Readers, seen: ClaimWord, looks: &mut u32) -> Woken {
        let memory = [self.successor_bits(), self.signs(), readers.survivor()];
        self.endpoint.checkpoint(&[seen.watched(), memory[0], memory[1], memory[2]]);
        let look_ns = look_after(*looks);
        let poll = if E::WATCHES_MEMORY { look_ns } else { Some(self.rules.poll_ns) };
        let woken = {
            let wait = Wait {
                word: Some((self.lock, seen.watched())),
                mail: Some(self.slot()),
                peers: readers.watched(),
                interval: readers.interval(poll),
                patience: patience_in_line(self.rules.bypass, self.rules.patience),
                ..Wait::default()
            };
            // A withdrawal was seen above, and the waiter has left.
            self.wait_or_withdraw(wait, false).await.unwrap_or(Woken::Changed)
        };
        readers.woken(woken, poll);
        match woken {
            Woken::Elapsed if E::WATCHES_MEMORY => *looks += 1,
            Woken::Changed => *looks = 0,
            _ => {}
        }
        woken
    }

    /// Claims the lock for the first in line if its word still lets it. Returns what was found
    /// where it does not.
    async fn claim(self, mode: Mode, seen: ClaimWord) -> Outcome<Result<Grant, ClaimWord>> {
        let op = claiming(&self, mode, seen);
        self.begin_anew_if_doubted();
        let acquisition = self.acquisition();
        self.publish_ticket(Phase::Claiming, mode, 0, self.acquisition());
        let found = self.masked_cas128(op, Some(seen.0)).await?;
        if !matched(&op, found) {
            return Ok(Err(ClaimWord(found)));
        }
        let count = ClaimWord(found).count();
        if mode == Mode::Exclusive {
            return Ok(Ok(Grant { count, acquisition, rank: Rank::Head }));
        }
        self.left(found);
        if op.swap_mask & ClaimWord::TAIL.mask() == 0 {
            pass_on(&self).await?;
        }
        Ok(Ok(Grant { count, acquisition, rank: Rank::Reader }))
    }

    /// Frees the lock by this verb and tells the waiter behind in the same chain, where each costs
    /// a round trip. Returns the old word. A waiter that is told though the lock was not this one's
    /// any more is in nobody's way: the word decides.
    pub(super) async fn leave_telling_next(self, op: MaskedCas<u128>) -> Outcome<u128> {
        sort_mail(&self);
        let leaving = Verb::MaskedCas128 { addr: self.lock, op, hint: self.hint() };
        let Some(behind) = self.take_behind().map(Place::from_bits) else {
            self.endpoint.verb(leaving).await?;
            return Ok(self.endpoint.old());
        };
        let first = message(Kind::First, self.lock, Place::of(&self), behind);
        let telling = Verb::Send { to: behind.mailbox, message: first };
        let all = self.endpoint.chain(&[leaving.into(), telling.into()]).await;
        match all {
            // As where it is told by itself, it looks.
            Ok(()) | Err(Fault::MailboxFull | Fault::PeerGone) => {
                let left = self.endpoint.link(0);
                left.status.map(|()| left.old)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Tells the waiter that has reported to be behind this one that it is first.
    pub(super) async fn tell_next(self) -> Outcome<()> {
        tell_first(&self).await.map(|_| ())
    }
}

/// The verb by which the first in line claims the lock. A reader leaves the line with it if nobody
/// is behind.
fn claiming<E: WideAtomics>(site: &Site<'_, E>, mode: Mode, seen: ClaimWord) -> MaskedCas<u128> {
    match mode {
        Mode::Exclusive => MaskedCas {
            compare: 0,
            compare_mask: HELD_MASK,
            swap: ClaimWord::HOLDER.place(name_of(site.me.endpoint)),
            swap_mask: ClaimWord::HOLDER.mask(),
        },
        Mode::Shared => {
            let leaves = if seen.ends_with(Place::of(site)) { LINE_MASK } else { 0 };
            MaskedCas {
                compare: seen.0,
                compare_mask: HELD_MASK | LINE_MASK,
                swap: ClaimWord::READERS.place(seen.readers() + 1),
                swap_mask: ClaimWord::READERS.mask() | leaves,
            }
        }
    }
}

/// A reader that holds now leaves the line with others behind it, of whom it may not know yet.
pub(super) async fn pass_on<E: WideAtomics>(site: &Site<'_, E>) -> Outcome<()> {
    site.publish_ticket(Phase::Held, Mode::Shared, 0, site.acquisition());
    // For good: others see it, and what comes meanwhile must not undo that.
    if is_believed(site) {
        site.set_believed();
    } else {
        site.set_doubted();
        site.publish_ticket(Phase::Leaving, Mode::Shared, 0, site.acquisition());
    }
    if tell_first(site).await? {
        return Ok(());
    }
    // An atomic that changes nothing stands between what was published and the last look for mail:
    // a waiter that reports after that look reads what was published.
    site.endpoint.masked_cas128(site.lock, MaskedCas::default(), None).await?;
    tell_first(site).await.map(|_| ())
}

/// The first in line leaves it without the lock.
async fn leave<E: WideAtomics>(site: &Site<'_, E>, mode: Mode) -> Outcome<()> {
    site.publish_ticket(Phase::Leaving, mode, 0, site.acquisition());
    let place = Place::of(site).as_tail();
    let op = MaskedCas { compare: place, compare_mask: LINE_MASK, swap: 0, swap_mask: LINE_MASK };
    if !matched(&op, site.masked_cas128(op, None).await?) {
        tell_first(site).await?;
    }
    Ok(())
}

/// Tells the one behind, if one has reported. A full mailbox has something to wake up for, and the
/// dead are found dead: either way those behind look for themselves.
async fn tell_first<E: WideAtomics>(site: &Site<'_, E>) -> Outcome<bool> {
    sort_mail(site);
    let Some(behind) = site.take_behind().map(Place::from_bits) else { return Ok(false) };
    let first = message(Kind::First, site.lock, Place::of(site), behind);
    match site.endpoint.send(behind.mailbox, first).await {
        Ok(()) | Err(Fault::MailboxFull | Fault::PeerGone) => Ok(true),
        Err(fault) => Err(fault),
    }
}

/// Reports to the one before, and so asks it for a sign of life.
async fn report<E: WideAtomics>(site: &Site<'_, E>, before: Place) -> Outcome<()> {
    let behind = message(Kind::Behind, site.lock, Place::of(site), before);
    match site.endpoint.send(before.mailbox, behind).await {
        Ok(()) => Position::Behind(before, true).take(site),
        // The next look tells more.
        Err(Fault::MailboxFull | Fault::PeerGone) => {}
        Err(fault) => return Err(fault),
    }
    Ok(())
}

/// Reads the mail, gives a sign of life to a waiter that asks for one, and says whether this one
/// still wants the lock.
fn answer<E: WideAtomics>(site: &Site<'_, E>, mode: Mode) -> Mail {
    let mail = sort_mail(site);
    if mail.is_first {
        Position::First.take(site);
    }
    if mail.is_asked {
        site.give_sign();
    }
    let phase = if site.is_withdrawn() { Phase::Withdrawn } else { Phase::Waiting };
    site.publish_ticket(phase, mode, 0, site.acquisition());
    mail
}

/// Takes the place behind this one, or in front.
fn stand<E: WideAtomics>(site: &Site<'_, E>, mode: Mode, before: Option<Place>) {
    publish_position(site, before);
    let position = before.map_or(Position::First, |before| Position::Behind(before, false));
    position.take(site);
    site.publish_ticket(Phase::Waiting, mode, 0, site.acquisition());
}

/// Publishes the one before this waiter, for when this one dies.
fn publish_position<E: WideAtomics>(site: &Site<'_, E>, before: Option<Place>) {
    let published = Published::of(Place::of(site), before);
    site.endpoint.publish(site.slot(), slot::QUEUE, published.0);
}

/// Looks whether the one before is still there, and, where it was asked for one, for its sign of
/// life, and at the lock.
async fn look_before<E: WideAtomics>(
    site: &Site<'_, E>,
    before: Place,
    asks: bool,
) -> Outcome<Before> {
    let Mailbox { endpoint: peer, slot } = before.mailbox;
    if peer.index == 0 || peer.index > site.endpoint.endpoints() || slot.0 >= site.endpoint.slots()
    {
        return Ok(Before::Unknown);
    }
    let is_alive = site.endpoint.is_alive(peer);
    let addr = site.endpoint.record(peer.index, slot);
    let word_of = |word: usize| addr.plus(word as u64 * 8);
    let (words, seen) = read_before(site, addr, asks && is_alive).await?;
    let record = SlotRecord::decode(&words);
    let record =
        record.filter(|record| record.lock == site.lock && turn_of(record.ticket) == before.turn);
    if is_alive {
        let is_there = record.is_some_and(|record| match record.phase {
            Phase::Idle | Phase::Leaving => false,
            Phase::Held => record.mode == Mode::Exclusive,
            _ => true,
        });
        if !is_there {
            return Ok(Before::Gone);
        }
        let (sign, word) = seen.unzip();
        return Ok(Before::There(sign.unwrap_or(0), word.flatten()));
    }
    site.peer_died(peer);
    let published = Published(site.read_at(word_of(slot::QUEUE)).await?);
    let word = read_word(site).await?;
    Ok(match record.map(|record| record.phase) {
        Some(Phase::Held | Phase::Leaving) => Before::Gone,
        // A later user of its place has not published where that one stands.
        Some(Phase::Waiting | Phase::Withdrawn | Phase::Claiming) | None
            if published.is_of(before) =>
        {
            published.place_before().map_or(Before::Gone, Before::Stood)
        }
        // It died between its first verb and what it published next.
        Some(_) if word.holder() == name_of(peer) => Before::Gone,
        Some(_) => Before::Unknown,
        // It had left, unless that is the record of a later user of its place.
        None if site.endpoint.occupant(peer.index).is_none() => Before::Gone,
        None => Before::Unknown,
    })
}

/// The first words of a record; and its sign of life and the lock's word, if it was asked for one.
/// These are looked at again and again, so in one trip where that is what it costs and they lie at
/// one memory node.
async fn read_before<E: WideAtomics>(
    site: &Site<'_, E>,
    addr: Addr,
    asks: bool,
) -> Outcome<([u64; RECORD_WORDS_READ], Option<(u64, Option<ClaimWord>)>)> {
    let mut words = [0; RECORD_WORDS_READ];
    let record = Verb::Read { addr, words: RECORD_WORDS_READ as u16 };
    if !asks {
        site.endpoint.verb(record).await?;
        site.endpoint.copy_read(0, &mut words);
        return Ok((words, None));
    }
    let sign = Verb::Read { addr: addr.plus(slot::SIGN as u64 * 8), words: 1 };
    let word = Verb::Read { addr: site.lock, words: 2 };
    let all = [record.into(), sign.into(), word.into()];
    let has_word = addr.region() == site.lock.region();
    site.endpoint.chain(if has_word { &all } else { &all[..2] }).await?;
    site.endpoint.copy_read(0, &mut words);
    let word = has_word.then(|| ClaimWord(site.endpoint.link(2).old));
    Ok((words, Some((site.endpoint.link(1).old as u64, word))))
}

/// How long to wait before the word is looked at that is watched, after so many looks.
fn look_after(looks: u32) -> Option<Nanos> {
    (looks < LOOKS_WHILE_HELD).then(|| LOOK_NS << looks)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: ClaimWord = ClaimWord::new().with(ClaimWord::HOLDER, 1);
    const EXCLUSIVE: Mode = Mode::Exclusive;

    /// A watch that has seen this word.
    fn watch(word: ClaimWord) -> Watch {
        let mut watch = Watch::default();
        watch.looks(word, EXCLUSIVE, 0);
        watch
    }

    #[test]
    fn only_intervals_that_have_passed_count_against_the_one_before() {
        let mut watch = watch(ClaimWord::new());
        for woken in [Woken::Mail, Woken::Changed, Woken::Mail, Woken::Changed] {
            watch.woken(woken, true);
            assert!(!watch.is_in_vain() && !watch.is_lost_for_long(), "after {woken:?}");
        }
        for _ in 0..LOOKS_IN_VAIN {
            assert!(!watch.is_in_vain() && !watch.is_lost_for_long());
            watch.woken(Woken::Elapsed, true);
        }
        assert!(watch.is_in_vain() && watch.is_lost_for_long());
    }

    #[test]
    fn nothing_counts_against_one_that_is_known_while_the_lock_is_held() {
        let mut watch = watch(HELD);
        for _ in 0..=2 * LOOKS_IN_VAIN {
            watch.woken(Woken::Elapsed, false);
        }
        assert!(!watch.is_lost_for_long());
        watch.looks(ClaimWord::new(), EXCLUSIVE, 0);
        assert!(!watch.is_in_vain(), "it could not be had before");
    }

    #[test]
    fn a_waiter_is_calm_while_a_held_word_stays_as_it_is() {
        let mut watch = watch(HELD);
        watch.woken(Woken::Mail, false);
        assert!(!watch.is_calm && !watch.is_due, "no interval has passed");
        for woken in [Woken::Elapsed, Woken::Mail, Woken::Elapsed] {
            watch.woken(woken, false);
            assert!(watch.is_calm && watch.is_due, "after {woken:?}");
        }
        assert_eq!(watch.looks, 2);
        watch.woken(Woken::Changed, false);
        assert_eq!((watch.is_calm, watch.is_due, watch.looks), (false, true, 0));
    }

    /// A holder that came and went, a release, or a sign of life.
    #[test]
    fn what_shows_that_others_go_on_is_no_look_in_vain() {
        let (free, released) = (ClaimWord::new(), ClaimWord::new().with(ClaimWord::COUNT, 1));
        for (seen, sign, is_in_vain) in
            [(free, 0, true), (HELD, 0, false), (released, 0, false), (free, 1, false)]
        {
            let mut watch = watch(free);
            (0..LOOKS_IN_VAIN).for_each(|_| watch.woken(Woken::Elapsed, false));
            watch.looks(seen, EXCLUSIVE, sign);
            watch.looks(ClaimWord(seen.0 & !HELD_MASK), EXCLUSIVE, sign);
            assert_eq!(watch.is_in_vain(), is_in_vain, "{seen:?}, sign {sign}");
        }
    }

    #[test]
    fn a_calm_waiter_is_calm_no_more_when_it_sees_a_free_word() {
        let mut watch = watch(HELD);
        watch.woken(Woken::Elapsed, false);
        watch.looks(HELD, EXCLUSIVE, 0);
        assert!(watch.is_calm && !watch.is_due);
        watch.looks(ClaimWord::new(), EXCLUSIVE, 0);
        assert!(!watch.is_calm);
    }

    #[test]
    fn no_waiter_is_calm_that_could_have_the_lock() {
        let mut watch = watch(ClaimWord::new());
        watch.woken(Woken::Elapsed, false);
        assert!(!watch.is_calm && watch.is_due);
    }
}
