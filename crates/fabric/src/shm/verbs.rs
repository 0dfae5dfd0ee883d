//! Verbs, executed at once on this processor.
//!
//! Every effect stands behind the endpoint's gate, and every change is followed by a look at the
//! bell of its line. An uncontended 128-bit compare-and-swap with a good hint is one locked
//! instruction and some ten others.

use super::endpoint::Shm;
use super::keeper::PlaceKeeper;
use super::layout::LINE;
use super::parking::{Bell, UNHEARD, bucket_of};
use super::primitive::{AtomicU64, Ordering, Planted, boot_time, fence, planted};
use super::table::Vital;
use super::wide::Wide;
use crate::addr::{Addr, Mailbox};
use crate::error::Fault;
use crate::verb::{
    Message, Verb, WORDS_MAX, masked_cas64, masked_cas128, masked_faa64, masked_faa128,
};

impl<K: PlaceKeeper> Shm<K> {
    #[inline(always)]
    pub(super) fn execute(&self, verb: Verb<'_>) -> Result<(), Fault> {
        match verb {
            Verb::Read { addr, words } => self.read(addr, words),
            Verb::Write { addr, data } => self.write(addr, data),
            Verb::Cas64 { addr, compare, swap } => self.cas64(addr, compare, swap),
            Verb::Faa64 { addr, add } => self.faa64(addr, add),
            Verb::MaskedCas64 { addr, op } => {
                self.change64(addr, move |old| masked_cas64(old, &op))
            }
            Verb::MaskedFaa64 { addr, op } => {
                self.change64(addr, move |old| Some(masked_faa64(old, &op)))
            }
            Verb::MaskedCas128 { addr, op, hint } => {
                self.change128(addr, hint, move |old| masked_cas128(old, &op).unwrap_or(old))
            }
            Verb::MaskedFaa128 { addr, op, hint } => {
                self.change128(addr, hint, move |old| masked_faa128(old, &op))
            }
            Verb::Send { to, message } => self.send_now(to, &message),
        }
    }

    /// Changes a 16-byte word by a function of its old value. Even where the function changes
    /// nothing the old value is confirmed by an exchange: two halves loaded are not one word.
    ///
    /// The function is handed to the slow half by value. By reference its operands would have to
    /// lie in memory on the fast path too, and reloading them there costs more than the exchange.
    #[inline(always)]
    fn change128(
        &self,
        addr: Addr,
        hint: Option<u128>,
        new: impl Fn(u128) -> u128 + Copy,
    ) -> Result<(), Fault> {
        let (word, at) = self.wide(addr)?;
        let bell = self.bell(at);
        let expected = hint.unwrap_or_else(|| word.load_torn());
        let old = self.within(|| match word.compare_exchange(expected, new(expected)) {
            Ok(()) => expected,
            Err(actual) => exchange_until_equal(word, actual, new),
        })?;
        self.keeper.has_changed(old);
        bell.ring();
        // Last, so that a caller that asks for it at once finds it in a register.
        self.results.set_old(old);
        Ok(())
    }

    #[inline(always)]
    fn cas64(&self, addr: Addr, compare: u64, swap: u64) -> Result<(), Fault> {
        let (word, at) = self.word(addr)?;
        let bell = self.bell(at);
        let swapped = self
            .within(|| word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst))?;
        match swapped {
            Ok(old) => {
                self.keeper.has_changed(old.into());
                bell.ring();
                self.results.set_old(old.into());
            }
            Err(old) => self.results.set_old(old.into()),
        }
        Ok(())
    }

    #[inline(always)]
    fn faa64(&self, addr: Addr, add: u64) -> Result<(), Fault> {
        let (word, at) = self.word(addr)?;
        let bell = self.bell(at);
        let old = self.within(|| word.fetch_add(add, Ordering::SeqCst))?;
        self.keeper.has_changed(old.into());
        bell.ring();
        self.results.set_old(old.into());
        Ok(())
    }

    /// Changes an 8-byte word by a function of its old value, `None` for no change.
    #[inline(always)]
    fn change64(&self, addr: Addr, new: impl Fn(u64) -> Option<u64>) -> Result<(), Fault> {
        let (word, at) = self.word(addr)?;
        let bell = self.bell(at);
        // Lock-free: a turn is repeated only because another endpoint's verb took effect.
        let swapped =
            self.within(|| word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, &new))?;
        match swapped {
            Ok(old) => {
                self.keeper.has_changed(old.into());
                bell.ring();
                self.results.set_old(old.into());
            }
            Err(old) => self.results.set_old(old.into()),
        }
        Ok(())
    }

    #[inline(always)]
    fn read(&self, addr: Addr, words: u16) -> Result<(), Fault> {
        let count = usize::from(words);
        if count == 0 || count > WORDS_MAX {
            return Err(Fault::OutOfBounds);
        }
        let found = self.readable(addr, count)?;
        self.control().admit()?;
        self.show_before_loads();
        self.results.keep(count, |index| found[index].load(Ordering::SeqCst));
        Ok(())
    }

    /// What was published takes effect before what is loaded from here on. Verbs that change memory
    /// see to that themselves: by a locked instruction.
    #[inline(always)]
    pub(super) fn show_before_loads(&self) {
        if self.has_published.take() {
            fence(Ordering::SeqCst);
        }
    }

    #[inline(always)]
    fn write(&self, addr: Addr, data: &[u64]) -> Result<(), Fault> {
        if data.is_empty() || data.len() > WORDS_MAX {
            return Err(Fault::OutOfBounds);
        }
        let (words, at) = self.words(addr, data.len())?;
        self.within(|| store_all(words, data))?;
        self.keeper.has_changed(0);
        // Every line has a bell of its own.
        let last = at + (data.len() as u64 - 1) * 8;
        for line in at / LINE as u64..=last / LINE as u64 {
            self.bell(line * LINE as u64).ring();
        }
        Ok(())
    }

    fn send_now(&self, to: Mailbox, message: &Message) -> Result<(), Fault> {
        let mapping = self.region.mapping();
        // A slot that no endpoint has is a mistake of the caller; nobody at an index is a death.
        if to.slot.0 >= mapping.layout().capacity.slots {
            return Err(Fault::OutOfBounds);
        }
        let receiver = to.endpoint;
        let mailbox = mapping.mailbox(receiver.index, to.slot).ok_or(Fault::PeerGone)?;
        self.control().admit()?;
        // An orphan executes nothing any more, so it receives nothing either.
        if !matches!(mapping.vital(receiver), Vital::Alive | Vital::Leased) {
            return Err(Fault::PeerGone);
        }
        let from = self.identity();
        self.within(|| mailbox.send(receiver.incarnation, from, message, boot_time))??;
        self.keeper.has_changed(0);
        mailbox.bell.ring();
        Ok(())
    }

    /// Runs the effect of a verb, unless the gate is closed. A lane says meanwhile that it is
    /// within a verb, for its keeper's end; an endpoint of its own thread never ends within one.
    #[inline(always)]
    fn within<R>(&self, effect: impl FnOnce() -> R) -> Result<R, Fault> {
        if K::IS_ELSEWHERE {
            return self.control().within(effect);
        }
        self.control().admit()?;
        self.keeper.will_change();
        Ok(effect())
    }

    /// What to ring after a change of a word this many bytes into the heap. Found before the
    /// change: what is loaded after a locked instruction waits for it.
    #[inline(always)]
    fn bell(&self, at: u64) -> &Bell {
        let bell = &self.bucket(bucket_of(at)).bell;
        if planted(Planted::RingsEarly) {
            bell.ring();
            return &UNHEARD;
        }
        bell
    }
}

/// The slow half of a 16-byte change. Lock-free: a turn is repeated only because another
/// endpoint's verb took effect.
#[cold]
#[inline(never)]
fn exchange_until_equal(word: &Wide, actual: u128, new: impl Fn(u128) -> u128) -> u128 {
    let mut expected = actual;
    while let Err(actual) = word.compare_exchange(expected, new(expected)) {
        expected = actual;
    }
    expected
}

/// Stores words in order, such that a later look at a bell sees everything.
#[inline(always)]
fn store_all(words: &[AtomicU64], data: &[u64]) {
    if let ([word], [value]) = (words, data) {
        word.store(*value, Ordering::SeqCst);
        return;
    }
    for (word, value) in words.iter().zip(data) {
        word.store(*value, Ordering::Release);
    }
    fence(Ordering::SeqCst);
}
