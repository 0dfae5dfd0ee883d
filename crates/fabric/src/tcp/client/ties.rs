//! Tethers: connections of their own, each of which keeps a lane's endpoint alive in the processes
//! that have it. They end with their server, and the next one is asked for others.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::connection::Tether;

/// The tethers of a channel's lanes.
#[derive(Debug, Default)]
pub(super) struct Ties(Mutex<HashMap<u32, Tether>>);

impl Ties {
    pub(super) fn all(&self) -> MutexGuard<'_, HashMap<u32, Tether>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(&self, lane: u32) -> Option<Tether> {
        self.all().get(&lane).cloned()
    }

    /// The lane is over.
    pub(super) fn cut(&self, lane: u32) {
        self.all().remove(&lane);
    }
}
