//! Doubt: readers that may be inside, and have not said so.
//!
//! A reader says that it opens or claims the lock before the verb by which it does, and that it
//! holds after it. One that is stopped between the two may be counted by the word or not, and
//! nothing tells which: it would stand for a reader that died inside, for as long as it is stopped.
//! So a client that waits for readers *doubts* it, by a message that names its acquisition.
//!
//! A reader that has said that it holds reads its mail before it believes it. A doubted one begins
//! anew, and leaves behind what the word may count for it, as one that died there. Hence a reader
//! that was doubted, and a while later has still not said that it holds, is not inside and will not
//! be by that acquisition, whatever its verb has done or will do.
//!
//! The mailbox of a stopped reader may be full. So a reader that finds as much mail as fills one,
//! or mail that is still being written, is doubted as well. A reader that is doubted before it
//! claims the lock goes on as by another acquisition, and loses nothing.
//!
//! A while is long enough for a processor to show others what it has stored. Where that takes a
//! round trip the reader waits for it (`Endpoint::show`): either it finds the doubt in its mailbox,
//! or the client that doubts it finds that it holds, however long that takes.

use farlock_fabric::{EndpointId, Fault, Mailbox, Slot, WideAtomics};

use super::letter::{doubt_of, sort_mail};
use super::word::Place;
use crate::prelude::*;
use crate::repair::Participant;

/// One acquisition that may be inside.
type Suspect = (EndpointId, Slot, u32);

/// Those who live and are at a lock that readers hold.
pub(super) struct Inside {
    /// They say that they hold it.
    pub(super) certain: Vec<Participant>,
    /// They open or claim it.
    pub(super) doubtful: Vec<Participant>,
}

impl Inside {
    pub(super) fn of(present: Vec<Participant>) -> Self {
        let (certain, others): (Vec<_>, Vec<_>) =
            present.into_iter().partition(|p| p.record.phase == Phase::Held);
        let may_be = |p: &Participant| {
            let comes = matches!(p.record.phase, Phase::Opening | Phase::Claiming);
            comes && p.record.mode == Mode::Shared
        };
        Self { certain, doubtful: others.into_iter().filter(may_be).collect() }
    }

    pub(super) fn endpoints(&self) -> impl Iterator<Item = EndpointId> {
        self.certain.iter().chain(&self.doubtful).map(|reader| reader.endpoint)
    }
}

/// What a client that waits for readers knows of the doubtful ones.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// They were doubtful at the last look.
    suspects: Vec<Suspect>,
    /// They were told since that they are doubted.
    told: Vec<Suspect>,
}

impl Doubts {
    /// Of so many readers in the word, how many may live. Where the doubtful decide that, those
    /// that were as doubtful at the last look are told; those that were told then do not count.
    ///
    /// Between two calls with the same doubts passes a while.
    pub(super) async fn living<E: WideAtomics>(
        &mut self,
        site: &Site<'_, E>,
        readers: u64,
        inside: &Inside,
    ) -> Outcome<u64> {
        let (certain, doubtful) = (inside.certain.len() as u64, inside.doubtful.len() as u64);
        if certain >= readers || certain + doubtful < readers {
            *self = Self::default();
            return Ok(certain + doubtful);
        }
        let now: Vec<Suspect> =
            inside.doubtful.iter().map(|p| (p.endpoint, p.slot, p.record.ticket)).collect();
        self.told.retain(|told| now.contains(told));
        let outside = self.told.len() as u64;
        for suspect in now.iter().filter(|suspect| self.suspects.contains(suspect)) {
            if !self.told.contains(suspect) && tell(site, *suspect).await? {
                self.told.push(*suspect);
            }
        }
        self.suspects = now;
        Ok(certain + doubtful - outside)
    }

    /// Whether nobody is doubtful.
    pub(super) fn are_none(&self) -> bool {
        self.suspects.is_empty()
    }

    /// What it carries from one look to the next, as a number.
    pub(super) fn survivor(&self) -> u64 {
        let mixed = |sum: u64, (id, slot, ticket): &Suspect| {
            sum.rotate_left(7) ^ id.bits() ^ u64::from(slot.0) << 56 ^ u64::from(*ticket) << 40
        };
        let told = self.told.iter().fold(!0, mixed);
        self.suspects.iter().fold(told, mixed)
    }
}

/// Tells a reader that it is doubted. Whether it will find that out.
async fn tell<E: WideAtomics>(
    site: &Site<'_, E>,
    (endpoint, slot, ticket): Suspect,
) -> Outcome<bool> {
    let to = Mailbox { endpoint, slot };
    let doubt = doubt_of(site.lock, Place::of(site), ticket);
    match site.endpoint.send(to, doubt).await {
        // A reader that finds its mailbox full takes itself for doubted.
        Ok(()) | Err(Fault::MailboxFull) => Ok(true),
        Err(Fault::PeerGone) => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Whether a reader that has said that it holds does.
#[inline(always)]
pub(super) fn is_believed<E: WideAtomics>(site: &Site<'_, E>) -> bool {
    site.endpoint.show();
    sort_mail(site);
    !(site.is_doubted() || site.endpoint.has_unread(site.slot())) || site.was_believed()
}
