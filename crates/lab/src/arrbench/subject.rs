//! A range lock as the threads of a measurement see it.

use farlock_local::{Range, RawRangeLock, RawRangeRwLock};

/// A lock as threads see it, whether it has readers or not.
pub(super) trait Subject: Sync {
    /// A held range.
    type Token<'a>
    where
        Self: 'a;

    /// Waits for a range.
    fn take(&self, range: Range, shared: bool) -> Self::Token<'_>;
    /// Gives it back.
    fn give<'a>(&'a self, token: Self::Token<'a>);
}

/// A lock that has no readers: who only reads excludes others all the same.
#[derive(Default)]
pub(super) struct Exclusive<L>(pub L);

impl<L: RawRangeLock> Subject for Exclusive<L> {
    type Token<'a>
        = L::Token
    where
        Self: 'a;

    fn take(&self, range: Range, _: bool) -> L::Token {
        self.0.lock(range)
    }

    fn give(&self, token: L::Token) {
        self.0.unlock(token);
    }
}

/// A lock of readers and writers.
#[derive(Default)]
pub(super) struct Both<L>(pub L);

impl<L: RawRangeRwLock> Subject for Both<L> {
    type Token<'a>
        = L::Token
    where
        Self: 'a;

    fn take(&self, range: Range, shared: bool) -> L::Token {
        if shared { self.0.lock_shared(range) } else { self.0.lock(range) }
    }

    fn give(&self, token: L::Token) {
        self.0.unlock(token);
    }
}
