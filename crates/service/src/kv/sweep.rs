//! Freeing what has ended.

use farlock_fabric::Nanos;
use farlock_locks::Token;

use super::Kv;
use super::error::KvError;
use super::part::Part;
use super::scan::Pages;
use super::value::Stored;
use super::wish::{Live, Wish};

/// A handle that finds the store full goes through all of it at most so often, where little has
/// ended: it takes long where much is stored.
const SWEEP_AGAIN_NS: Nanos = 10_000_000_000;

/// More than that is not little.
const LITTLE: u64 = 100;

impl Kv {
    /// Frees the memory of values that have ended, by their time or with their owner, and says how
    /// many there were. Readers never saw them; the memory of one that nobody sweeps comes back
    /// with the next change of its key, or when the store is full.
    ///
    /// # Errors
    /// See [`KvError`]; some may have been freed. Damaged pairs are passed over.
    pub fn sweep(&self) -> Result<u64, KvError> {
        self.all_parts().try_fold(0, |freed, part| {
            let part = part?;
            Ok(freed + part.block(part.sweep())?)
        })
    }
}

impl Part {
    async fn sweep(&self) -> Result<u64, KvError> {
        let (mut freed, mut pages) = (0, Pages::of_all(self.hub.choice.index));
        while let Some(pairs) = pages.next(self).await? {
            for (key, bytes) in pairs.into_iter().flatten() {
                let Some(stored) = Stored::decode(&bytes) else { continue };
                let has_ended = stored.data(|_| false).is_some()
                    && stored.data(|term| self.has_ended(term)).is_none();
                if has_ended {
                    freed += u64::from(self.free(&key, stored.token).await?);
                }
            }
        }
        Ok(freed)
    }

    /// Frees what a key has if it has ended, but for this token. It may have got another value
    /// meanwhile.
    async fn free(&self, key: &[u8], token: Option<Token>) -> Result<bool, KvError> {
        let freed = self.change(key, token, |old: Option<Live<'_>>| {
            Ok(match old {
                None => Wish::Remove(true),
                Some(_) => Wish::Leave(false),
            })
        });
        match freed.await {
            // It has another token by now, or is damaged: that is nothing of this one's.
            Err(KvError::Fenced { .. } | KvError::StaleToken { .. } | KvError::Corrupt) => {
                Ok(false)
            }
            // There is no room to say that its token stays.
            Err(KvError::Full { .. }) if token.is_some() => Ok(false),
            freed => freed,
        }
    }

    /// The store is full: frees what has ended, unless that was tried just now. `Err`: it stays so.
    #[cold]
    pub(super) async fn sweep_once_full(&self, error: KvError) -> Result<(), KvError> {
        let now = self.now();
        let is_recent = |at: Nanos| now.saturating_sub(at) < SWEEP_AGAIN_NS;
        if self.swept_at.get().is_some_and(is_recent) {
            return Err(error);
        }
        // What keeps its token needs a little itself, and may find the store full again.
        self.swept_at.set(Some(now));
        let freed = self.sweep().await?;
        self.swept_at.set((freed <= LITTLE).then_some(now));
        if freed == 0 { Err(error) } else { Ok(()) }
    }
}
