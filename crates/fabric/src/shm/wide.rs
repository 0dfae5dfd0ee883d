//! A 16-byte word that is compared and exchanged whole, and read in halves.
//!
//! The exchange compiles to one locked instruction in place: `portable-atomic` chooses its
//! implementation at run time by an indirect call where the build does not promise the
//! instruction, and that call costs as much as everything else in an uncontended verb. It remains
//! the judge of whether the processor has the instruction, and the implementation elsewhere.
#![allow(unsafe_code)]

use portable_atomic::AtomicU128;

use super::primitive::{AtomicU64, Ordering, point};

#[cfg(target_endian = "big")]
compile_error!("a 128-bit word has its low half first: little-endian machines only");

/// A 16-byte word that is compared and exchanged whole: what the 128-bit atomics of shared memory
/// are made of. A program can have private ones, to measure what the processor itself takes.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct Wide {
    /// The low half.
    pub(super) low: AtomicU64,
    /// The high half.
    pub(super) high: AtomicU64,
}

/// Whether 16-byte words can be used by several processes here. Asked once, before any is.
pub(super) fn is_supported() -> bool {
    AtomicU128::is_lock_free()
}

impl Wide {
    /// A word of this value.
    ///
    /// # Panics
    /// If this processor cannot exchange 16 bytes at once.
    pub fn new(word: u128) -> Self {
        assert!(is_supported(), "this processor exchanges 16 bytes at once");
        Self { low: AtomicU64::new(word as u64), high: AtomicU64::new((word >> 64) as u64) }
    }

    /// Both halves, not at one moment.
    #[inline(always)]
    pub(super) fn load_torn(&self) -> u128 {
        let low = self.low.load(Ordering::Relaxed);
        u128::from(low) | u128::from(self.high.load(Ordering::Relaxed)) << 64
    }

    /// If the word is `old` it becomes `new`; otherwise returns what it is. Sequentially
    /// consistent.
    ///
    /// # Errors
    /// The word as it is, if it is not `old`.
    // `is_supported` has answered yes: every `Wide` lies in a mapped region or was made by `new`.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn compare_exchange(&self, old: u128, new: u128) -> Result<(), u128> {
        point();
        let (low, high): (u64, u64);
        let equal: u8;
        // SAFETY: `self` is 16 bytes on a 16-byte boundary that are valid for atomic writes, and
        // the processor has the instruction, because opening a region asks for it first. The
        // compiler keeps `rbx` for itself, so it is swapped away and back; the other operands are
        // fixed so that none of them is `rbx`.
        unsafe {
            std::arch::asm!(
                "xchg rsi, rbx",
                "lock cmpxchg16b xmmword ptr [rdi]",
                "sete cl",
                "mov rbx, rsi",
                in("rdi") std::ptr::from_ref(self),
                inout("rsi") new as u64 => _,
                in("rcx") (new >> 64) as u64,
                lateout("cl") equal,
                inout("rax") old as u64 => low,
                inout("rdx") (old >> 64) as u64 => high,
                options(nostack),
            );
        }
        if equal != 0 { Ok(()) } else { Err(u128::from(low) | u128::from(high) << 64) }
    }

    /// If the word is `old` it becomes `new`; otherwise returns what it is. Sequentially
    /// consistent.
    ///
    /// # Errors
    /// The word as it is, if it is not `old`.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    pub fn compare_exchange(&self, old: u128, new: u128) -> Result<(), u128> {
        point();
        // SAFETY: a `Wide` has the size and alignment of an `AtomicU128`, both are changed only by
        // atomic instructions, and `is_supported` has ruled out a lock beside the word.
        let whole = unsafe { &*std::ptr::from_ref(self).cast::<AtomicU128>() };
        whole.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_word_is_compared_and_exchanged() {
        assert!(is_supported());
        let word = Wide::new(2 << 64 | 1);
        let old = 2 << 64 | 1;
        assert_eq!(word.load_torn(), old);
        assert_eq!(word.compare_exchange(1, 7), Err(old));
        assert_eq!(word.compare_exchange(2 << 64, 7), Err(old));
        assert_eq!(word.compare_exchange(old, 9 << 64 | 8), Ok(()));
        assert_eq!((word.low.into_inner(), word.high.into_inner()), (8, 9));
    }

    #[test]
    fn additions_by_exchange_lose_nothing() {
        let word = Wide::new(u64::MAX.into());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let mut old = word.load_torn();
                        while let Err(now) = word.compare_exchange(old, old + 1) {
                            old = now;
                        }
                    }
                });
            }
        });
        assert_eq!(word.load_torn(), u128::from(u64::MAX) + 20_000);
    }
}
