//! What one client does, whatever fabric its table lies on: asks for ranges, holds each, is judged.

use std::ops::Range;

use farlock_fabric::Nanos;
use farlock_locks::Mode;

use super::asked::Asked;
use super::trace::Trace;
use crate::ranges::Holds;

/// A table of ranges, as one client uses it.
#[allow(async_fn_in_trait, reason = "a client stays on its thread")]
pub(super) trait Table {
    /// What a holder has in its hands.
    type Held<'t>
    where
        Self: 't;

    /// The time, in nanoseconds.
    fn now(&self) -> Nanos;

    /// Acquires these units.
    async fn acquire(&self, mode: Mode, units: Range<u32>) -> anyhow::Result<Self::Held<'_>>;

    /// Releases them.
    async fn release<'t>(&'t self, held: Self::Held<'t>) -> anyhow::Result<()>;

    /// Uses what is held.
    async fn work(&self) {}
}

/// Asks for all of this, one range after the other.
pub(super) async fn use_table(
    table: &impl Table,
    asks: impl Iterator<Item = Asked>,
    holds: Holds<'_>,
) -> anyhow::Result<Trace> {
    let mut trace = Trace::default();
    for (step, mode, units) in asks {
        let begun = table.now();
        let held = table.acquire(mode, units.clone()).await?;
        let granted = table.now();
        let meets = holds.enter(&units, mode);
        table.work().await;
        let meets = holds.leave(&units, mode) | meets;
        table.release(held).await?;
        trace.has(step, begun..granted, table.now(), meets);
    }
    Ok(trace)
}
