//! Asking and being asked in an MCS queue: see [`errand`](crate::record::errand).

use farlock_fabric::{Mailbox, Nanos, WideAtomics};

use super::acquire::Acquire;
use super::core::Client;
use super::guard::{Guard, Release};
use crate::record::errand::{self, Asked};
use crate::record::mcs::{Mcs, McsWord};
use crate::record::note::next_note;

impl<E: WideAtomics> Guard<'_, E, Mcs> {
    /// The word that the client before in line has handed the lock over with, once: the last in
    /// line has done what it names, after this client had got in line.
    pub fn brought(&self) -> Option<u64> {
        errand::brought(&self.client.core.slots.site(self.index), self.grant())
    }

    /// Whether another client has reported to be next in line. Costs no verb.
    pub fn is_followed(&self) -> bool {
        let site = self.client.core.slots.site(self.index);
        // What a holder is told besides is that its lock was repaired, which its release finds.
        let _ = next_note(&site, self.generation());
        site.successor().is_some()
    }

    /// Asks the last in line to do what this word names, and waits for its answer for at most so
    /// many nanoseconds. Whether it was done, after this was called. If not, it may be done yet.
    ///
    /// A read of the lock's word and two messages. A crash on either side leaves what a crash while
    /// holding or waiting does; the other one is told of it or loses patience.
    pub async fn ask_last(&self, word: u64, nanos: Nanos) -> bool {
        let site = self.client.core.slots.site(self.index);
        let Ok(read) = site.read().await else { return false };
        match McsWord(read.into()).tail() {
            last if last == 0 || last == site.me.bits() => false,
            last => {
                let last = Mailbox::from_bits(last);
                errand::ask(&site, last, self.grant(), word, nanos).await
            }
        }
    }
}

impl<'c, E: WideAtomics> Guard<'c, E, Mcs> {
    /// Releases the lock like [`Guard::release`], and hands it over with this word, if it is handed
    /// over in the generation in which it was granted.
    pub fn release_with(self, word: u64) -> Release<'c, E, Mcs> {
        errand::load(&self.client.core.slots.site(self.index), self.grant(), word);
        self.release()
    }
}

impl<E: WideAtomics> Acquire<'_, E, Mcs> {
    /// What a holder has asked this waiter to do, once. To be looked for whenever the acquisition
    /// was polled and is pending, and to be answered by [`Client::answer`].
    pub fn asked(&self) -> Option<Asked> {
        errand::asked(&self.site()?)
    }
}

impl<E: WideAtomics> Client<E, Mcs> {
    /// Tells the holder that has asked whether it was done. A message, which may be lost.
    pub async fn answer(&self, asked: &Asked, done: bool) {
        errand::answer(self.endpoint(), asked, done).await;
    }
}
