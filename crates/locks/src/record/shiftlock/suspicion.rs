//! What a writer that waits for readers thinks of them.

use farlock_fabric::{EndpointId, Nanos, WideAtomics, Woken};

use crate::prelude::*;
use crate::repair::{self, SecondLook};

/// How long a writer waits for readers before it looks whether they live, in nanoseconds.
const TRUST_NS: Nanos = 100_000;
/// How long it then waits for readers none of which seems to hold, in nanoseconds.
const TRUST_AGAIN_NS: Nanos = 10_000_000;
/// How long a writer waits where looking around costs round trips: three leases of the paper.
const TRUST_FAR_NS: Nanos = 30_000_000;
/// The most peers watched in one wait.
const WATCHED_MAX: usize = 64;

/// What a writer that waits for readers thinks of them. It trusts them for a while, then looks
/// around for those whose records say that they are at the lock, and watches them.
#[derive(Debug)]
pub(super) struct Suspicion {
    /// How long it still trusts, in nanoseconds.
    trust_ns: Nanos,
    /// How much of that one wait takes.
    step_ns: Nanos,
    pub(super) watched: Vec<EndpointId>,
    /// Whether the last look found nobody who holds.
    none_held: bool,
    /// Whether one of those watched died.
    gone: bool,
    second_look: SecondLook,
}

impl Suspicion {
    pub(super) fn new<E: WideAtomics>(poll_ns: Nanos) -> Self {
        let trust_ns = fresh_ns::<E>();
        let step_ns = if E::WATCHES_MEMORY { trust_ns } else { poll_ns };
        Self {
            trust_ns,
            step_ns,
            watched: Vec::new(),
            none_held: false,
            gone: false,
            second_look: SecondLook::new(),
        }
    }

    /// Looks around if the trust is used up. True if the readers that are waited for are certainly
    /// or very probably dead: one died that was watched, nobody living is left at the lock in
    /// shared mode, or nobody has held it at two looks with a long wait between. A wrong guess
    /// costs a repair and harms nobody.
    pub(super) async fn look_around<E: WideAtomics>(
        &mut self,
        site: &Site<'_, E>,
    ) -> Outcome<bool> {
        if self.gone {
            return Ok(true);
        }
        if self.trust_ns != 0 {
            return Ok(false);
        }
        let mut present = repair::participants(site.endpoint, site.lock, site.slot()).await?;
        present.retain(|p| p.record.mode == Mode::Shared);
        let none_held = present.iter().all(|p| p.record.phase != Phase::Held);
        let is_sure = present.is_empty() || (none_held && self.none_held);
        let all_watched = present.len() <= WATCHED_MAX;
        self.none_held = none_held;
        self.watched = present.iter().map(|p| p.endpoint).take(WATCHED_MAX).collect();
        // A holder that is watched may hold as long as it likes, but it may have left.
        self.trust_ns = match none_held || !all_watched {
            _ if !E::LOOKS_AROUND_CHEAPLY => TRUST_FAR_NS,
            true => TRUST_AGAIN_NS,
            false => self.second_look.wait_ns(),
        };
        if E::WATCHES_MEMORY {
            self.step_ns = self.trust_ns;
        }
        Ok(is_sure)
    }

    /// What it carries from one look at the word to the next, as a number.
    pub(super) fn survivor(&self) -> u64 {
        let flags = u64::from(self.none_held) | u64::from(self.gone) << 1;
        let trust = self.trust_ns << 2 ^ flags;
        self.watched.iter().fold(trust, |sum, peer| sum.rotate_left(7) ^ peer.bits())
    }

    pub(super) fn interval(&self) -> Nanos {
        self.trust_ns.min(self.step_ns)
    }

    pub(super) fn woken<E: WideAtomics>(&mut self, woken: Woken) {
        match woken {
            Woken::Elapsed => {
                self.trust_ns = self.trust_ns.saturating_sub(self.step_ns);
            }
            Woken::PeerGone(_) => self.gone = true,
            // A reader left: look anew for those that are still there, but not at once.
            Woken::Changed | Woken::Mail if E::WATCHES_MEMORY => {
                (self.trust_ns, self.step_ns) = (fresh_ns::<E>(), fresh_ns::<E>());
                self.second_look = SecondLook::new();
                self.none_held = false;
            }
            Woken::Changed | Woken::Mail => {}
        }
    }
}

/// How long readers are trusted that nothing is known of.
const fn fresh_ns<E: WideAtomics>() -> Nanos {
    if E::LOOKS_AROUND_CHEAPLY { TRUST_NS } else { TRUST_FAR_NS }
}
