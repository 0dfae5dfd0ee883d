//! How long a sleeper sleeps at most.

use crate::endpoint::Nanos;

/// The longest sleep: 2 s. It bounds what two crashes at the worst moment, or a suspended machine,
/// can cost a sleeper.
pub(crate) const LOOK_AGAIN_NS: Nanos = 2_000_000_000;

/// How long a sleeper sleeps that cannot sleep on everything it waits for: 1 ms.
pub(super) const POLL_NS: Nanos = 1_000_000;
