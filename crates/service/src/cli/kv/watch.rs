//! Printing what becomes of a key.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use farlock::{Kv, KvError};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::lines::Line;
use crate::cli::report::{Failure, printed};

/// After so long it is seen that the reader of the lines has gone.
const LOOK: Duration = Duration::from_millis(500);

/// Waits a little for the store, which is not there, but no longer than this since the watch began.
/// Returns whether what will be printed has a reader.
pub(super) fn nap(begun: Instant, wait: Option<Duration>) -> Result<bool, Failure> {
    const NAP: Duration = Duration::from_millis(50);
    if let Some(limit) = wait.filter(|wait| begun.elapsed() >= *wait) {
        return Err(KvError::TimedOut { limit }.into());
    }
    std::thread::sleep(NAP);
    Ok(has_reader())
}

/// Prints a line for each change of a key, until so many are printed, or nothing has changed for so
/// long, or nobody reads them any more.
pub(super) fn watch(
    store: &Kv,
    key: &[u8],
    wait: Option<Duration>,
    count: Option<u64>,
) -> Result<(), Failure> {
    let mut watch = store.watch(key)?;
    let (mut printed_lines, mut is_first) = (0, true);
    while count.is_none_or(|count| printed_lines < count) && has_reader() {
        let Some(value) = changed(&mut watch, wait)? else { return Ok(()) };
        // A key that is absent at first has not changed.
        if value.is_none() && std::mem::take(&mut is_first) {
            continue;
        }
        is_first = false;
        let mut line = Vec::new();
        Line { key: key.to_vec(), value, ..Line::default() }.write(&mut line);
        printed(io::stdout().write_all(&line))?;
        printed_lines += 1;
    }
    Ok(())
}

/// What the key is after the next change; `None`: nobody reads it.
fn changed(
    watch: &mut farlock::kv::Watch,
    wait: Option<Duration>,
) -> Result<Option<Option<Vec<u8>>>, Failure> {
    let begun = Instant::now();
    loop {
        let left = wait.map(|wait| wait.saturating_sub(begun.elapsed()));
        let limit = left.map_or(LOOK, |left| left.min(LOOK));
        match watch.next().within(limit).blocking() {
            Ok(value) => return Ok(Some(value)),
            Err(KvError::TimedOut { .. }) => match wait.filter(|wait| begun.elapsed() >= *wait) {
                Some(limit) => return Err(KvError::TimedOut { limit }.into()),
                None if has_reader() => {}
                None => return Ok(None),
            },
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether what is printed can be read, as far as that can be told.
fn has_reader() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let gone = PollFlags::ERR | PollFlags::HUP;
    poll(&mut fds, Some(&at_once)).is_err() || !fds[0].revents().intersects(gone)
}
