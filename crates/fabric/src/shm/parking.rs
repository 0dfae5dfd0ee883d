//! Sleeping and waking: futexes in the region, and a bell that costs nothing while nobody sleeps.
//!
//! A [`Bell`] is one word: bit 0 says that somebody may sleep on it, the rest counts how often it
//! rang. A sleeper arms it, looks once more at what it waits for, and sleeps while the word is as
//! it armed it. Whoever changes what others wait for looks at the bell afterwards and rings only
//! if it is armed; ringing disarms it. Both sides are sequentially consistent, so one of them sees
//! the other: either the sleeper sees the change, or the changer sees the armed bell.
//!
//! A sleeper that dies leaves an armed bell behind: the next change rings once in vain and
//! disarms it. A changer that dies between its change and its ring leaves sleepers behind: every
//! sleep ends after [`LOOK_AGAIN_NS`] at the latest.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{ClockId, futex};
use rustix::time::Timespec;

use super::layout::BUCKETS;
use crate::endpoint::Nanos;

/// The longest sleep: 2 s. It bounds what two crashes at the worst moment, or a suspended machine,
/// can cost a sleeper.
pub(super) const LOOK_AGAIN_NS: Nanos = 2_000_000_000;

/// How long a sleeper sleeps that cannot sleep on everything it waits for: 1 ms.
pub(super) const POLL_NS: Nanos = 1_000_000;

const ARMED: u32 = 1;
const RING: u32 = 2;

/// Somebody may sleep on this word.
#[repr(transparent)]
#[derive(Debug, Default)]
pub(super) struct Bell(AtomicU32);

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
        (!is_used).then(|| Source::of(self.inner.bell.futex(), word))
    }

    /// A park returns: what happened until now has ended it.
    pub(super) fn hear(&self) {
        let word = self.inner.bell.futex().load(Ordering::SeqCst);
        self.inner.heard.store(Bell::rings(word), Ordering::Relaxed);
    }
}

/// A futex to sleep on while it has a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    futex: NonNull<AtomicU32>,
    expected: u32,
}

impl Source {
    /// The futex must outlive its last [`sleep`]: an endpoint keeps its region mapped, and whoever
    /// parks keeps its unparker.
    pub(super) fn of(futex: &AtomicU32, expected: u32) -> Self {
        Self { futex: NonNull::from(futex), expected }
    }
}

/// Wakes everybody who sleeps on this word.
pub(super) fn wake_all(word: &AtomicU32) {
    // The only failures are bad arguments; a wake of nobody is none.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Sleeps until one of the futexes is woken or differs from its value, or `timeout` nanoseconds
/// have passed, or for no reason. Returns whether it slept on all of them until the time was over.
pub(super) fn sleep(sources: &[Source], timeout: Nanos) -> bool {
    /// What the kernel takes at once.
    const SOURCES_MAX: usize = 128;
    let shown = &sources[..sources.len().min(SOURCES_MAX)];
    let timeout = if shown.len() < sources.len() { timeout.min(POLL_NS) } else { timeout };
    let deadline = nanos_of(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
        .saturating_add(timeout);
    let mut waits = [futex::Wait::new(); SOURCES_MAX];
    for (wait, source) in waits.iter_mut().zip(shown) {
        wait.val = source.expected.into();
        wait.uaddr = futex::WaitPtr::new(source.futex.as_ptr().cast());
        wait.flags = futex::WaitFlags::SIZE_U32;
    }
    let slept = futex::waitv(
        &waits[..shown.len()],
        futex::WaitvFlags::empty(),
        Some(&timespec_of(deadline)),
        ClockId::Monotonic,
    );
    if slept == Err(rustix::io::Errno::NOSYS) {
        sleep_on_first(sources, timeout.min(POLL_NS));
    }
    slept == Err(rustix::io::Errno::TIMEDOUT) && shown.len() == sources.len()
}

/// What kernels before 5.16 can do: sleep on one futex, and look at the others once in a while.
#[cold]
fn sleep_on_first(sources: &[Source], timeout: Nanos) {
    let Some(first) = sources.first() else { return };
    // SAFETY: `Source::of` demands that the futex outlives this sleep.
    let word = unsafe { first.futex.as_ref() };
    let _ = futex::wait(word, futex::Flags::empty(), first.expected, Some(&timespec_of(timeout)));
}

/// The boot-time clock, in nanoseconds: it counts suspended time.
pub(super) fn boot_time() -> Nanos {
    nanos_of(rustix::time::clock_gettime(rustix::time::ClockId::Boottime))
}

fn nanos_of(time: Timespec) -> Nanos {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn timespec_of(nanos: Nanos) -> Timespec {
    let tv_sec = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: (nanos % 1_000_000_000) as _ }
}

#[cfg(test)]
mod tests {
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
