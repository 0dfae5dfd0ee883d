//! Keeping a value in a store for as long as this process runs.

use std::time::Duration;

use farlock::{Kv, KvError};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::refused::{for_people, has_a_value, is_put, refused};
use crate::cli::inherited::Inherited;
use crate::cli::job::die_of;
use crate::cli::report::{Exit, Failure};

/// What tells it to end, unless its caller ignores that.
const ENDS: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// After so long it sees that it was told.
const LOOK: Duration = Duration::from_millis(250);

/// The signals that end it, kept for it. To be made before this process has threads.
pub(super) struct Told(SignalFd);

impl Told {
    pub(super) fn listen() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::system("signals cannot be awaited", error);
        let inherited = Inherited::look().map_err(failed)?;
        let set: SigSet = ENDS.into_iter().filter(|signal| !inherited.keeps_out(*signal)).collect();
        set.thread_block().map_err(|error| failed(error.into()))?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        SignalFd::with_flags(&set, flags).map(Self).map_err(|error| failed(error.into()))
    }

    fn signal(&self) -> Option<Signal> {
        let info = self.0.read_signal().ok()??;
        i32::try_from(info.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok())
    }
}

/// Keeps a value until a signal comes, or another client changes the key. A new one: of a key that
/// has none.
pub(super) fn hold(
    store: Kv,
    (key, value): (&[u8], &[u8]),
    new: bool,
    told: &Told,
) -> Result<Exit, Failure> {
    match new {
        true => is_put(store.insert_ephemeral(key, value)?, || has_a_value(key))?,
        false => store.put_ephemeral(key, value)?,
    }
    let mut watch = store.watch(key)?;
    let mut is_ours = true;
    while is_ours {
        if let Some(signal) = told.signal() {
            drop((watch, store));
            return Ok(die_of(signal));
        }
        is_ours = match watch.next().within(LOOK).blocking() {
            Err(KvError::TimedOut { .. }) => true,
            // The first time it is told of its own.
            now => now?.as_deref() == Some(value),
        };
    }
    let what = format!("the key '{}' was changed by another client", for_people(key));
    Err(refused("key-changed", what, "`farlock kv get` prints what it has now"))
}
