//! One client's connection, and its lanes' seats in the region.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, Waker};

use rustix::net::RecvFlags;

use crate::addr::Slot;
use crate::endpoint::{Endpoint, Nanos, Patience, Wait, WaitState, Woken};
use crate::shm::serving::LeasedEndpoint;
use crate::tcp::server::limits::Closed;
use crate::tcp::stream::Stream;
use crate::tcp::wire::{Framing, Watch, reply};

/// How many chains of a lane are answered again, if their answers were lost on the way. A lane has
/// few under way.
const CHAINS_KEPT: usize = 4;

/// One client's connection.
#[derive(Debug)]
pub(super) struct Guest {
    /// `None` while it is away.
    pub(super) stream: Option<Stream>,
    /// Its process, where that alone can tell that it has ended while it is away.
    pub(super) process: Option<OwnedFd>,
    /// What came and is not a whole frame yet.
    pub(super) input: Vec<u8>,
    /// Which region it uses, by its number, once it has said so.
    pub(super) region: Option<usize>,
    pub(super) seats: BTreeMap<u32, Seat>,
    /// Tells it from the others that had its number.
    pub(super) serial: u64,
    /// Whose tether it is, if it is one.
    pub(super) tether: Option<Tethered>,
    pub(super) lease: Tenure,
    /// Lanes of which the client, back again, has not said that they live.
    pub(super) unnamed: Vec<u32>,
    /// Until it has named them: whether it then lives by its connection. It may have given up the
    /// one by which it came, and come by another.
    pub(super) comes_back: Option<bool>,
    /// Whether it is a process of this home, whose number means the same here.
    pub(super) is_of_this_home: bool,
}

/// How long a client lives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenure {
    /// By what it is known when it comes back. Nobody's: 0.
    pub(super) secret: u128,
    /// Until when, on the boot clock, unless it is heard of.
    pub(super) until: Nanos,
    /// Whether it lives as long as its connection stands, and no longer, but for its tethers.
    pub(super) is_by_connection: bool,
}

/// A lane that has a tether: its guest's number and serial, its own, and what the tether has said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tethered {
    pub(super) guest: usize,
    pub(super) serial: u64,
    pub(super) lane: u32,
    pub(super) secret: u128,
}

impl Guest {
    /// Whether it has said what it wants.
    pub(super) fn is_settled(&self) -> bool {
        self.region.is_some() || self.tether.is_some()
    }

    /// From which address it has come, as far as this host is told.
    pub(super) fn address(&self) -> Option<String> {
        let address = self.stream.as_ref()?.tcp().peer_addr().ok()?;
        Some(address.ip().to_canonical().to_string())
    }

    /// From which port it has come.
    pub(super) fn port(&self) -> Option<u16> {
        Some(self.stream.as_ref()?.tcp().peer_addr().ok()?.port())
    }

    /// Whether its connection is over, and its lease or its tethers keep what it has.
    pub(super) fn is_away(&self) -> bool {
        self.stream.is_none()
    }

    /// Whether the end of its connection is its own. What stands between, also on this host, can
    /// close it too: `Auto` believes it of a process that is seen to be gone.
    pub(super) fn is_ended_by_connection(&self, closed: Closed) -> bool {
        match closed {
            Closed::Auto if self.seats.is_empty() => self.lease.is_by_connection,
            // One that comes back may have given this connection up, and come by another.
            Closed::Auto => self.comes_back.is_none() && self.is_seen_to_be_gone(),
            Closed::Death | Closed::Doubt => self.lease.is_by_connection,
        }
    }

    /// Whether its process is gone, though a child may have its connection, or a peer that does not
    /// tell its end.
    pub(super) fn is_seen_to_be_gone(&self) -> bool {
        let is_gone = |seat: &Seat| seat.endpoint.shown_process().is_gone();
        self.is_of_this_home && self.seats.values().next().is_some_and(is_gone)
    }

    /// Its process, to be watched for its end, unless that is seen already or cannot be.
    pub(super) fn living_process(&self) -> Option<OwnedFd> {
        let seat = self.seats.values().next().filter(|_| !self.is_seen_to_be_gone())?;
        seat.endpoint.shown_process().open()
    }

    /// Its lease begins anew.
    pub(super) fn renew(&mut self, until: Nanos) {
        self.lease.until = until;
        self.seats.values().for_each(|seat| seat.endpoint.lease_until(until));
    }

    /// Whether its connection keeps it: it stands.
    pub(super) fn is_kept(&self) -> bool {
        self.lease.is_by_connection && !self.is_away()
    }

    /// When something is due unless it is heard of: one that its connection keeps is to outlast
    /// this server by three quarters of this time at least, and others end. `None`: nothing is.
    pub(super) fn due_at(&self, lease: Nanos) -> Option<Nanos> {
        let is_timed = !self.lease.is_by_connection;
        self.region?;
        match self.is_kept() {
            true => Some(self.lease.until.saturating_sub(lease / 4 * 3)),
            false => is_timed.then_some(self.lease.until),
        }
    }
}

/// One lane's endpoint.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) endpoint: LeasedEndpoint,
    pub(super) waits: Vec<Waiting>,
    /// By slot, the number of the message that it is sent next.
    unsent: Box<[u64]>,
    /// The answers to its last chains, and the tickets of these.
    answers: VecDeque<(u32, Vec<u8>)>,
    /// How many tethers keep it.
    tethers: u32,
    /// Whether it had tethers when the last server ended, which may stand for processes that live.
    was_tied: bool,
}

/// A wait of a lane.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) key: u32,
    pub(super) watch: Watch,
    state: WaitState,
}

impl Waiting {
    pub(super) fn new(key: u32, watch: Watch) -> Self {
        Self { key, watch, state: WaitState::default() }
    }

    fn as_wait(&self) -> Wait<'_> {
        let Watch { word, ignoring, mail, ref peers } = self.watch;
        Wait { word, ignoring, mail, peers, interval: None, patience: Patience::PARK }
    }

    /// Looks; if it has not ended, everything is armed that can end it.
    pub(super) fn poll(&mut self, endpoint: &LeasedEndpoint) -> Option<Woken> {
        let mut state = self.state;
        let mut cx = Context::from_waker(Waker::noop());
        let polled = endpoint.poll_wait(&self.as_wait(), &mut state, &mut cx);
        self.state = state;
        match polled {
            Poll::Ready(woken) => Some(woken),
            Poll::Pending => None,
        }
    }

    /// Whether a look would end it. Arms nothing.
    pub(super) fn is_over(&self, endpoint: &LeasedEndpoint) -> bool {
        endpoint.has_ended(&self.as_wait())
    }

    pub(super) fn end(&mut self, endpoint: &LeasedEndpoint) {
        endpoint.end_wait(&mut self.state);
    }
}

impl Seat {
    pub(super) fn new(endpoint: LeasedEndpoint, was_tied: bool) -> Self {
        let unsent = (0..endpoint.slots()).map(|slot| endpoint.next_message(Slot(slot))).collect();
        let (waits, answers) = (Vec::new(), VecDeque::new());
        Self { endpoint, waits, unsent, answers, tethers: 0, was_tied }
    }

    /// A chain was executed, and answered so. That is too much to lie in the region: the next
    /// server does not know it.
    pub(super) fn has_answered(&mut self, ticket: u32, answer: &[u8]) {
        let is_full = self.answers.len() == CHAINS_KEPT;
        let mut kept = if is_full { self.answers.pop_front() } else { None }.unwrap_or_default();
        kept.0 = ticket;
        kept.1.clear();
        kept.1.extend_from_slice(answer);
        self.answers.push_back(kept);
    }

    /// How a chain was answered that has come again.
    pub(super) fn answer_to(&self, ticket: u32) -> Option<&[u8]> {
        let kept = self.answers.iter().find(|(kept, _)| *kept == ticket);
        kept.map(|(_, answer)| answer.as_slice())
    }

    /// Sends what lies in the mailboxes and was not sent. It lies there until the client says that
    /// it has taken it. Returns whether there was anything.
    pub(super) fn forward_mail(&mut self, number: u32, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        for slot in (0..self.endpoint.slots()).map(Slot) {
            let unsent = &mut self.unsent[usize::from(slot.0)];
            while let Some((message, envelope)) = self.endpoint.look_ahead(slot, *unsent) {
                *unsent = message + 1;
                let mut frame = Framing::new(out, reply::MAIL);
                frame.u32(number).u8(slot.0).u64(message);
                frame.id(envelope.from).u64(envelope.arrived);
                frame.words(&envelope.message).end();
            }
        }
        out.len() > before
    }

    pub(super) fn is_tethered(&self) -> bool {
        self.tethers > 0
    }

    /// Whether something may keep it of which the server cannot know.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.was_tied
    }

    /// Whatever kept it by the last server has a tether of this one, or is gone.
    pub(super) fn end_doubt(&mut self) {
        self.was_tied = false;
    }

    pub(super) fn add_tether(&mut self) {
        self.endpoint.note_tether();
        self.tethers += 1;
    }

    /// A tether is gone. Returns whether it was the last.
    pub(super) fn lose_tether(&mut self) -> bool {
        self.tethers = self.tethers.saturating_sub(1);
        self.tethers == 0
    }

    /// The client took the messages of a slot up to this one. `false`: it was not sent that.
    pub(super) fn took(&mut self, slot: Slot, message: u64) -> bool {
        let unsent = self.unsent.get(usize::from(slot.0)).copied().unwrap_or(0);
        if message >= unsent {
            return false;
        }
        self.take_before(slot, message + 1);
        true
    }

    /// The client is back, and takes this message next. What it was sent before is sent again.
    pub(super) fn resume(&mut self, slot: Slot, next: u64) {
        self.take_before(slot, next);
        if let Some(unsent) = self.unsent.get_mut(usize::from(slot.0)) {
            *unsent = self.endpoint.next_message(slot);
        }
    }

    fn take_before(&self, slot: Slot, message: u64) {
        while self.endpoint.next_message(slot) < message && self.endpoint.receive(slot).is_some() {}
    }

    /// Its waits are over, and nobody is told.
    pub(super) fn end_waits(&mut self) {
        self.waits.drain(..).for_each(|mut wait| wait.end(&self.endpoint));
    }
}

/// What is to be sent to a client.
#[derive(Debug, Default)]
pub(super) struct Out {
    pub(super) bytes: Vec<u8>,
    sent: usize,
    /// Whether it is among those to be flushed.
    pub(super) is_touched: bool,
    /// Whether the system takes no more for now.
    pub(super) is_full: bool,
}

impl Out {
    /// Bytes that are left to be sent.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Sends what the system takes now.
    pub(super) fn flush(&mut self, stream: &Stream) -> io::Result<()> {
        /// What an idle connection keeps.
        const KEPT_BYTES: usize = 4096;
        while self.left() > 0 {
            match stream.send(&self.bytes[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_full = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.sent = 0;
        let pushed = stream.push();
        self.is_full = pushed.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock);
        if self.is_full { Ok(()) } else { pushed }
    }
}

/// What has come, into `into`; `None` at the end of the stream.
pub(super) fn read_some(stream: &Stream, into: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match stream.take(into, RecvFlags::DONTWAIT) {
            Ok(taken) => return Ok(taken),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Some(0)),
            Err(error) => return Err(error),
        }
    }
}
