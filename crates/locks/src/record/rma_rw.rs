//! RMA-RW: a queue of writers and two counts of readers, readers first unless writers wait (Schmid,
//! Besta, Hoefler: High-Performance Distributed RMA Locks, HPDC'16), for one machine's worth of
//! counters, as ShiftLock (FAST'25, section 5) measures it.
#![doc = include_str!("../../../../docs/protocols/rma-rw.md")]

use farlock_fabric::word::Field;
use farlock_fabric::{Addr, Endpoint, Mailbox, MaskedCas, Nanos, Verb, Wait, WideAtomics, word};

use super::letter::{self, Letter, Subject};
use crate::prelude::*;

word! {
    /// The word. It is free with as many readers departed as arrived.
    pub struct RmaWord: u128 {
        /// The last writer in line: a packed mailbox, or nobody.
        TAIL tail: 40,
        /// Unused.
        SPARE spare: 24,
        /// Readers that came since the counts were reset; with [`WRITERS`] it is the writers' turn.
        ARRIVED arrived: 32,
        /// Readers that left since then.
        DEPARTED departed: 32,
    }
}

word! {
    /// The upper half of the word.
    struct Readers: u64 {
        /// Readers that came, and perhaps [`WRITERS`].
        ARRIVED arrived: 32,
        /// Readers that left.
        DEPARTED departed: 32,
    }
}

/// What the writers add to the readers that came, so that no more come in.
pub const WRITERS: u64 = 1 << 31;

/// Writers in a row before readers get their turn.
const WRITERS_MAX: u16 = 16;
/// Readers before they look whether a writer waits.
const READERS_MAX: u32 = 4_000;
/// How often a client that waits looks at the counts, in nanoseconds: that of ShiftLock's artifact.
const POLL_NS: Nanos = 1_862;

impl Readers {
    /// The counts of a lock's word.
    fn of(word: RmaWord) -> Self {
        Self((word.0 >> 64) as u64)
    }

    /// Readers inside, or [`WRITERS`] and more.
    fn inside(self) -> u64 {
        self.arrived() - self.departed()
    }

    /// Whether none is inside or looking whether it may come in.
    fn are_gone(self) -> bool {
        self.arrived() % WRITERS == self.departed()
    }

    /// What takes the readers that have left off both counts, whatever others come and leave
    /// meanwhile, and ends the writers' turn if `writers` says so.
    fn reset(self, writers: bool) -> u64 {
        let turn = if writers { WRITERS } else { 0 };
        let off = Self::new()
            .with(Self::ARRIVED, self.departed() + turn)
            .with(Self::DEPARTED, self.departed());
        // As many have arrived at least, so that nothing is borrowed across the fields.
        off.0.wrapping_neg()
    }
}

/// A reader-writer lock with a queue of writers and counts of readers.
#[derive(Clone, Debug)]
pub struct RmaRw {
    /// T_W: after so many writers in a row readers get their turn.
    pub writers_max: u16,
    /// T_R: after so many readers it is looked whether a writer waits.
    pub readers_max: u32,
}

impl Default for RmaRw {
    fn default() -> Self {
        Self { writers_max: WRITERS_MAX, readers_max: READERS_MAX }
    }
}

/// How many writers in a row have held the lock, with the one that has this grant; 0 of readers.
pub type Streak = u16;

impl<E: Endpoint> Protocol<'_, E, RmaRw> {
    /// The half of the word with the counts.
    fn counts(self) -> Addr {
        self.lock.plus(8)
    }

    async fn read_counts(self) -> Outcome<Readers> {
        Ok(Readers(self.read_at(self.counts()).await?))
    }

    async fn add_to_counts(self, add: u64) -> Outcome<Readers> {
        self.endpoint.faa64(self.counts(), add).await?;
        Ok(Readers(self.endpoint.old() as u64))
    }

    /// The writers' turn begins: keeps readers out and waits until those inside have left.
    async fn keep_readers_out(self) -> Outcome<()> {
        self.add_to_counts(Readers::ARRIVED.place(WRITERS) as u64).await?;
        loop {
            let seen = self.read_counts().await?;
            if seen.are_gone() {
                return Ok(());
            }
            self.endpoint.checkpoint(&[seen.0]);
            let word = Some((self.counts(), seen.0));
            let interval = (!E::WATCHES_MEMORY).then_some(POLL_NS);
            self.endpoint.wait(Wait { word, interval, ..Wait::default() }).await;
        }
    }

    /// The writers' turn ends.
    async fn let_readers_in(self) -> Outcome<()> {
        let seen = self.read_counts().await?;
        self.add_to_counts(seen.reset(true)).await?;
        Ok(())
    }

    /// The readers' turn begins anew: those that have left are taken off both counts. Whether there
    /// were any, and nobody else did or came or left meanwhile: of two readers that look at the
    /// same time only one may.
    async fn begin_anew(self) -> Outcome<bool> {
        let seen = self.read_counts().await?;
        if seen.departed() == 0 {
            return Ok(false);
        }
        let swap = seen.0.wrapping_add(seen.reset(false));
        self.endpoint.cas64(self.counts(), seen.0, swap).await?;
        Ok(self.endpoint.old() as u64 == seen.0)
    }

    /// In line behind the writer that `old` names, or first.
    async fn wait_exclusive(self, old: RmaWord) -> Outcome<Streak> {
        if old.tail() != 0 {
            self.publish(Phase::Waiting, Mode::Exclusive, 0);
            letter::write(&self, Mailbox::from_bits(old.tail()), Subject::Writer, 0).await?;
            loop {
                let letter = letter::read(&self, &[1, self.successor_bits()]).await?;
                match letter.subject {
                    Subject::Granted => return Ok((letter.count as Streak).saturating_add(1)),
                    Subject::ModeChanged => break,
                    _ => self.set_successor(Some(letter.from)),
                }
            }
        }
        self.keep_readers_out().await?;
        Ok(1)
    }

    /// A reader that was counted, and found `old`, leaves again, and comes back when it may.
    async fn wait_shared(self, mut old: Readers) -> Outcome<Streak> {
        self.publish(Phase::Waiting, Mode::Shared, 0);
        while old.arrived() >= self.rules.readers_max.into() {
            self.endpoint.checkpoint(&[old.0]);
            let mut may_come = false;
            if old.arrived() == u64::from(self.rules.readers_max) {
                self.endpoint.read64(self.lock).await?;
                if RmaWord(self.endpoint.old()).tail() == 0 {
                    may_come = self.begin_anew().await?;
                }
            }
            let leaves = Readers::new().with(Readers::ARRIVED, 1).0.wrapping_neg();
            self.add_to_counts(leaves).await?;
            if !may_come {
                self.await_turn().await?;
            }
            old = self.add_to_counts(Readers::new().with(Readers::ARRIVED, 1).0).await?;
        }
        Ok(0)
    }

    /// Waits until readers may come in: the counts were reset, or nobody is there who will.
    async fn await_turn(self) -> Outcome<()> {
        loop {
            let seen = RmaWord(self.read128().await?);
            let readers = Readers::of(seen);
            let (arrived, all) = (readers.arrived(), u64::from(self.rules.readers_max));
            let turn_over = arrived == all && readers.departed() > 0;
            if arrived < all || (turn_over && seen.tail() == 0) {
                return Ok(());
            }
            self.endpoint.checkpoint(&[seen.0 as u64, readers.0]);
            // Writers in their turn, a reader that looks whether a writer waits, and readers inside
            // will change the counts; that a writer leaves shows in the tail alone.
            let word = match turn_over {
                true => (self.lock, seen.0 as u64),
                false => (self.counts(), readers.0),
            };
            let wait = Wait { word: Some(word), interval: Some(POLL_NS), ..Wait::default() };
            self.endpoint.wait(wait).await;
        }
    }
}

impl LockKind for RmaRw {
    const BYTES: u64 = 16;
    const SHARES: bool = true;
    const FIELDS: &'static [Field] = RmaWord::FIELDS;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    /// `writers=COUNT`: T_W; `readers=COUNT`: T_R.
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        match name {
            "writers" => Some(Setting::count(&mut self.writers_max, 1..=u16::MAX)),
            "readers" => Some(Setting::count(&mut self.readers_max, 1..=u16::MAX.into())),
            _ => None,
        }
    }

    fn promises(&self) -> Promises {
        let proof = Proof { larger: &["writers=2:readers=3"], ..Proof::PLAIN };
        Promises { outlives_clients: false, order: Order::FIFO, proof, ..Promises::EXCLUSION }
    }
}

impl<E: WideAtomics> Lock<E> for RmaRw {
    type Want = Mode;
    type Grant = Streak;

    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        match mode {
            Mode::Exclusive => {
                let op = MaskedCas {
                    swap: RmaWord::TAIL.place(site.me.bits()) as u64,
                    swap_mask: RmaWord::TAIL.mask() as u64,
                    ..MaskedCas::default()
                };
                Verb::MaskedCas64 { addr: site.lock, op }
            }
            Mode::Shared => {
                let add = Readers::new().with(Readers::ARRIVED, 1).0;
                Verb::Faa64 { addr: site.by(self).counts(), add }
            }
        }
    }

    /// A writer always has more to do: the readers.
    fn opened(&self, _: &Site<'_, E>, mode: Mode, old: u128) -> Option<Streak> {
        let few = Readers(old as u64).arrived() < self.readers_max.into();
        (mode == Mode::Shared && few).then_some(0)
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Outcome<Streak> {
        match mode {
            Mode::Exclusive => site.by(self).wait_exclusive(RmaWord(old)).await,
            Mode::Shared => site.by(self).wait_shared(Readers(old as u64)).await,
        }
    }

    fn closing(&self, site: &Site<'_, E>, mode: Mode, _: Streak) -> Option<Verb<'static>> {
        let add = Readers::new().with(Readers::DEPARTED, 1).0;
        let leaves = Verb::Faa64 { addr: site.by(self).counts(), add };
        (mode == Mode::Shared).then_some(leaves)
    }

    fn closed(&self, _: &Site<'_, E>, _: Mode, _: Streak, _: u128) -> bool {
        true
    }

    /// A writer lets readers in if it is their turn or nobody is behind it, and passes the lock on.
    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        _: Mode,
        streak: Streak,
        _: Option<u128>,
    ) -> Outcome<()> {
        while let Some(letter) = letter::receive(site) {
            site.set_successor(Some(letter.from));
        }
        let mut turn_over = streak >= self.writers_max;
        if turn_over || site.successor().is_none() {
            turn_over = true;
            site.by(self).let_readers_in().await?;
        }
        if site.successor().is_none() {
            if site.cas64(site.me.bits(), 0).await? == site.me.bits() {
                return Ok(());
            }
            let Letter { from, .. } = letter::read(site, &[2]).await?;
            site.set_successor(Some(from));
        }
        let successor = site.successor().expect("it is known by now");
        site.set_successor(None);
        let subject = if turn_over { Subject::ModeChanged } else { Subject::Granted };
        letter::write(site, successor, subject, streak.into()).await
    }

    /// A writer takes the lock with its counts if they are as last seen and nobody is there; a
    /// reader is counted if the counts are as last seen and it may come in.
    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        let seen = seen.unwrap_or(0);
        Some(match mode {
            Mode::Exclusive => {
                let word = RmaWord(seen);
                let taken = word
                    .with(RmaWord::TAIL, site.me.bits())
                    .with(RmaWord::ARRIVED, word.arrived() + WRITERS);
                let op = MaskedCas {
                    compare: seen,
                    compare_mask: u128::MAX,
                    swap: taken.0,
                    swap_mask: u128::MAX,
                };
                Verb::MaskedCas128 { addr: site.lock, op, hint: None }
            }
            Mode::Shared => {
                let readers = Readers(seen as u64);
                let left = readers.0.wrapping_add(readers.reset(false));
                let swap = left.wrapping_add(Readers::new().with(Readers::ARRIVED, 1).0);
                Verb::Cas64 { addr: site.by(self).counts(), compare: readers.0, swap }
            }
        })
    }

    fn tried(&self, _: &Site<'_, E>, mode: Mode, seen: Option<u128>, old: u128) -> Tried<Streak> {
        let busy = match mode {
            Mode::Exclusive => {
                let word = RmaWord(old);
                word.tail() != 0 || word.arrived() != word.departed()
            }
            Mode::Shared => Readers(old as u64).inside() >= self.readers_max.into(),
        };
        match busy {
            true => Tried::Busy,
            false if old != seen.unwrap_or(0) => Tried::Again(old),
            false => Tried::Granted(Streak::from(mode == Mode::Exclusive)),
        }
    }
}
