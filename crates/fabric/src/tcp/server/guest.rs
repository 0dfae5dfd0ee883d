//! One client's connection, and its lanes' seats in the region.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::task::{Context, Poll, Waker};

use crate::addr::Slot;
use crate::endpoint::{Endpoint, Patience, Wait, WaitState, Woken};
use crate::shm::ShmEndpoint;
use crate::tcp::wire::{AHEAD_MAX, Framing, Watch, reply};

/// One client's connection.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) stream: TcpStream,
    /// What came and is not a whole frame yet.
    pub(super) input: Vec<u8>,
    /// Which region it uses, by its number, once it has said so.
    pub(super) region: Option<usize>,
    pub(super) seats: BTreeMap<u32, Seat>,
    /// Tells it from the others that had its number.
    pub(super) serial: u64,
    /// Whose tether it is, if it is one.
    pub(super) tether: Option<Tethered>,
    /// Its connection is over, and only tethers keep what it has.
    pub(super) is_away: bool,
}

/// A lane that has a tether: its guest's number and serial, and its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tethered {
    pub(super) guest: usize,
    pub(super) serial: u64,
    pub(super) lane: u32,
}

impl Guest {
    /// Whether it has said what it wants.
    pub(super) fn is_settled(&self) -> bool {
        self.region.is_some() || self.tether.is_some()
    }
}

/// One lane's endpoint.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) endpoint: ShmEndpoint,
    pub(super) waits: Vec<Waiting>,
    /// By slot, how many messages it was sent and has not taken.
    ahead: Box<[u8]>,
    /// How many tethers keep it.
    tethers: u32,
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
        let Watch { word, mail, peers } = &self.watch;
        let (word, mail) = (*word, *mail);
        Wait { word, mail, peers, interval: None, patience: Patience::PARK }
    }

    /// Looks; if it has not ended, everything is armed that can end it.
    pub(super) fn poll(&mut self, endpoint: &ShmEndpoint) -> Option<Woken> {
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
    pub(super) fn is_over(&self, endpoint: &ShmEndpoint) -> bool {
        endpoint.has_ended(&self.as_wait())
    }

    pub(super) fn end(&mut self, endpoint: &ShmEndpoint) {
        endpoint.end_wait(&mut self.state);
    }
}

impl Seat {
    pub(super) fn new(endpoint: ShmEndpoint) -> Self {
        let ahead = vec![0; usize::from(endpoint.slots())].into();
        Self { endpoint, waits: Vec::new(), ahead, tethers: 0 }
    }

    /// Sends what lies in the mailboxes, as far as the client takes it. Returns whether anything
    /// lay there.
    pub(super) fn forward_mail(&mut self, number: u32, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        for slot in (0..self.endpoint.slots()).map(Slot) {
            while self.ahead[usize::from(slot.0)] < AHEAD_MAX
                && let Some(envelope) = self.endpoint.receive(slot)
            {
                self.ahead[usize::from(slot.0)] += 1;
                let mut frame = Framing::new(out, reply::MAIL);
                frame.u32(number).u8(slot.0).id(envelope.from).u64(envelope.arrived);
                frame.words(&envelope.message).end();
            }
        }
        out.len() > before
    }

    pub(super) fn is_tethered(&self) -> bool {
        self.tethers > 0
    }

    pub(super) fn add_tether(&mut self) {
        self.tethers += 1;
    }

    /// A tether is gone. Returns whether it was the last.
    pub(super) fn lose_tether(&mut self) -> bool {
        self.tethers = self.tethers.saturating_sub(1);
        self.tethers == 0
    }

    /// Whether the client has as many messages of this slot as it takes ahead.
    pub(super) fn is_full(&self, slot: Slot) -> bool {
        self.ahead.get(usize::from(slot.0)).is_some_and(|ahead| *ahead >= AHEAD_MAX)
    }

    /// The client took a message. `false`: it had none.
    pub(super) fn took(&mut self, slot: Slot) -> bool {
        match self.ahead.get_mut(usize::from(slot.0)) {
            Some(ahead) if *ahead > 0 => {
                *ahead -= 1;
                true
            }
            _ => false,
        }
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
    pub(super) fn flush(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        /// What an idle connection keeps.
        const KEPT_BYTES: usize = 4096;
        while self.left() > 0 {
            match stream.write(&self.bytes[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_full = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.is_full = false;
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.sent = 0;
        Ok(())
    }
}

/// What has come, into `into`; `None` at the end of the stream.
pub(super) fn read_some(mut stream: &TcpStream, into: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match stream.read(into) {
            Ok(0) => return Ok(None),
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Some(0)),
            Err(error) => return Err(error),
        }
    }
}
