//! How a worker asks its session: for locks and for ranges in the same ways.

use std::future::IntoFuture;
use std::time::Duration;

use farlock::AcquireError;
use farlock::session::{Guard, RangeGuard, RangeRequest, RangesGuard, RangesRequest, Request};
use tokio::runtime::Runtime;

use super::super::log::{Patience, Refusal};
use super::draw::Draw;

/// What can be asked for.
pub(super) trait Asked: IntoFuture<Output = Result<Self::Held, AcquireError>> {
    /// What is held then.
    type Held;

    /// It is given up after so long.
    fn within(self, limit: Duration) -> Self;

    /// It is not waited for.
    fn at_once(self) -> Self;

    /// This thread waits for it.
    fn blocking(self) -> Result<Self::Held, AcquireError>;
}

macro_rules! asked {
    ($request:ident, $guard:ident) => {
        impl Asked for $request {
            type Held = $guard;

            fn within(self, limit: Duration) -> Self {
                self.within(limit)
            }

            fn at_once(self) -> Self {
                self.at_once()
            }

            fn blocking(self) -> Result<$guard, AcquireError> {
                self.blocking()
            }
        }
    };
}

asked!(Request, Guard);
asked!(RangeRequest, RangeGuard);
asked!(RangesRequest, RangesGuard);

/// Acquires, or says why not: a refusal, or an error that nothing should have.
pub(super) fn ask<R: Asked>(
    executor: &Runtime,
    request: R,
    draw: Draw,
) -> Result<R::Held, anyhow::Result<Refusal>> {
    let granted = match draw.patience {
        Patience::Endless if draw.awaited => executor.block_on(request.into_future()),
        Patience::Endless => request.blocking(),
        Patience::Try => request.at_once().blocking(),
        Patience::For(nanos) => request.within(Duration::from_nanos(nanos)).blocking(),
        Patience::UntilDropped => {
            let limited = async { tokio::time::timeout(draw.drop_after, request).await };
            match executor.block_on(limited) {
                Ok(granted) => granted,
                Err(_) => return Err(Ok(Refusal::Dropped)),
            }
        }
    };
    granted.map_err(|error| match error {
        AcquireError::Busy { .. } => Ok(Refusal::Busy),
        AcquireError::TimedOut { .. } => Ok(Refusal::TimedOut),
        other => Err(other.into()),
    })
}
