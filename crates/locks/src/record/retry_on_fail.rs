//! Retry on fail: compare-and-swap for writers, fetch-and-add for readers, and trying again
//! whatever the conflict (Chung and others, as DSLR, SIGMOD'18, section 6.1 measures it).
#![doc = include_str!("../../../../docs/protocols/retry-on-fail.md")]

use farlock_fabric::word::Field;
use farlock_fabric::{Endpoint, Verb, Wait, word};

use crate::prelude::*;

word! {
    /// The word (DSLR, figure 1). Zero is free.
    pub struct RetryWord: u64 {
        /// Readers that hold or await the lock.
        READERS readers: 32,
        /// The writer that holds it: its endpoint's index, and its slot.
        WRITER writer: 32,
    }
}

impl RetryWord {
    /// Who this slot is as a writer. An index is never zero.
    fn writer_at<E: Endpoint>(site: &Site<'_, E>) -> u64 {
        u64::from(site.me.endpoint.index) << 8 | u64::from(site.slot().0)
    }
}

/// A word with a writer and a count of readers.
#[derive(Clone, Copy, Debug, Default)]
pub struct RetryOnFail;

impl<E: Endpoint> Protocol<'_, E, RetryOnFail> {
    /// Waits for another word than `seen`. On shared memory, where trying costs the holder its
    /// cache line, the word is watched; elsewhere the next try comes at once.
    async fn pause(self, seen: RetryWord) {
        let interval = (!E::WATCHES_MEMORY).then_some(0);
        let word = Some((self.lock, seen.0));
        self.endpoint.wait(Wait { word, interval, ..Wait::default() }).await;
    }

    /// Compares and swaps until the word was free.
    async fn retry_exclusive(self, mut seen: RetryWord) -> Outcome<()> {
        let mine = RetryWord::new().with(RetryWord::WRITER, RetryWord::writer_at(&self));
        while seen.0 != 0 {
            self.endpoint.checkpoint(&[seen.0]);
            self.pause(seen).await;
            self.event(Event::Retried { lock: self.lock });
            seen = RetryWord(self.cas64(0, mine.0).await?);
        }
        Ok(())
    }

    /// Reads until no writer holds. The reader is counted already, so no other writer will.
    async fn retry_shared(self, mut seen: RetryWord) -> Outcome<()> {
        while seen.writer() != 0 {
            self.endpoint.checkpoint(&[seen.0]);
            self.pause(seen).await;
            self.event(Event::Retried { lock: self.lock });
            seen = RetryWord(self.read().await?);
        }
        Ok(())
    }
}

impl LockKind for RetryOnFail {
    const BYTES: u64 = 8;
    const SHARES: bool = true;
    const FIELDS: &'static [Field] = RetryWord::FIELDS;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    fn promises(&self) -> Promises {
        Promises { outlives_clients: false, ..Promises::EXCLUSION }
    }
}

impl<E: Endpoint> Lock<E> for RetryOnFail {
    type Want = Mode;
    type Grant = ();

    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        let (addr, writer) = (site.lock, RetryWord::writer_at(site));
        match mode {
            Mode::Exclusive => {
                let swap = RetryWord::new().with(RetryWord::WRITER, writer).0;
                Verb::Cas64 { addr, compare: 0, swap }
            }
            Mode::Shared => {
                Verb::Faa64 { addr, add: RetryWord::new().with(RetryWord::READERS, 1).0 }
            }
        }
    }

    fn opened(&self, _: &Site<'_, E>, mode: Mode, old: u128) -> Option<()> {
        let old = RetryWord(old as u64);
        let holds = match mode {
            Mode::Exclusive => old.0 == 0,
            Mode::Shared => old.writer() == 0,
        };
        holds.then_some(())
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Outcome<()> {
        let seen = RetryWord(old as u64);
        match mode {
            Mode::Exclusive => site.by(self).retry_exclusive(seen).await,
            Mode::Shared => site.by(self).retry_shared(seen).await,
        }
    }

    /// Readers count themselves while a writer holds, so it takes its name off by subtraction.
    fn closing(&self, site: &Site<'_, E>, mode: Mode, (): ()) -> Option<Verb<'static>> {
        let held = match mode {
            Mode::Exclusive => RetryWord::new().with(RetryWord::WRITER, RetryWord::writer_at(site)),
            Mode::Shared => RetryWord::new().with(RetryWord::READERS, 1),
        };
        Some(Verb::Faa64 { addr: site.lock, add: held.0.wrapping_neg() })
    }

    fn closed(&self, _: &Site<'_, E>, _: Mode, (): (), _: u128) -> bool {
        true
    }

    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        Some(match mode {
            Mode::Exclusive => self.opening(site, mode),
            Mode::Shared => {
                let seen = RetryWord(seen.unwrap_or(0) as u64);
                let swap = seen.with(RetryWord::READERS, seen.readers() + 1).0;
                Verb::Cas64 { addr: site.lock, compare: seen.0, swap }
            }
        })
    }
}
