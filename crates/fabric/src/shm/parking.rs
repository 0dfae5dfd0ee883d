//! Sleeping and waking: futexes in the region, and a bell that costs nothing while nobody sleeps.
//!
//! A [`Bell`] is one word: bit 0 says that a thread may sleep on it, the rest counts how often it
//! rang. A sleeper arms it, looks once more at what it waits for, and sleeps while the word is as
//! it armed it. A changer changes what others wait for, looks at the bell afterwards, and rings
//! only if it is armed; ringing disarms it. Both sides are sequentially consistent, so one of them
//! sees the other: either the sleeper sees the change, or the changer sees the armed bell.
//!
//! A sleeper that dies leaves an armed bell behind: the next change rings once in vain and
//! disarms it. A changer that dies between its change and its ring leaves sleepers behind: every
//! sleep ends after [`LOOK_AGAIN_NS`](super::times::LOOK_AGAIN_NS) at the latest.

use std::sync::Arc;

use super::primitive::{AtomicU32, Ordering, Planted, Source, planted, wake_all};

const ARMED: u32 = 1;
const RING: u32 = 2;

/// A word on which threads may sleep.
#[repr(transparent)]
#[derive(Debug, Default)]
pub(super) struct Bell(AtomicU32);

/// A bell on which nobody sleeps.
pub(super) static UNHEARD: Bell = Bell(AtomicU32::new(0));

impl Bell {
    /// The word a sleeper sleeps on.
    pub(super) fn futex(&self) -> &AtomicU32 {
        &self.0
    }

    /// Announces a sleeper. Returns the value to sleep on.
    pub(super) fn arm(&self) -> u32 {
        self.0.fetch_or(ARMED, Ordering::SeqCst) | ARMED
    }

    /// Wakes everybody who sleeps on it. Call after a sequentially consistent change of what they
    /// wait for.
    #[inline(always)]
    pub(super) fn ring(&self) {
        if self.0.load(Ordering::SeqCst) & ARMED != 0 {
            self.ring_armed();
        }
    }

    #[cold]
    #[inline(never)]
    fn ring_armed(&self) {
        if planted(Planted::WakesFirst) {
            wake_all(&self.0);
            return self.advance();
        }
        self.advance();
        wake_all(&self.0);
    }

    /// Rings whether or not anybody sleeps, so that who is about to sleep will not.
    pub(super) fn ring_always(&self) {
        self.advance();
        wake_all(&self.0);
    }

    fn advance(&self) {
        let disarmed = |word: u32| Some((word & !ARMED).wrapping_add(RING));
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, disarmed);
    }

    /// How often it rang, wrapping.
    fn rings(word: u32) -> u32 {
        word & !ARMED
    }
}

/// Buckets of the parking table; a power of two.
pub(super) const BUCKETS: usize = 512;

/// A bell of the parking table, shared by the addresses that hash to it. A line of its own.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(super) struct Bucket {
    pub(super) bell: Bell,
}

/// Which bucket the words of a cache line belong to; `offset` is in bytes from any line boundary.
#[inline(always)]
pub(super) fn bucket_of(offset: u64) -> usize {
    let line = offset >> 6;
    (line ^ line >> BUCKETS.ilog2()) as usize & (BUCKETS - 1)
}

/// Makes a parked thread of this process return from [`Park::park`](crate::Park::park) or
/// [`park_all`](super::park_all). Every endpoint has one; a thread that parks for several endpoints
/// makes one for itself. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Unparker {
    inner: Arc<Unparking>,
}

#[derive(Debug, Default)]
struct Unparking {
    bell: Bell,
    /// How often the bell had rung when the thread last returned from a park.
    heard: AtomicU32,
}

impl Unparker {
    /// One for a thread that parks by it. One thread at a time does.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the current park by this unparker, or the next one.
    pub fn unpark(&self) {
        self.inner.bell.ring_always();
    }

    /// What to sleep on until it is used; `None` where it was used since the last park.
    pub(super) fn listen(&self) -> Option<Source> {
        let word = self.inner.bell.arm();
        let is_used = Bell::rings(word) != self.inner.heard.load(Ordering::Relaxed);
        (!is_used || planted(Planted::UnparkForgotten))
            .then(|| Source::of(self.inner.bell.futex(), word))
    }

    /// A park returns: what happened until now has ended it.
    pub(super) fn hear(&self) {
        let word = self.inner.bell.futex().load(Ordering::SeqCst);
        self.inner.heard.store(Bell::rings(word), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::primitive::{boot_time, sleep};
    use super::super::times::LOOK_AGAIN_NS;
    use super::*;

    #[test]
    fn an_armed_bell_wakes_its_sleeper() {
        let bell = Bell::default();
        std::thread::scope(|scope| {
            let (bell, armed) = (&bell, bell.arm());
            let slept = move || sleep(&[Source::of(bell.futex(), armed)], LOOK_AGAIN_NS);
            let slept = scope.spawn(slept);
            bell.ring();
            assert!(!slept.join().unwrap(), "it was woken");
        });
        assert_eq!(bell.0.load(Ordering::Relaxed) & ARMED, 0);
    }

    #[test]
    fn a_bell_that_rang_lets_nobody_sleep() {
        let bell = Bell::default();
        let armed = bell.arm();
        bell.ring();
        let before = boot_time();
        sleep(&[Source::of(bell.futex(), armed)], LOOK_AGAIN_NS);
        assert!(boot_time() - before < LOOK_AGAIN_NS / 2);
    }

    #[test]
    fn a_dead_sleeper_costs_one_vain_ring() {
        let bell = Bell::default();
        bell.arm();
        bell.ring();
        let word = bell.0.load(Ordering::Relaxed);
        bell.ring();
        assert_eq!(bell.0.load(Ordering::Relaxed), word, "the second ring found it disarmed");
    }

    #[test]
    fn a_sleep_ends_by_itself() {
        let bell = Bell::default();
        let armed = bell.arm();
        let before = boot_time();
        assert!(sleep(&[Source::of(bell.futex(), armed)], 2_000_000));
        assert!(boot_time() - before >= 2_000_000);
    }

    #[test]
    fn neighbouring_lines_have_different_bells() {
        let buckets: std::collections::BTreeSet<_> =
            (0..BUCKETS as u64).map(|line| bucket_of(line * 64)).collect();
        assert_eq!(buckets.len(), BUCKETS);
        assert_eq!(bucket_of(8), bucket_of(56), "one line, one bell");
    }
}
