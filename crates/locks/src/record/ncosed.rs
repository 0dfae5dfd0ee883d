//! N-CoSED: compare-and-swap for writers, fetch-and-add for readers, and messages between those who
//! are in conflict (Narravula and others: High Performance Distributed Lock Management Services
//! using Network-based Remote Atomic Operations, CCGrid'07, as DSLR, SIGMOD'18, describes it).
#![doc = include_str!("../../../../docs/protocols/ncosed.md")]

use std::cell::RefCell;

use farlock_fabric::word::Field;
use farlock_fabric::{Endpoint, Mailbox, Nanos, Slot, Verb, Wait, word};

use super::letter::{self, Letter, Subject, mailbox_of, short_name};
use crate::prelude::*;

word! {
    /// The word (DSLR, figure 1, with the readers' releases). It is free without a tail and with as
    /// many releases as readers.
    pub struct CosedWord: u64 {
        /// Readers that came behind the tail.
        SHARED shared: 20,
        /// Readers that have left, of those before the writer whose turn is next.
        RELEASED released: 20,
        /// The last writer in line, or nobody: its endpoint's index, and its slot.
        TAIL tail: 24,
    }
}

/// So many releases without a writer in between are taken off both counts.
const RELEASED_MAX: u64 = 1 << 18;
/// How often a writer looks whether readers have left, in nanoseconds.
const POLL_NS: Nanos = 1_862;

impl CosedWord {
    /// Readers that hold the lock if no writer is in line.
    const fn inside(self) -> u64 {
        self.shared() - self.released()
    }

    /// This word when the writer `name` has got in line at its end.
    const fn followed_by(self, name: u64) -> Self {
        let released = if self.tail() == 0 { 0 } else { self.released() };
        Self::new().with(Self::TAIL, name).with(Self::RELEASED, released)
    }
}

/// What a writer remembers: how many readers' releases stand in the word, to be taken off before
/// the next readers come in. 0 of readers.
pub type Stale = u64;

/// Those in line behind a slot who have written to it.
#[derive(Clone, Copy, Debug)]
struct Behind {
    slot: Slot,
    letter: Letter,
}

/// A reader-writer lock with one queue, its conflicts settled by messages.
#[derive(Clone, Debug, Default)]
pub struct NCosed {
    /// Letters of those who are behind this client's slots.
    behind: RefCell<Vec<Behind>>,
}

impl NCosed {
    /// Those who have written to this slot so far, for loops that carry them on.
    fn known_behind(&self, slot: Slot) -> u64 {
        let behind = self.behind.borrow();
        let of_slot = behind.iter().filter(|behind| behind.slot == slot);
        of_slot.fold(0, |all, b| all.rotate_left(8) ^ b.letter.from.bits() ^ b.letter.count << 50)
    }
}

impl<E: Endpoint> Protocol<'_, E, NCosed> {
    /// Keeps a letter of a waiter behind this slot until it passes the lock on.
    fn keep(self, letter: Letter) {
        self.rules.behind.borrow_mut().push(Behind { slot: self.me.slot, letter });
    }

    /// The next letter of a waiter behind this slot.
    async fn next_behind(self, survivors: &[u64]) -> Outcome<Letter> {
        let kept = {
            let mut behind = self.rules.behind.borrow_mut();
            let first = behind.iter().position(|behind| behind.slot == self.me.slot);
            first.map(|first| behind.remove(first).letter)
        };
        match kept {
            Some(letter) => Ok(letter),
            None => letter::read(&self, survivors).await,
        }
    }

    /// Gets in line as a writer. Blind tries: each compares with what the last one found.
    async fn get_in_line(self, mut seen: CosedWord) -> Outcome<CosedWord> {
        loop {
            self.endpoint.checkpoint(&[seen.0]);
            let swap = seen.followed_by(short_name(self.me)).0;
            let old = CosedWord(self.cas64(seen.0, swap).await?);
            if old == seen {
                return Ok(seen);
            }
            seen = old;
        }
    }

    /// The lock is this slot's when the writer before it says so.
    async fn await_grant(self) -> Outcome<()> {
        loop {
            let known = self.rules.known_behind(self.me.slot);
            let letter = letter::read(&self, &[1, known]).await?;
            if letter.subject == Subject::Granted {
                return Ok(());
            }
            self.keep(letter);
        }
    }

    async fn wait_exclusive(self, seen: CosedWord) -> Outcome<Stale> {
        let before = self.get_in_line(seen).await?;
        self.publish(Phase::Waiting, Mode::Exclusive, 0);
        let readers = if before.tail() == 0 {
            before.inside()
        } else {
            let to = mailbox_of(self.endpoint, before.tail())?;
            letter::write(&self, to, Subject::Writer, before.shared()).await?;
            self.await_grant().await?;
            before.shared()
        };
        if readers > 0 {
            self.await_readers(readers).await?;
        }
        Ok(readers)
    }

    /// Waits until so many readers have left.
    async fn await_readers(self, readers: u64) -> Outcome<()> {
        loop {
            let seen = CosedWord(self.read().await?);
            if seen.released() == readers {
                return Ok(());
            }
            self.endpoint.checkpoint(&[seen.0]);
            let interval = (!E::WATCHES_MEMORY).then_some(POLL_NS);
            let word = Some((self.lock, seen.0));
            self.endpoint.wait(Wait { word, interval, ..Wait::default() }).await;
        }
    }

    async fn wait_shared(self, old: CosedWord) -> Outcome<Stale> {
        self.publish(Phase::Waiting, Mode::Shared, 0);
        let to = mailbox_of(self.endpoint, old.tail())?;
        letter::write(&self, to, Subject::Reader, 0).await?;
        self.await_grant().await?;
        Ok(0)
    }

    /// Passes the lock on to the readers behind this slot, and to the writer after them: they have
    /// written or are about to. `readers` is how many there are if no writer follows; else the
    /// writer says it.
    async fn pass_on(self, mut readers: Option<u64>) -> Outcome<()> {
        let (mut writer, mut granted) = (None, 0);
        while readers != Some(granted) {
            let writer_bits = writer.map_or(0, Mailbox::bits);
            let survivors = [2, readers.map_or(0, |r| r + 1), granted, writer_bits];
            let letter = self.next_behind(&survivors).await?;
            if letter.subject == Subject::Writer {
                (writer, readers) = (Some(letter.from), Some(letter.count));
            } else {
                granted += 1;
                letter::write(&self, letter.from, Subject::Granted, 0).await?;
            }
        }
        match writer {
            Some(writer) => letter::write(&self, writer, Subject::Granted, 0).await,
            None => Ok(()),
        }
    }

    /// The last writer in line leaves readers behind, or finds another writer behind it.
    async fn hand_over_exclusive(self, stale: Stale, found: CosedWord) -> Outcome<()> {
        let mut seen = found;
        while seen.tail() == short_name(self.me) {
            self.endpoint.checkpoint(&[seen.0]);
            let swap = CosedWord::new().with(CosedWord::SHARED, seen.shared());
            let old = CosedWord(self.cas64(seen.0, swap.0).await?);
            if old == seen {
                return self.pass_on(Some(seen.shared())).await;
            }
            seen = old;
        }
        if stale > 0 {
            let off = CosedWord::new().with(CosedWord::RELEASED, stale).0.wrapping_neg();
            self.endpoint.faa64(self.lock, off).await?;
        }
        self.pass_on(None).await
    }

    /// Many readers have come and gone without a writer: both counts begin anew.
    async fn wrap(self, found: CosedWord) -> Outcome<()> {
        let mut seen = found;
        while seen.tail() == 0 && seen.released() >= RELEASED_MAX {
            self.endpoint.checkpoint(&[seen.0]);
            let swap = CosedWord::new().with(CosedWord::SHARED, seen.inside());
            let old = CosedWord(self.cas64(seen.0, swap.0).await?);
            if old == seen {
                break;
            }
            seen = old;
        }
        Ok(())
    }
}

impl LockKind for NCosed {
    const BYTES: u64 = 8;
    const SHARES: bool = true;
    const FIELDS: &'static [Field] = CosedWord::FIELDS;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    fn promises(&self) -> Promises {
        Promises { outlives_clients: false, ..Promises::EXCLUSION }
    }

    fn near_wrap(&self, steps: u16) -> u128 {
        let count = RELEASED_MAX - u64::from(steps);
        CosedWord::new().with(CosedWord::SHARED, count).with(CosedWord::RELEASED, count).0.into()
    }
}

impl<E: Endpoint> Lock<E> for NCosed {
    type Want = Mode;
    type Grant = Stale;

    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        let addr = site.lock;
        match mode {
            Mode::Exclusive => {
                let swap = CosedWord::new().followed_by(short_name(site.me)).0;
                Verb::Cas64 { addr, compare: 0, swap }
            }
            Mode::Shared => {
                Verb::Faa64 { addr, add: CosedWord::new().with(CosedWord::SHARED, 1).0 }
            }
        }
    }

    fn opened(&self, _: &Site<'_, E>, mode: Mode, old: u128) -> Option<Stale> {
        let old = CosedWord(old as u64);
        let holds = match mode {
            Mode::Exclusive => old.0 == 0,
            Mode::Shared => old.tail() == 0,
        };
        holds.then_some(0)
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Outcome<Stale> {
        let old = CosedWord(old as u64);
        match mode {
            Mode::Exclusive => site.by(self).wait_exclusive(old).await,
            Mode::Shared => site.by(self).wait_shared(old).await,
        }
    }

    fn closing(&self, site: &Site<'_, E>, mode: Mode, stale: Stale) -> Option<Verb<'static>> {
        let addr = site.lock;
        Some(match mode {
            Mode::Exclusive => {
                let alone = CosedWord::new().with(CosedWord::TAIL, short_name(site.me));
                let compare = alone.with(CosedWord::RELEASED, stale).0;
                Verb::Cas64 { addr, compare, swap: 0 }
            }
            Mode::Shared => {
                Verb::Faa64 { addr, add: CosedWord::new().with(CosedWord::RELEASED, 1).0 }
            }
        })
    }

    fn closed(&self, site: &Site<'_, E>, mode: Mode, stale: Stale, old: u128) -> bool {
        let old = CosedWord(old as u64);
        match mode {
            Mode::Exclusive => {
                let mine = old.tail() == short_name(site.me) && old.shared() == 0;
                debug_assert!(!mine || old.released() == stale, "all before a writer have left");
                mine
            }
            Mode::Shared => old.tail() != 0 || old.released() + 1 < RELEASED_MAX,
        }
    }

    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        stale: Stale,
        old: Option<u128>,
    ) -> Outcome<()> {
        let found = CosedWord(old.expect("there was a closing verb") as u64);
        match mode {
            Mode::Exclusive => site.by(self).hand_over_exclusive(stale, found).await,
            Mode::Shared => {
                let left = found.with(CosedWord::RELEASED, found.released() + 1);
                site.by(self).wrap(left).await
            }
        }
    }

    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        let seen = CosedWord(seen.unwrap_or(0) as u64);
        let swap = match mode {
            Mode::Exclusive => seen.followed_by(short_name(site.me)),
            Mode::Shared => seen.with(CosedWord::SHARED, seen.shared() + 1),
        };
        Some(Verb::Cas64 { addr: site.lock, compare: seen.0, swap: swap.0 })
    }

    fn tried(&self, _: &Site<'_, E>, mode: Mode, seen: Option<u128>, old: u128) -> Tried<Stale> {
        let word = CosedWord(old as u64);
        match word.tail() != 0 || (mode == Mode::Exclusive && word.inside() > 0) {
            true => Tried::Busy,
            false if old != seen.unwrap_or(0) => Tried::Again(old),
            false => Tried::Granted(0),
        }
    }
}
