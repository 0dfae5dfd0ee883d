//! Looking at a region without taking part in it.

use farlock_fabric::Connection as _;

use crate::connection::{Endpoint, Region};
use crate::error::SessionError;
use crate::inspect::{self, LockView};
use crate::region::RegionOptions;

/// Looks at the locks of a region: reads only, creates nothing, and disturbs nobody. It belongs to
/// one thread.
///
/// ```no_run
/// use farlock::{Observer, RegionOptions};
///
/// # fn main() -> Result<(), farlock::SessionError> {
/// for lock in Observer::open(&RegionOptions::for_user())?.locks()? {
///     println!("{}: {} holders and waiters", lock.name, lock.participants.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Observer {
    endpoint: Endpoint,
    region: Region,
}

impl Observer {
    /// Opens a region that is there.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn open(options: &RegionOptions) -> Result<Self, SessionError> {
        let region = options.observe()?;
        Ok(Self { endpoint: region.endpoint()?, region })
    }

    /// Every lock that the region remembers, with its holders and waiters now.
    ///
    /// # Errors
    /// [`SessionError::Directory`]; [`ConnectError::HungUp`](crate::ConnectError::HungUp) where its
    /// server went away.
    pub fn locks(&self) -> Result<Vec<LockView>, SessionError> {
        let seen = inspect::locks(&self.region, &self.endpoint);
        seen.map_err(|error| SessionError::of_names(&self.region, error))
    }
}
