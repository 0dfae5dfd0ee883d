//! One TCP connection to a server, shared by the lanes of a process.
//!
//! A lane writes what it has to say behind what others have said, and a waiter sends all of it at
//! once. Of those that wait one reads, for all: it leaves in each inbox what is for it.
//! When that one has what it waited for, another of them goes on reading.
//!
//! What a lane publishes takes effect before its later verbs, so it travels with them. Where none
//! follows, the channel's own thread sends it within [`LATE`].

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::bell::{Interrupt, Unparker};
use super::inbox::{Done, Inbox};
use crate::addr::{Addr, EndpointId, RegionId, Slot};
use crate::connection::Origin;
use crate::endpoint::{Envelope, Nanos};
use crate::error::Garbled;
use crate::shm::serving::Owner;
use crate::tcp::clock::{boot_id, boot_time};
use crate::tcp::silence::keep_alive;
use crate::tcp::wire::{Ended, Fields, Framing, next_frame, reply, take_end, take_woken};

/// How long what was published may lie before it is sent.
const LATE: Duration = Duration::from_millis(1);

/// The same where verbs follow each other closely.
const LATE_MAX: Duration = Duration::from_millis(4);

/// How long a verb waits for its end, before the connection is given up: a server executes it as
/// soon as it comes, so it is stopped, or out of reach.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Bytes taken from the system at once.
const READ_BYTES: usize = 64 << 10;

/// What the server says of the region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) origin: Origin,
    pub(super) heap: Addr,
    pub(super) heap_bytes: u64,
    pub(super) records: Addr,
    /// Places of endpoints that act.
    pub(super) acting: u16,
    /// All places.
    pub(super) all: u16,
    pub(super) slots: u8,
    /// A time on the server's clock, and one on the client's that was not later.
    clocks: (Nanos, Nanos),
}

impl Facts {
    pub(super) fn take(fields: &mut Fields<'_>, asked_at: Nanos) -> Result<Self, Garbled> {
        let origin = Origin { incarnation: fields.u16()?, first_count: fields.u64()? };
        let facts = Self {
            origin,
            heap: Addr::from_bits(fields.u64()?),
            heap_bytes: fields.u64()?,
            records: Addr::from_bits(fields.u64()?),
            acting: fields.u16()?,
            all: fields.u16()?,
            slots: fields.u8()?,
            clocks: same_time((fields.u64()?, fields.u128()?), asked_at),
        };
        let is_sound = facts.heap.region() != RegionId(0) && facts.slots > 0 && facts.all > 0;
        if is_sound { Ok(facts) } else { Err(Garbled("its facts are not those of a region")) }
    }

    /// Whether server and client read the same clock.
    pub(super) fn has_one_clock(&self) -> bool {
        self.clocks.0 == self.clocks.1
    }

    /// A time of the server on the client's clock: never later than it was.
    fn on_own_clock(&self, theirs: Nanos) -> Nanos {
        let (server, client) = self.clocks;
        (client as i64).wrapping_add(theirs.wrapping_sub(server) as i64).max(0) as Nanos
    }
}

/// A time that the server's clock had after the client asked for it, and a time of the client's
/// clock that was not later. Where both read the clock of one kernel, it is the same time.
fn same_time((theirs, boot): (Nanos, u128), asked_at: Nanos) -> (Nanos, Nanos) {
    let is_one_clock = boot == boot_id() && boot != 0 && (asked_at..=boot_time()).contains(&theirs);
    (theirs, if is_one_clock { theirs } else { asked_at })
}

#[derive(Debug)]
pub(super) struct Channel {
    stream: TcpStream,
    pub(super) server: String,
    pub(super) region: String,
    /// Whose it is.
    pub(super) owner: Owner,
    pub(super) facts: Facts,
    outgoing: Mutex<Outgoing>,
    incoming: Mutex<Incoming>,
    inboxes: Mutex<HashMap<u32, Arc<Inbox>>>,
    /// Waiters that do not read.
    sleepers: Mutex<Vec<Unparker>>,
    interrupt: Arc<Interrupt>,
    /// By index, the incarnation of the endpoint that lives there as far as was told; or 0.
    known: Box<[AtomicU16]>,
    pub(super) heap_bytes: AtomicU64,
    is_over: AtomicBool,
    is_gone: AtomicBool,
    numbers: AtomicU32,
    late: Arc<Late>,
}

#[derive(Debug, Default)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

/// What was read and is not complete yet.
#[derive(Debug)]
struct Incoming {
    bytes: Vec<u8>,
    filled: usize,
}

/// What wakes the thread that sends what would lie too long.
#[derive(Debug, Default)]
struct Late {
    is_due: AtomicBool,
    wants: Mutex<Wants>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Wants {
    flush: bool,
    end: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under one of these leaves what was consistent before.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channel {
    /// Over a stream whose greetings were exchanged; `rest` came behind them.
    pub(super) fn new(
        stream: TcpStream,
        (server, region): (String, String),
        owner: Owner,
        facts: Facts,
        rest: &[u8],
    ) -> io::Result<Arc<Self>> {
        stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
        keep_alive(&stream)?;
        let mut bytes = rest.to_vec();
        bytes.resize(rest.len() + READ_BYTES, 0);
        let channel = Arc::new(Self {
            stream,
            server,
            region,
            owner,
            facts,
            outgoing: Mutex::default(),
            incoming: Mutex::new(Incoming { bytes, filled: rest.len() }),
            inboxes: Mutex::default(),
            sleepers: Mutex::default(),
            interrupt: Arc::new(Interrupt::new()?),
            known: (0..=facts.all).map(|_| AtomicU16::new(0)).collect(),
            heap_bytes: AtomicU64::new(facts.heap_bytes),
            is_over: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            numbers: AtomicU32::new(0),
            late: Arc::default(),
        });
        // What came behind the greeting is not read again.
        let is_sound = channel.dispatch(&mut lock(&channel.incoming), &Unparker::default());
        is_sound.map_err(io::Error::other)?;
        let (weak, late) = (Arc::downgrade(&channel), Arc::clone(&channel.late));
        let thread = std::thread::Builder::new().name("farlock-tcp".to_owned());
        thread.spawn(move || send_what_lies(&weak, &late))?;
        Ok(channel)
    }

    /// A number that no lane and no call of this channel has had for long.
    pub(super) fn number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn enter(&self, number: u32, inbox: &Arc<Inbox>) {
        lock(&self.inboxes).insert(number, Arc::clone(inbox));
        if self.is_over() {
            inbox.put(None, |state| state.is_over = true);
        }
    }

    pub(super) fn leave(&self, number: u32) {
        lock(&self.inboxes).remove(&number);
    }

    /// Whether the connection is over: nothing will come any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Whether the server said that others find another region by this name.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::SeqCst) || self.is_over()
    }

    // Peers.

    pub(super) fn occupant(&self, index: u16) -> Option<EndpointId> {
        let known = self.known.get(usize::from(index))?;
        let incarnation = known.load(Ordering::SeqCst);
        (index != 0 && incarnation != 0).then_some(EndpointId { index, incarnation })
    }

    pub(super) fn occupied_from(&self, index: u16) -> Option<u16> {
        (index.max(1)..=self.facts.all).find(|index| self.occupant(*index).is_some())
    }

    // Sending.

    /// Writes frames behind what others have said. They are sent with the next flush.
    pub(super) fn say(&self, kind: u8, fill: impl FnOnce(&mut Framing<'_>)) {
        let mut outgoing = lock(&self.outgoing);
        let mut frame = Framing::new(&mut outgoing.bytes, kind);
        fill(&mut frame);
        frame.end();
    }

    /// What was said is to be sent soon, also without a flush.
    pub(super) fn flush_soon(&self) {
        if !self.late.is_due.swap(true, Ordering::SeqCst) {
            lock(&self.late.wants).flush = true;
            self.late.changed.notify_one();
        }
    }

    fn has_unsent(&self) -> bool {
        !lock(&self.outgoing).bytes.is_empty()
    }

    /// Sends what was said, as far as the system takes it now. Returns whether anything is left.
    pub(super) fn flush(&self) -> bool {
        let mut outgoing = lock(&self.outgoing);
        let Outgoing { bytes, sent } = &mut *outgoing;
        while *sent < bytes.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.stream, &bytes[*sent..], flags) {
                Ok(count) => *sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => {
                    // The reader finds out as well, and tells all.
                    break;
                }
            }
        }
        bytes.clear();
        *sent = 0;
        false
    }

    // Receiving.

    /// Takes what has come, if no other thread is about to.
    pub(super) fn read_now(&self, own: &Unparker) {
        if let Some(mut incoming) = self.try_read() {
            self.drain(&mut incoming, own, RecvFlags::DONTWAIT);
            drop(incoming);
            self.pass_on();
        }
    }

    /// Sleeps until the bell rings, something has come that this thread read, or a time of the boot
    /// clock. The bell is that of all inboxes for which the caller waits.
    pub(super) fn sleep(&self, bell: &Unparker, until: Option<Nanos>) {
        let (_, is_next) = self.read_or_sleep(bell, until);
        if is_next {
            self.pass_on();
        }
    }

    /// The same. Returns whether the bell rang, and whether the last reader has passed reading on
    /// to this thread, which is to read then or to pass it on.
    fn read_or_sleep(&self, bell: &Unparker, until: Option<Nanos>) -> (bool, bool) {
        lock(&self.sleepers).push(bell.clone());
        let mut is_next = false;
        if let Some(mut incoming) = self.try_read() {
            self.wake_no_more(bell);
            self.read(&mut incoming, bell, until);
            drop(incoming);
            self.pass_on();
        } else {
            bell.sleep(until);
            is_next = !self.wake_no_more(bell);
        }
        (bell.hear(), is_next)
    }

    /// Blocks until a look finds something, at a thing that only the server brings; or that nothing
    /// came by this time: then the connection is over. What else rings the bell is heard later.
    pub(super) fn block_until<T>(
        &self,
        bell: &Unparker,
        until: Nanos,
        mut look: impl FnMut() -> Option<T>,
    ) -> T {
        let (mut was_rung, mut is_next) = (false, false);
        let found = loop {
            if let Some(found) = look() {
                break found;
            }
            if !self.flush()
                && let Some(mut incoming) = self.try_read()
            {
                // The last reader may have left it just before it let go.
                let found = look();
                if found.is_none() {
                    self.drain(&mut incoming, bell, RecvFlags::empty());
                }
                drop(incoming);
                self.pass_on();
                is_next = false;
                if let Some(found) = found {
                    break found;
                }
            } else {
                let (rang, is_passed_on) = self.read_or_sleep(bell, Some(until));
                was_rung |= rang;
                is_next |= is_passed_on;
                if boot_time() >= until {
                    self.end();
                }
            }
        };
        if is_next {
            self.pass_on();
        }
        if was_rung {
            bell.ring();
        }
        found
    }

    /// Returns whether it was to be woken still.
    fn wake_no_more(&self, bell: &Unparker) -> bool {
        let mut sleepers = lock(&self.sleepers);
        let before = sleepers.len();
        sleepers.retain(|sleeper| !sleeper.is(bell));
        sleepers.len() < before
    }

    /// Another waiter may read now.
    fn pass_on(&self) {
        let next = lock(&self.sleepers).pop();
        if let Some(next) = next {
            next.ring();
        }
    }

    fn try_read(&self) -> Option<MutexGuard<'_, Incoming>> {
        match self.incoming.try_lock() {
            Ok(incoming) => Some(incoming),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Reads until something came, the bell rings, or a time.
    fn read(&self, incoming: &mut Incoming, bell: &Unparker, until: Option<Nanos>) {
        if self.is_over() || bell.begin_reading(&self.interrupt) {
            bell.end_reading();
            return;
        }
        let is_left = self.flush();
        let wants = if is_left { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds =
            [PollFd::new(&self.stream, wants), PollFd::new(&*self.interrupt, PollFlags::IN)];
        let left = until.map(|until| {
            let left = until.saturating_sub(boot_time());
            let tv_nsec = (left % 1_000_000_000) as _;
            Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec }
        });
        // Where it is interrupted the caller looks and sleeps again.
        let polled = poll(&mut fds, left.as_ref());
        let [stream, interrupt] = fds.map(|fd| !fd.revents().is_empty());
        bell.end_reading();
        if interrupt {
            self.interrupt.clear();
        }
        if polled.is_ok() && stream {
            self.flush();
            self.drain(incoming, bell, RecvFlags::DONTWAIT);
        }
    }

    /// Takes everything that has come. Where the first of it may be waited for, `flags` say so.
    fn drain(&self, incoming: &mut Incoming, own: &Unparker, mut flags: RecvFlags) {
        loop {
            let read = recv(&self.stream, &mut incoming.bytes[incoming.filled..], flags);
            let has_waited = !flags.contains(RecvFlags::DONTWAIT);
            flags = RecvFlags::DONTWAIT;
            match read.map(|(_, count)| count) {
                Ok(0) => return self.end(),
                Ok(count) => {
                    incoming.filled += count;
                    let is_all = incoming.filled < incoming.bytes.len();
                    if self.dispatch(incoming, own).is_err() {
                        return self.end();
                    }
                    if is_all {
                        return;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !has_waited => return,
                Err(_) => return self.end(),
            }
        }
    }

    /// Leaves every frame that is complete where it belongs.
    fn dispatch(&self, incoming: &mut Incoming, own: &Unparker) -> Result<(), Garbled> {
        let mut at = 0;
        while let Some((frame, length)) = next_frame(&incoming.bytes[at..incoming.filled])? {
            self.deliver(frame, own)?;
            at += length;
        }
        incoming.bytes.copy_within(at..incoming.filled, 0);
        incoming.filled -= at;
        if incoming.bytes.len() < incoming.filled + READ_BYTES / 2 {
            incoming.bytes.resize(incoming.filled + READ_BYTES, 0);
        }
        Ok(())
    }

    fn deliver(&self, frame: &[u8], own: &Unparker) -> Result<(), Garbled> {
        let mut fields = Fields(frame);
        let kind = fields.u8()?;
        match kind {
            reply::PEER => return self.hear_of_a_peer(fields),
            reply::GONE => {
                self.is_gone.store(true, Ordering::SeqCst);
                return fields.end();
            }
            _ => {}
        }
        let number = fields.u32()?;
        // It may be for one that has left.
        let Some(inbox) = lock(&self.inboxes).get(&number).cloned() else { return Ok(()) };
        match kind {
            reply::DONE => {
                let ticket = fields.u32()?;
                let done = done_of(fields)?;
                inbox.put(Some(own), |state| state.complete(ticket, done));
            }
            reply::WOKEN => {
                let (key, woken) = (fields.u32()?, take_woken(&mut fields)?);
                fields.end()?;
                inbox.put(Some(own), |state| state.woken.push((key, woken)));
            }
            reply::MAIL => {
                let (slot, envelope) = self.envelope_of(&mut fields)?;
                fields.end()?;
                inbox.put(Some(own), |state| {
                    if let Some(mail) = state.mail.get_mut(usize::from(slot.0)) {
                        mail.push_back(envelope);
                    }
                });
            }
            reply::ATTACHED | reply::ANSWER | reply::DECLINED => {
                let answer = [&[kind], fields.0].concat();
                inbox.put(Some(own), |state| state.answer = Some(answer));
            }
            _ => return Err(Garbled("its kind is unknown")),
        }
        Ok(())
    }

    fn envelope_of(&self, fields: &mut Fields<'_>) -> Result<(Slot, Envelope), Garbled> {
        let (slot, from) = (Slot(fields.u8()?), fields.id()?);
        let arrived = self.facts.on_own_clock(fields.u64()?);
        let message = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        Ok((slot, Envelope { from, arrived, message }))
    }

    fn hear_of_a_peer(&self, mut fields: Fields<'_>) -> Result<(), Garbled> {
        let (lives, id) = (fields.u8()? != 0, fields.id()?);
        fields.end()?;
        let known = self.known.get(usize::from(id.index));
        let known = known.ok_or(Garbled("a peer in it has no place"))?;
        if lives {
            known.store(id.incarnation, Ordering::SeqCst);
        } else if known.load(Ordering::SeqCst) == id.incarnation {
            known.store(0, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Nothing will come any more: tells everybody.
    #[cold]
    fn end(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        self.is_over.store(true, Ordering::SeqCst);
        let inboxes: Vec<_> = lock(&self.inboxes).values().cloned().collect();
        inboxes.iter().for_each(|inbox| inbox.put(None, |state| state.is_over = true));
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        lock(&self.late.wants).end = true;
        self.late.changed.notify_all();
    }
}

fn done_of(mut fields: Fields<'_>) -> Result<Done, Garbled> {
    let all = fields;
    let is_single = fields.u8()? == 0;
    if is_single && let Ended::Old(status, old) = take_end(&mut fields, &mut Vec::new())? {
        fields.end()?;
        return Ok(Done::Old(status, old));
    }
    Ok(Done::Long(all.0.to_vec()))
}

/// The channel's own thread: sends what would lie too long, and ends with the channel.
fn send_what_lies(channel: &Weak<Channel>, late: &Late) {
    let mut pause = LATE;
    loop {
        let mut wants = lock(&late.wants);
        while !wants.flush && !wants.end {
            wants = late.changed.wait(wants).unwrap_or_else(PoisonError::into_inner);
        }
        if wants.end {
            return;
        }
        wants.flush = false;
        drop(wants);
        std::thread::sleep(pause);
        late.is_due.store(false, Ordering::SeqCst);
        let Some(channel) = channel.upgrade() else { return };
        // Where verbs have carried it along they will again.
        pause = if channel.has_unsent() { LATE } else { (pause * 2).min(LATE_MAX) };
        channel.flush();
    }
}
