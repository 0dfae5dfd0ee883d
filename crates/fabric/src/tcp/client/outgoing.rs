//! What a channel has to say, and how that is sent: by one thread at a time, which holds no mutex
//! meanwhile. What others say until then it sends next, in one go.

use std::io;
use std::mem::{replace, take};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pace::Pace;
use super::riding::Riding;
use crate::tcp::clock::boot_time;
use crate::tcp::stream::Stream;

/// How often one thread sends in a row what others have said while it sent.
const SENDS_MAX: u32 = 8;

#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) stream: Arc<Stream>,
    /// What was said and nobody sends yet.
    pub(super) bytes: Vec<u8>,
    /// How often the connection broke.
    pub(super) epoch: u32,
    pub(super) riding: Riding,
    pub(super) pace: Pace,
    is_being_sent: bool,
    /// Used in turn with `bytes`.
    spare: Vec<u8>,
}

/// What came of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flushed {
    /// Everything is sent, or is about to be by another thread.
    All,
    /// The system takes no more just now.
    InPart,
    /// Others say more and more: it is another thread's turn.
    HasMore,
}

impl Outgoing {
    pub(super) fn by(stream: Arc<Stream>) -> Self {
        Self {
            stream,
            bytes: Vec::new(),
            epoch: 0,
            riding: Riding::default(),
            pace: Pace::default(),
            is_being_sent: false,
            spare: Vec::new(),
        }
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.bytes.is_empty() || self.stream.has_unsent()
    }
}

fn lock(outgoing: &Mutex<Outgoing>) -> MutexGuard<'_, Outgoing> {
    // A panic under it leaves what was consistent before.
    outgoing.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends what was said, as far as the system takes it now. `is_broken` is asked under the mutex.
pub(super) fn flush(outgoing: &Mutex<Outgoing>, is_broken: impl Fn() -> bool) -> Flushed {
    let mut state = lock(outgoing);
    if state.is_being_sent {
        return Flushed::All;
    }
    for _ in 0..SENDS_MAX {
        if is_broken() || !state.has_unsent() {
            return Flushed::All;
        }
        let spare = take(&mut state.spare);
        let mut said = replace(&mut state.bytes, spare);
        let (stream, epoch) = (Arc::clone(&state.stream), state.epoch);
        state.pace.sends(boot_time);
        state.is_being_sent = true;
        drop(state);
        let sent = send(&stream, &said);
        state = lock(outgoing);
        state.is_being_sent = false;
        // Of a connection that broke everything is said again.
        let sent = if state.epoch == epoch { sent } else { Ok(said.len()) };
        match sent {
            Ok(count) if count == said.len() => {
                said.clear();
                state.spare = said;
                if stream.has_unsent() {
                    return Flushed::InPart;
                }
            }
            Ok(count) => {
                said.drain(..count);
                said.append(&mut state.bytes);
                state.bytes = said;
                return Flushed::InPart;
            }
            // The reader finds out as well, and tells all.
            Err(_) => return Flushed::All,
        }
    }
    if state.has_unsent() { Flushed::HasMore } else { Flushed::All }
}

/// How many of these bytes the system takes now.
fn send(stream: &Stream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.send(&bytes[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(sent),
            Err(error) => return Err(error),
        }
    }
    match stream.push() {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(sent),
    }
}
