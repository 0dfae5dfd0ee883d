//! One TCP connection to a server, shared by the lanes of a process.
//!
//! A lane writes what it has to say behind what others have said, and a waiter sends all of it at
//! once. Of those that wait one reads, for all: it leaves in each inbox what is for it.
//! When that one has what it waited for, another of them goes on reading.
//!
//! What a lane publishes takes effect before its later verbs, so it travels with them. Where none
//! follows, the channel's own thread sends it within [`LATE`].

#[cfg(test)]
mod fuzz;
mod reading;

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::bell::{Interrupt, Unparker};
use super::facts::{Facts, Granted};
use super::greeting::{PATIENCE, greet, make_room, read_greeting};
use super::inbox::{Done, Inbox, Wakes};
use super::looker::Looker;
use super::outgoing::{Flushed, Outgoing, flush};
use super::pace::Pace;
use super::ticket::{is_paced, is_unsignalled};
use super::ties::Ties;
use crate::addr::{EndpointId, Slot};
use crate::endpoint::{Envelope, Nanos};
use crate::error::{ConnectError, Garbled, TlsFault};
use crate::home::home_id;
use crate::shm::serving::Owner;
use crate::tcp::busy_poll::BusyPoll;
use crate::tcp::clock::boot_time;
use crate::tcp::silence::keep_alive;
use crate::tcp::stream::Stream;
use crate::tcp::tls::ClientTls;
use crate::tcp::wire::{
    AHEAD_MAX, Ended, Fields, Framing, MAGIC, VERSION, next_frame, reply, request, take_end,
    take_woken,
};
use crate::threads::keep_signals_out;

/// How long what was published may lie before it is sent.
const LATE: Duration = Duration::from_millis(1);

/// The same where verbs follow each other closely.
const LATE_MAX: Duration = Duration::from_millis(4);

/// How long a verb waits for its end, before the connection is given up: a server executes it as
/// soon as it comes, so it is stopped, or out of reach.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// The least time that is given to a greeting, in nanoseconds.
const MOMENT: Nanos = 20_000_000;

#[derive(Debug)]
pub(super) struct Channel {
    /// By what its other connections are secured too.
    pub(super) tls: Option<ClientTls>,
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
    /// Those that would read for tasks, while these do that themselves.
    idlers: Mutex<Vec<Unparker>>,
    interrupt: Arc<Interrupt>,
    /// By index, the incarnation of the endpoint that lives there as far as was told; or 0.
    known: Box<[AtomicU16]>,
    pub(super) heap_bytes: AtomicU64,
    /// The connection is over, and the lane's endpoints may live: another one is sought.
    is_broken: AtomicBool,
    /// As the server grants it that there is, or was last.
    lease: Mutex<Granted>,
    /// Until when its endpoints live, whatever becomes of the connection.
    valid_until: AtomicU64,
    /// When its own thread last ran while they lived.
    ran_at: AtomicU64,
    /// Nobody waits for another connection where this one breaks.
    is_left: AtomicBool,
    is_over: AtomicBool,
    /// The server takes its certificate no more.
    is_revoked: AtomicBool,
    is_gone: AtomicBool,
    numbers: AtomicU32,
    late: Arc<Late>,
    looker: Looker,
    pub(super) ties: Ties,
}

/// What was read and is not complete yet.
#[derive(Debug)]
struct Incoming {
    stream: Arc<Stream>,
    bytes: Vec<u8>,
    filled: usize,
    /// Whether one that awaits an answer looks for it before it sleeps.
    busy: BusyPoll,
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
    resume: bool,
    end: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under one of these leaves what was consistent before.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channel {
    /// Over a stream whose greetings were exchanged; `rest` came behind them.
    pub(super) fn new(
        (stream, tls): (Stream, Option<ClientTls>),
        (server, region): (String, String),
        owner: Owner,
        facts: Facts,
        (asked_at, rest, filled): (Nanos, Vec<u8>, usize),
    ) -> io::Result<Arc<Self>> {
        prepare(stream.tcp())?;
        let stream = Arc::new(stream);
        let outgoing = Outgoing::by(stream.clone());
        let channel = Arc::new(Self {
            tls,
            server,
            region,
            owner,
            facts,
            outgoing: Mutex::new(outgoing),
            incoming: Mutex::new(Incoming::behind(rest, filled, stream)),
            inboxes: Mutex::default(),
            sleepers: Mutex::default(),
            idlers: Mutex::default(),
            interrupt: Arc::new(Interrupt::new()?),
            known: (0..=facts.all).map(|_| AtomicU16::new(0)).collect(),
            heap_bytes: AtomicU64::new(facts.heap_bytes),
            is_broken: AtomicBool::new(false),
            lease: Mutex::new(facts.lease),
            valid_until: AtomicU64::new(facts.lease.until(asked_at)),
            ran_at: AtomicU64::new(boot_time()),
            is_left: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            is_revoked: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            numbers: AtomicU32::new(0),
            late: Arc::default(),
            looker: Looker::default(),
            ties: Ties::default(),
        });
        // What came behind the greeting is not read again.
        let first = (&Unparker::default(), &mut Wakes::default());
        let is_sound = channel.dispatch(&mut lock(&channel.incoming), first);
        is_sound.map_err(io::Error::other)?;
        let (weak, late) = (Arc::downgrade(&channel), Arc::clone(&channel.late));
        let thread = std::thread::Builder::new().name("farlock-tcp".to_owned());
        let renews_at = facts.lease.renews_at(asked_at);
        thread.spawn(move || {
            keep_signals_out();
            look_after(&weak, &late, renews_at);
        })?;
        Ok(channel)
    }

    /// A number that no lane and no call of this channel has had for long.
    pub(super) fn number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn enter(&self, number: u32, inbox: &Arc<Inbox>) {
        let outgoing = lock(&self.outgoing);
        lock(&self.inboxes).insert(number, Arc::clone(inbox));
        inbox.put(|state| {
            state.epoch = outgoing.epoch;
            state.is_over = self.is_over.load(Ordering::SeqCst);
        });
    }

    pub(super) fn leave(&self, number: u32) {
        lock(&self.inboxes).remove(&number);
    }

    /// Whether its endpoints are dead, or may be: nothing will come any more.
    pub(super) fn is_over(&self) -> bool {
        let is_timed = !self.lease().is_by_connection || self.is_broken();
        self.is_over.load(Ordering::SeqCst) || is_timed && self.valid_for() == 0
    }

    pub(super) fn lease(&self) -> Granted {
        *lock(&self.lease)
    }

    pub(super) fn is_kept_by_connection(&self) -> bool {
        self.lease().is_by_connection
    }

    /// How long the thread that looks after the connection may wait for one thing, while others
    /// are to come in time too.
    pub(super) fn patience(&self) -> Duration {
        let patience = self.valid_for().min(self.lease().length / 8).max(MOMENT);
        Duration::from_nanos(patience).min(PATIENCE)
    }

    /// For how long its endpoints live at least.
    pub(super) fn valid_for(&self) -> Nanos {
        self.valid_until.load(Ordering::SeqCst).saturating_sub(boot_time())
    }

    /// This process runs. A thread of it does so several times in a lease, also beside a server
    /// that is silent.
    pub(super) fn note_running(&self) {
        if self.valid_for() > 0 {
            self.ran_at.store(boot_time(), Ordering::SeqCst);
        }
    }

    /// Whether its endpoints died while this process did not run.
    pub(super) fn has_slept_through(&self) -> bool {
        let (ran_at, ended_at) = (&self.ran_at, &self.valid_until);
        let asleep = ended_at.load(Ordering::SeqCst).saturating_sub(ran_at.load(Ordering::SeqCst));
        self.valid_for() == 0 && asleep > self.lease().length / 2
    }

    /// Whether the server has said that it takes its certificate no more.
    pub(super) fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::SeqCst)
    }

    /// Whether there is no connection at the moment.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::SeqCst)
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

    /// Writes frames behind what others have said. They are sent with the next flush. Returns how
    /// often the connection had broken: once that is more, they were perhaps not sent.
    pub(super) fn say(&self, kind: u8, fill: impl FnOnce(&mut Framing<'_>)) -> u32 {
        let mut outgoing = lock(&self.outgoing);
        let mut frame = Framing::new(&mut outgoing.bytes, kind);
        fill(&mut frame);
        frame.end();
        outgoing.epoch
    }

    /// The same of verbs, which what rides has waited for if they are signalled: they are sent
    /// soon.
    pub(super) fn say_verbs(&self, ticket: u32, fill: impl FnOnce(&mut Framing<'_>)) {
        let mut outgoing = lock(&self.outgoing);
        if is_unsignalled(ticket) {
            outgoing.riding.begins(boot_time());
        } else {
            outgoing.riding.follows(boot_time);
        }
        if is_paced(ticket) {
            outgoing.pace.says();
        }
        let mut frame = Framing::new(&mut outgoing.bytes, request::VERBS);
        fill(&mut frame);
        frame.end();
    }

    /// Whether what was said of an unsignalled verb may lie until signalled ones follow.
    pub(super) fn rides(&self) -> bool {
        lock(&self.outgoing).riding.is_likely()
    }

    /// What was said is to be sent soon, also without a flush.
    pub(super) fn flush_soon(&self) {
        if !self.late.is_due.swap(true, Ordering::SeqCst) {
            lock(&self.late.wants).flush = true;
            self.late.changed.notify_one();
        }
    }

    fn has_unsent(&self) -> bool {
        lock(&self.outgoing).has_unsent()
    }

    /// Sends what was said, as far as the system takes it now. Returns whether the caller is to try
    /// again when the system takes more.
    pub(super) fn flush(&self) -> bool {
        match flush(&self.outgoing, || self.is_broken()) {
            Flushed::All => return false,
            // Others may have left this to the caller.
            Flushed::InPart | Flushed::HasMore => self.flush_soon(),
        }
        true
    }

    /// The same for a task: while verbs are on their way this may lie until they are answered, to
    /// travel with what other tasks say.
    pub(super) fn flush_together(&self) {
        if lock(&self.outgoing).pace.is_held(self.facts.has_one_clock()) {
            // The reader sends it behind the answers; and if none comes it does not lie for long.
            self.flush_soon();
        } else {
            self.flush();
        }
    }

    // Receiving.

    /// Leaves every frame that is complete where it belongs.
    fn dispatch(
        &self,
        incoming: &mut Incoming,
        (own, wakes): (&Unparker, &mut Wakes),
    ) -> Result<(), Garbled> {
        let mut at = 0;
        while let Some((frame, length)) = next_frame(&incoming.bytes[at..incoming.filled])? {
            self.deliver(frame, own, wakes)?;
            at += length;
        }
        incoming.bytes.copy_within(at..incoming.filled, 0);
        incoming.filled -= at;
        make_room(&mut incoming.bytes, incoming.filled);
        Ok(())
    }

    fn deliver(&self, frame: &[u8], own: &Unparker, wakes: &mut Wakes) -> Result<(), Garbled> {
        let mut fields = Fields(frame);
        let kind = fields.u8()?;
        match kind {
            reply::PEER => return self.hear_of_a_peer(fields),
            reply::LIVING => return self.hear_of_all_that_live(fields),
            reply::GONE => {
                self.is_gone.store(true, Ordering::SeqCst);
                let inboxes: Vec<_> = lock(&self.inboxes).values().cloned().collect();
                inboxes.iter().for_each(|inbox| inbox.bring(own, wakes, |_| {}));
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
                wakes.answers += u32::from(is_paced(ticket));
                inbox.bring(own, wakes, |state| state.complete(ticket, done));
            }
            reply::WOKEN => {
                let (key, woken) = (fields.u32()?, take_woken(&mut fields)?);
                fields.end()?;
                inbox.bring(own, wakes, |state| state.woken.push((key, woken)));
            }
            reply::MAIL => {
                let (slot, message, envelope) = self.envelope_of(&mut fields)?;
                fields.end()?;
                let mut is_one_too_many = false;
                inbox.bring(own, wakes, |state| {
                    if let Some(mail) = state.mail.get_mut(usize::from(slot.0)) {
                        is_one_too_many = mail.len() >= AHEAD_MAX;
                        mail.push_back((message, envelope));
                    }
                });
                if is_one_too_many {
                    return Err(Garbled("its mailbox has as many as are sent ahead"));
                }
            }
            reply::DEAD => {
                fields.end()?;
                inbox.bring(own, wakes, |state| state.is_over = true);
            }
            reply::ATTACHED | reply::ANSWER | reply::DECLINED => {
                let answer = [&[kind], fields.0].concat();
                inbox.bring(own, wakes, |state| {
                    state.is_attached |= kind == reply::ATTACHED;
                    state.answer = Some(answer);
                });
            }
            _ => return Err(Garbled("its kind is unknown")),
        }
        Ok(())
    }

    fn envelope_of(&self, fields: &mut Fields<'_>) -> Result<(Slot, u64, Envelope), Garbled> {
        let (slot, number, from) = (Slot(fields.u8()?), fields.u64()?, fields.id()?);
        let arrived = self.facts.on_own_clock(fields.u64()?);
        let message = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        Ok((slot, number, Envelope { from, arrived, message }))
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

    fn hear_of_all_that_live(&self, mut fields: Fields<'_>) -> Result<(), Garbled> {
        let living = fields.ids()?;
        fields.end()?;
        for id in living {
            let known = self.known.get(usize::from(id.index));
            let known = known.ok_or(Garbled("a peer in it has no place"))?;
            known.store(id.incarnation, Ordering::SeqCst);
        }
        Ok(())
    }

    // The end of the connection.

    /// Nothing comes any more. The reader finds out, and breaks off.
    pub(super) fn give_up(&self) {
        lock(&self.outgoing).stream.end();
    }

    /// The connection is over, as its reader has found. What was published, and what was posted and
    /// not answered, is to be said again.
    #[cold]
    fn break_off(&self, _reader: &mut Incoming) {
        let mut outgoing = lock(&self.outgoing);
        outgoing.stream.end();
        self.is_broken.store(true, Ordering::SeqCst);
        outgoing.epoch += 1;
        outgoing.pace = Pace::default();
        let inboxes: Vec<_> =
            lock(&self.inboxes).iter().map(|(number, inbox)| (*number, inbox.clone())).collect();
        outgoing.bytes.clear();
        for (number, inbox) in &inboxes {
            inbox.state().log.put_all(*number, &mut outgoing.bytes);
        }
        let epoch = outgoing.epoch;
        drop(outgoing);
        inboxes.iter().for_each(|(_, inbox)| inbox.begin_epoch(epoch));
        lock(&self.late.wants).resume = true;
        self.late.changed.notify_one();
    }

    /// Its endpoints are dead, or may be by now: tells all lanes.
    #[cold]
    fn end(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
        self.is_over.store(true, Ordering::SeqCst);
        self.give_up();
        let inboxes: Vec<_> = lock(&self.inboxes).values().cloned().collect();
        inboxes.iter().for_each(|inbox| inbox.put(|state| state.is_over = true));
    }

    /// Its user goes: where there is no connection, none is waited for.
    pub(super) fn leave_it(&self) {
        self.is_left.store(true, Ordering::SeqCst);
        if self.is_broken() {
            self.end();
        }
    }

    /// Tries once to go on by another connection. Returns whether it is of any use to try again.
    fn try_to_resume(&self) -> Result<(), bool> {
        let asked_at = boot_time();
        // What is lost on the way is sent again ever more seldom, so it is begun anew.
        let hello = |port| resumption(&self.region, port, self.lease().secret);
        // While there is no connection nothing is read from one.
        let mut incoming = lock(&self.incoming);
        let bytes = &mut incoming.bytes;
        let (stream, greeting, filled) =
            match greet(self.tls.as_ref(), &self.server, hello, bytes, self.patience()) {
                Ok(greeted) => greeted,
                Err(ConnectError::Declined { .. }) => return Err(false),
                Err(ConnectError::Tls { why: TlsFault::ClientRevoked, .. }) => {
                    self.is_revoked.store(true, Ordering::SeqCst);
                    return Err(false);
                }
                Err(_) => return Err(true),
            };
        let facts = read_greeting(&greeting, &self.server, asked_at).map_err(|_| false)?;
        prepare(stream.tcp()).map_err(|_| true)?;
        // What was said to be over stays so, though the server may not mind yet.
        if facts.origin != self.facts.origin || self.is_over() {
            return Err(false);
        }
        incoming.filled = filled;
        self.go_on_by(Arc::new(stream), incoming, (facts.lease, asked_at));
        Ok(())
    }

    /// Goes on by this connection, behind whose greeting this has come, under the lease that there
    /// is: the server grants a new one when it is asked for it, and if it grants shorter ones than
    /// the last server that is heeded now.
    fn go_on_by(
        &self,
        stream: Arc<Stream>,
        mut incoming: MutexGuard<'_, Incoming>,
        (lease, asked_at): (Granted, Nanos),
    ) {
        let mut wakes = Wakes::default();
        let mut outgoing = lock(&self.outgoing);
        // The living are told anew. Most of thousands of places were never taken.
        let taken = self.known.iter().filter(|known| known.load(Ordering::SeqCst) != 0);
        taken.for_each(|known| known.store(0, Ordering::SeqCst));
        let (bytes, filled) = (std::mem::take(&mut incoming.bytes), incoming.filled);
        *incoming = Incoming::behind(bytes, filled, Arc::clone(&stream));
        outgoing.stream = stream;
        let mut first = Vec::new();
        for (number, inbox) in lock(&self.inboxes).iter() {
            let state = inbox.state();
            // Those that are being attached ask again.
            if state.is_attached && !state.is_over {
                put_lane(&mut first, *number, &state.next_mail);
            }
        }
        Framing::new(&mut first, request::LANES_END).u32(0).end();
        first.append(&mut outgoing.bytes);
        outgoing.bytes = first;
        *lock(&self.lease) = lease;
        self.valid_until.fetch_min(lease.until(asked_at), Ordering::SeqCst);
        self.is_broken.store(false, Ordering::SeqCst);
        drop(outgoing);
        if self.dispatch(&mut incoming, (&Unparker::default(), &mut wakes)).is_err() {
            self.break_off(&mut incoming);
        }
        drop(incoming);
        self.flush();
        let inboxes: Vec<_> = lock(&self.inboxes).values().cloned().collect();
        inboxes.iter().for_each(|inbox| inbox.put(|_| {}));
    }

    /// Asks for another lease. Returns when to ask again.
    fn renew(&self) -> Nanos {
        let lease = self.lease();
        let (asked_at, valid_for) = (boot_time(), self.valid_for());
        // Where the end of the connection is the client's it is not ended lightly.
        let patience = match lease.is_by_connection {
            true => ANSWER_PATIENCE,
            false => Duration::from_nanos(valid_for.min(lease.length / 4)),
        };
        match self.ask_to_renew(patience) {
            Ok(()) => {
                self.valid_until.fetch_max(lease.until(asked_at), Ordering::SeqCst);
                lease.renews_at(asked_at)
            }
            // What broke is gone on with first, and then it is asked at once.
            Err(_) => {
                self.give_up();
                boot_time() + LATE.as_nanos() as Nanos
            }
        }
    }
}

impl Incoming {
    /// What comes behind so many bytes of this buffer.
    fn behind(mut bytes: Vec<u8>, filled: usize, stream: Arc<Stream>) -> Self {
        make_room(&mut bytes, filled);
        Self { stream, bytes, filled, busy: BusyPoll::default() }
    }
}

/// Has the system end a blocking read, and a connection whose other end is gone.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    keep_alive(stream)
}

fn put_lane(out: &mut Vec<u8>, lane: u32, next_mail: &[u64]) {
    let mut frame = Framing::new(out, request::LANE);
    frame.u32(lane).u8(next_mail.len() as u8).words(next_mail).end();
}

fn resumption(region: &str, port: u16, secret: u128) -> Vec<u8> {
    let mut hello = Vec::new();
    let mut frame = Framing::new(&mut hello, request::RESUME);
    frame.u64(MAGIC).u16(VERSION).text(region).u128(home_id()).u16(port).u128(secret).end();
    hello
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

impl Late {
    /// Sleeps until something is wanted, until a time at the latest. Returns whether another
    /// connection is to be sought; `None`: the end.
    fn await_wants(&self, until: Nanos) -> Option<bool> {
        let mut wants = lock(&self.wants);
        loop {
            let left = until.saturating_sub(boot_time());
            if wants.end {
                return None;
            }
            if wants.flush || wants.resume || left == 0 {
                wants.flush = false;
                return Some(wants.resume);
            }
            let woken = self.changed.wait_timeout(wants, Duration::from_nanos(left));
            wants = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The channel's own thread: sends what would lie too long, asks for leases, seeks another
/// connection where one broke, and ends with the channel.
fn look_after(channel: &Weak<Channel>, late: &Late, mut renews_at: Nanos) {
    /// How soon another connection is sought where one could not be had, at first and at last: all
    /// clients of a server seek one at the same time, beside the server that starts.
    const SEEKS_MIN: Duration = Duration::from_millis(5);
    const SEEKS_MAX: Duration = Duration::from_millis(20);
    let (mut pause, mut seeks) = (LATE, SEEKS_MIN);
    // When tethers that ended with the last connection are to be made anew.
    let mut ties_at = Nanos::MAX;
    let is_due = |at| boot_time() >= at;
    loop {
        let Some(resumes) = late.await_wants(renews_at.min(ties_at)) else { return };
        // However much there is to send, a lease is asked for when it is time.
        let renews = !resumes && is_due(renews_at);
        let ties = !resumes && !renews && is_due(ties_at);
        if !resumes && !renews && !ties {
            std::thread::sleep(pause);
        }
        // What is said from here on is asked to be sent again.
        late.is_due.store(false, Ordering::SeqCst);
        let Some(channel) = channel.upgrade() else { return };
        channel.note_running();
        if channel.is_over() || resumes && channel.is_left.load(Ordering::SeqCst) {
            return channel.end();
        }
        if resumes {
            match channel.try_to_resume() {
                Ok(()) => {
                    seeks = SEEKS_MIN;
                    lock(&late.wants).resume = channel.is_broken();
                    // By a server that may not live for long: what is overdue is asked at once.
                    renews_at = renews_at.min(channel.lease().renews_at(boot_time()));
                    ties_at = boot_time();
                }
                Err(true) => {
                    std::thread::sleep(seeks);
                    seeks = (seeks * 2).min(SEEKS_MAX);
                }
                Err(false) => return channel.end(),
            }
        } else if renews {
            renews_at = channel.renew();
        } else if ties {
            let again_at = channel.lease().renews_at(boot_time());
            ties_at = if channel.tie_again() { Nanos::MAX } else { again_at };
        }
        // Where verbs have carried it along they will again.
        pause = if channel.has_unsent() { LATE } else { (pause * 2).min(LATE_MAX) };
        channel.flush();
    }
}
