//! Errands: what clients in an MCS queue have done for each other.
//!
//! A holder whose lock is awaited may *ask* the last in line to do something, named by a word, for
//! all of them. The last in line does it before it has the lock, answers, and stays in line to
//! release. The holder releases *with* the word, and each client that is granted the lock with it
//! knows that it was done after it had got in line, and may pass it on. This is the hand-over of
//! CIDER (section 4.2), with messages where the paper writes into lock nodes.
//!
//! The lock knows nothing of it: it is granted and released as ever, and a word is passed on by a
//! client that says so, never by itself. So the word cannot pass the client that was asked, which
//! has no reason to say so, nor one that has left its line to [`settle`](crate::Client::settle). It
//! does not outlive a repair, since a repair changes the grant to which the word is tied. What is
//! lost on the way costs the word, and never the lock.

use farlock_fabric::{Endpoint, EndpointId, Fault, Mailbox, Message, Nanos, Patience, Slot};

use super::note::{Kind, Note, Released, next_note};
use super::queue::await_mail;
use crate::site::Site;
use crate::wait::within;

/// Takes a note that the slot has kept and that is like that.
fn take<E>(site: &Site<'_, E>, like: impl Fn(&Note) -> bool) -> Option<Note> {
    let is_it = |message: &Message| Note::decode(message).is_some_and(|note| like(&note));
    site.kept.take(site.me.slot, is_it).as_ref().and_then(Note::decode)
}

/// What a waiter was asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the holder waits for an answer"]
pub struct Asked {
    note: Note,
    by: Slot,
}

impl Asked {
    /// The word that names it.
    pub fn word(&self) -> u64 {
        self.note.word
    }
}

/// What this slot was asked at its lock. The question may be an old one, to which nobody awaits an
/// answer any more.
pub(crate) fn asked<E: Endpoint>(site: &Site<'_, E>) -> Option<Asked> {
    let is_asked = |note: &Note| note.kind == Kind::Asked && note.lock == site.lock;
    let note = take(site, is_asked)?;
    Some(Asked { note, by: site.slot() })
}

/// Tells a holder what became of what it has asked. Nothing is certain of the message but that it
/// comes at most once: a holder that hears nothing loses patience.
pub(crate) async fn answer<E: Endpoint>(endpoint: &E, asked: &Asked, done: bool) {
    let kind = if done { Kind::Done } else { Kind::Refused };
    let from = Mailbox { endpoint: endpoint.id(), slot: asked.by };
    let answer = Note { kind, from, ..asked.note };
    let _ = endpoint.send(asked.note.from, answer.encode()).await;
}

/// The word that the lock was handed over with by the client before, to the holder with this grant.
pub(crate) fn brought<E>(site: &Site<'_, E>, grant: Released) -> Option<u64> {
    let is_ours = |note: &Note| {
        note.kind == Kind::Combined && (note.lock, note.released) == (site.lock, grant)
    };
    take(site, is_ours).map(|note| note.word)
}

/// The holder with this grant will hand the lock on with this word.
pub(crate) fn load<E>(site: &Site<'_, E>, grant: Released, word: u64) {
    site.kept.load(site.me.slot, site.lock, grant.0, word);
}

/// Asks the last in line to do this, and waits for its answer for at most so many nanoseconds: two
/// messages. Whether it was done; if not, it may be done yet.
pub(crate) async fn ask<E: Endpoint>(
    site: &Site<'_, E>,
    last: Mailbox,
    grant: Released,
    word: u64,
    nanos: Nanos,
) -> bool {
    let number = site.kept.next_number() & Released::COUNT.max();
    let mut question = Note::new(Kind::Asked, site.me, site.lock, grant.generation());
    question.released = grant.with(Released::COUNT, number);
    question.word = word;
    match site.endpoint.send(last, question.encode()).await {
        // It may have arrived.
        Ok(()) | Err(Fault::Lost) => {}
        Err(_) => return false,
    }
    let answered = await_answer(site, question.released, last.endpoint);
    within(site.endpoint, nanos, answered).await.unwrap_or(false)
}

async fn await_answer<E: Endpoint>(
    site: &Site<'_, E>,
    question: Released,
    last: EndpointId,
) -> bool {
    let is_answer = |note: &Note| {
        matches!(note.kind, Kind::Done | Kind::Refused)
            && (note.lock, note.released) == (site.lock, question)
    };
    let mut gone = false;
    loop {
        let note = next_note(site, question.generation());
        if let Some(answer) = take(site, is_answer) {
            return answer.kind == Kind::Done;
        }
        // The lock was repaired, or the one that was asked has sent what it ever will.
        if note.is_some() || gone {
            return false;
        }
        site.endpoint.checkpoint(&[question.0, u64::from(gone), site.successor_bits()]);
        match await_mail(site, &[last], Patience::default()).await {
            Ok(died) => gone = died,
            Err(_) => return false,
        }
    }
}

/// A waiter that has left its place to be settled does nothing for others any more, and says so.
pub(crate) async fn refuse_if_withdrawn<E: Endpoint>(site: &Site<'_, E>) {
    if site.is_withdrawn()
        && let Some(asked) = asked(site)
    {
        answer(site.endpoint, &asked, false).await;
    }
}

/// Keeps the word that a grant came with.
pub(crate) fn granted_with<E>(site: &Site<'_, E>, note: Note) {
    if note.kind == Kind::Combined {
        site.kept.keep(site.me.slot, note.kind as u8, note.encode());
    }
}
