//! Repair: what is done for clients that died.
//!
//! On shared memory a client that finds a peer dead repairs; a memory server or the simulator may
//! do the same. A queue lock is repaired by *stealing*: one unconditional change of its word begins
//! a new generation with the repairer at its head. From then on nobody enters, and the repairer
//! waits until every living client that was in line in the old generation has left ([`drain`]): it
//! is holding and releases, or waiting and begins again. What remains in the word then belongs to
//! the dead.
//!
//! Why [`drain`] sees everybody: a client publishes that it opens a lock *before* its first verb
//! there. One whose record does not name the lock when it is read, after the theft, posts its verb
//! after the theft and so belongs to the new generation.

use farlock_fabric::{
    Addr, Endpoint, EndpointId, Fault, Mailbox, Nanos, Patience, Slot, Verb, Wait, Woken,
};

use crate::record::note::{Kind, Note, is_newer, next_note};
use crate::site::{Outcome, Site};
use crate::slot::{self, Phase, SlotRecord};
use crate::want::Mode;

/// How often a repairer looks whether the old generation has left, at first and at last, in
/// nanoseconds. Between two looks it also tells those who wait for mail.
const DRAIN_POLL_NS: (u64, u64) = (20_000, 1_000_000);

/// The most peers watched in one wait.
const WATCHED_MAX: usize = 64;

/// How long a wait for a message that is on its way goes on before anybody suspects its sender.
const SOON_NS: Nanos = 100_000;

/// Words of a slot record that repair reads: state, lock and token.
const RECORD_WORDS_READ: u16 = 3;
/// How long those are trusted at first and at last who may have left, in nanoseconds.
const LEAVING_NS: (Nanos, Nanos) = (10_000_000, 1_280_000_000);

/// A client at a lock, as its slot record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Participant {
    /// Who.
    pub endpoint: EndpointId,
    /// In which of its slots.
    pub slot: Slot,
    /// What it is doing there.
    pub record: SlotRecord,
}

/// How long to wait before one looks again at those whose records say that they hold, where the
/// word cannot tell. A client that has released and was stopped before its record said so is taken
/// for a holder, and nothing tells when it no more is. Twice as long each time, since nearly all
/// who say that they hold do.
#[derive(Debug)]
pub(crate) struct SecondLook {
    next_ns: Nanos,
}

impl SecondLook {
    pub(crate) const fn new() -> Self {
        Self { next_ns: LEAVING_NS.0 }
    }

    /// The next wait, in nanoseconds.
    pub(crate) fn wait_ns(&mut self) -> Nanos {
        let next_ns = (self.next_ns * 2).min(LEAVING_NS.1);
        std::mem::replace(&mut self.next_ns, next_ns)
    }

    /// What it carries from one wait to the next, as a number.
    pub(crate) const fn survivor(&self) -> u64 {
        self.next_ns
    }
}

/// Every living client but this slot's own that opens, awaits or holds `lock`, in the order of
/// their places. Costs a read per slot of every endpoint there: for slow paths.
pub async fn participants<E: Endpoint>(
    endpoint: &E,
    lock: Addr,
    except: Slot,
) -> Outcome<Vec<Participant>> {
    let mut found = Vec::new();
    for index in endpoint.occupied() {
        let Some(occupant) = endpoint.occupant(index) else { continue };
        for slot in (0..endpoint.slots()).map(Slot) {
            if occupant == endpoint.id() && slot == except {
                continue;
            }
            let addr = endpoint.record(index, slot);
            endpoint.verb(Verb::Read { addr, words: RECORD_WORDS_READ }).await?;
            let mut words = [0; slot::WORDS];
            endpoint.copy_read(0, &mut words);
            if slot::is_in_parts(words[slot::LOCK]) {
                // If the client has gone on since, it has published that before its next verb.
                endpoint.read64(addr.plus(8 * slot::PART as u64)).await?;
                words[slot::PART] = endpoint.old() as u64;
            }
            let Some(record) = SlotRecord::decode(&words) else { continue };
            if let Some(record) = record.at(lock) {
                found.push(Participant { endpoint: occupant, slot, record });
            }
        }
    }
    Ok(found)
}

/// Waits until no living client is left at the lock from before `generation`, which this site's
/// owner has begun with itself at the head. Those in a mode that waits for mail are told to begin
/// again. `Ok(false)` if another client has stolen the lock in turn: then this generation is over
/// as well.
///
/// Ends when the last old holder releases; a holder that is stopped, not dead, is waited for.
pub async fn drain<E: Endpoint>(
    site: &Site<'_, E>,
    generation: u64,
    waits_for_mail: impl Fn(Mode) -> bool,
) -> Outcome<bool> {
    let (mut interval, longest) = DRAIN_POLL_NS;
    loop {
        let mut left = participants(site.endpoint, site.lock, site.slot()).await?;
        left.retain(|p| {
            p.record.phase == Phase::Opening || is_newer(generation, p.record.generation)
        });
        if left.is_empty() {
            return Ok(true);
        }
        for participant in left.iter().filter(|p| waits_for_mail(p.record.mode)) {
            tell_to_begin_again(site, participant, generation).await?;
        }
        if next_note(site, generation).is_some_and(|note| note.kind == Kind::Reset) {
            return Ok(false);
        }
        site.endpoint.checkpoint(&[generation, left.len() as u64]);
        let wait = Wait { interval: Some(interval), ..Wait::default() };
        site.endpoint.wait(wait).await;
        interval = (interval * 2).min(longest);
    }
}

/// Tells the waiters in line since before `generation` to begin again, on behalf of a client that
/// was in line before them and leaves without handing over.
///
/// The repairer tells them as well, but it may die before. Then the waiters behind this client,
/// which lives, would wait for ever. A client that still opens the lock is told too: if it opens it
/// in the new generation, the note says nothing new.
pub async fn dismiss<E: Endpoint>(site: &Site<'_, E>, generation: u64) -> Outcome<()> {
    for p in participants(site.endpoint, site.lock, site.slot()).await? {
        let waits = match p.record.phase {
            Phase::Opening => true,
            Phase::Waiting | Phase::Repairing => is_newer(generation, p.record.generation),
            _ => false,
        };
        if !waits || p.record.mode != Mode::Exclusive {
            continue;
        }
        tell_to_begin_again(site, &p, generation).await?;
    }
    Ok(())
}

async fn tell_to_begin_again<E: Endpoint>(
    site: &Site<'_, E>,
    waiter: &Participant,
    generation: u64,
) -> Outcome<()> {
    let to = Mailbox { endpoint: waiter.endpoint, slot: waiter.slot };
    let note = Note::new(Kind::Reset, site.me, site.lock, generation);
    match site.endpoint.send(to, note.encode()).await {
        // A full mailbox holds something to wake up for; the dead wait for nothing.
        Ok(()) | Err(Fault::MailboxFull | Fault::PeerGone) => Ok(()),
        Err(fault) => Err(fault),
    }
}

/// Waits for mail that a waiter in line at the lock must send: a successor's report. Watches all
/// waiters that could, and looks around again after `check_ns`. `Ok(false)` if nobody living can
/// send it.
///
/// The sender is among the participants, since it published before it got in line.
pub async fn await_report<E: Endpoint>(
    site: &Site<'_, E>,
    patience: Patience,
    check_ns: Nanos,
) -> Outcome<bool> {
    let mail = Some(site.slot());
    // Almost always the report is but a moment away: a short wait without looking around.
    let soon = Wait { mail, patience, interval: Some(SOON_NS), ..Wait::default() };
    if site.endpoint.wait(soon).await == Woken::Mail {
        return Ok(true);
    }
    let mut senders = participants(site.endpoint, site.lock, site.slot()).await?;
    senders.retain(|p| p.record.mode == Mode::Exclusive);
    if senders.is_empty() {
        // What was sent before its sender died is there by now.
        let now = Wait { mail, interval: Some(0), ..Wait::default() };
        return Ok(site.endpoint.wait(now).await == Woken::Mail);
    }
    let peers: Vec<EndpointId> = senders.iter().map(|p| p.endpoint).take(WATCHED_MAX).collect();
    let wait = Wait { mail, peers: &peers, interval: Some(check_ns), patience, ..Wait::default() };
    site.endpoint.wait(wait).await;
    Ok(true)
}
