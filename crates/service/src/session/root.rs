//! A session: opened, and ended with the last that keeps it.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farlock_fabric::{ConnectError, Connection as _};

use super::progress::{self, Tether};
use super::state::{Handle, Root};
use crate::{RegionOptions, SessionError};

/// How often a region may be removed just before a session is attached to it.
const REMOVED_MAX: u32 = 100;

/// A connection to a region. Clones are the same session; it ends with its last clone, lock,
/// request and guard.
#[derive(Clone)]
pub struct Session {
    pub(crate) root: Arc<Root>,
}

impl Drop for Root {
    fn drop(&mut self) {
        // A forked child has no such thread, and must not touch what its parent's threads lock.
        if self.hub.is_forked() {
            return;
        }
        self.hub.close();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            progress::stay_awake(|| thread.is_finished());
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Root {
    /// For how long the session lives at least, whatever becomes of its server, if it has one.
    pub(crate) fn valid_for(&self) -> Option<Duration> {
        self.hub.region.valid_for()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.root.hub.is_forked() {
            self.root.hub.forget(&self.name);
        }
    }
}

impl Session {
    /// Opens a session in a region, which is created where it is missing.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn open(options: &RegionOptions) -> Result<Self, SessionError> {
        Self::open_as(options, Tether::Free)
    }

    /// Opens a session in the region [`DEFAULT_REGION`](crate::DEFAULT_REGION) of a server,
    /// `host:port`, over TCP. [`RegionOptions::of_server`] names others.
    ///
    /// Everything is as in a session of this host, with these differences. A verb is a round trip,
    /// for which the first async acquisition of a name blocks its thread too. When the connection
    /// ends, or the server, and neither is back before the lease ends, the session has ended and
    /// what it held is lost.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn connect(server: impl Into<String>) -> Result<Self, SessionError> {
        Self::open(&RegionOptions::of_server(server))
    }

    /// The same, but its guards have tethers, by which children keep what is held from others when
    /// this process dies: see [`Guard::tether`](crate::Guard::tether). `farlock lock` uses it for
    /// its command.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn open_tethered(options: &RegionOptions) -> Result<Self, SessionError> {
        Self::open_as(options, Tether::Tied)
    }

    /// Whether this is a child of the process that opened it.
    pub(crate) fn is_forked(&self) -> bool {
        self.root.hub.is_forked()
    }

    fn open_as(options: &RegionOptions, tether: Tether) -> Result<Self, SessionError> {
        let mut times = 0;
        let (hub, thread) = loop {
            match progress::start(options.connect()?, tether) {
                // The region was removed in between: there is another one by now.
                Err(SessionError::Connect(ConnectError::Stale)) if times < REMOVED_MAX => {
                    times += 1;
                }
                started => break started?,
            }
        };
        let (thread, options) = (Some(thread), options.clone());
        let (stores, spreads) = (Mutex::default(), Mutex::default());
        Ok(Self { root: Arc::new(Root { hub, thread, options, stores, spreads }) })
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("region", &self.root.hub.region.name())
            .finish_non_exhaustive()
    }
}
