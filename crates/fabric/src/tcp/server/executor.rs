//! The loop: reads what clients sent, executes it, ends the waits that it ended, and answers.

#[cfg(test)]
mod fuzz;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::guest::{Guest, Out, Tenure, Tethered, read_some};
use super::held_back::HeldBack;
use super::limits::{Closed, Limits, OnShort, Opener};
use super::parker::Parkers;
use super::served::Served;
use super::waits::Waits;
use crate::addr::{EndpointId, Mailbox};
use crate::endpoint::{Endpoint, Nanos, Woken};
use crate::error::Garbled;
use crate::tcp::busy_poll::BusyPoll;
use crate::tcp::client::Interrupt;
use crate::tcp::clock::boot_time;
use crate::tcp::silence::keep_alive;
use crate::tcp::stream::Stream;
use crate::tcp::tls::ServerTls;
use crate::tcp::wire::{Framing, next_frame, put_woken, reply};

/// Bytes read of one client in one turn.
const READ_BYTES: usize = 64 << 10;

/// Bytes kept of a client that has not said yet what it wants: the longest greeting.
const GREETING_MAX: usize = 1024;

/// Events taken in one turn.
const EVENTS_MAX: usize = 256;

/// How long no client is accepted where the system has no more descriptors.
const DEAF: Duration = Duration::from_millis(100);

/// How much longer than a look at all waits the time is until the next one; and than to send all
/// guests what they are told of others.
const LOOKS_APART: u32 = 16;

/// How often it is asked whether the files of TLS are others: a little seldomer than it is looked.
const LOOK_FOR_CERTIFICATES: Duration = Duration::from_millis(1050);

/// The number of no judge of clients.
const JUDGED_BY_NONE: u64 = u64::MAX;

/// What the events of the listener and of the interrupt say; all others say a guest's number.
const LISTENER: u64 = u64::MAX;
const INTERRUPT: u64 = u64::MAX - 1;

/// How a client begins that speaks TLS; no greeting is so long.
const HANDSHAKE: [u8; 2] = [0x16, 0x03];

/// Why a client is hung up on.
#[derive(Debug)]
pub(super) enum HangUp {
    /// What it sent is no frame, or one that makes no sense there.
    Garbled,
    /// It asked for something that it cannot have; it is told why.
    Declined(String),
    /// It asked for a region that is not there, and that is not to be made for it.
    Absent,
    /// It does not: the connection goes on as that of this guest, which was away.
    Resumes(usize),
}

impl From<Garbled> for HangUp {
    fn from(_: Garbled) -> Self {
        Self::Garbled
    }
}

pub(super) struct Executor {
    pub(super) epoll: OwnedFd,
    listener: TcpListener,
    tls: Option<ServerTls>,
    /// When the files of TLS are looked at again, and which judge judged all guests.
    certificates_from: Instant,
    judged_by: u64,
    interrupt: Arc<Interrupt>,
    pub(super) open: Opener,
    pub(super) find: Option<Opener>,
    on_short: OnShort,
    pub(super) limits: Limits,
    /// By number; a guest that is served is taken out.
    pub(super) guests: Vec<Option<Guest>>,
    pub(super) outs: Vec<Out>,
    pub(super) vacant: Vec<usize>,
    serials: u64,
    /// A time before which no client's lease is due.
    pub(super) due_at: Nanos,
    /// When clients are accepted again, where the system could not.
    deaf_until: Option<Instant>,
    /// Clients that have not said yet what they want, by the time they have for that.
    unsettled: VecDeque<(Instant, usize, u64)>,
    pub(super) served: Vec<Served>,
    pub(super) waits: Waits,
    pub(super) held_back: HeldBack,
    /// Whether a word that is slept on was rung, and not all waits were looked at since.
    has_fired: bool,
    /// When all waits may be looked at again.
    looks_from: Instant,
    parkers: Parkers,
    /// Whether something lies for all guests of a region that they did not ask for, and when it is
    /// sent to those that have heard nothing else meanwhile.
    has_news: bool,
    news_from: Instant,
    /// Guests to be flushed.
    pub(super) touched: Vec<usize>,
    /// Guests that sent more than is answered before they take some of that.
    pub(super) paused: BTreeSet<usize>,
    /// Whether what is slept on is not what is waited for.
    pub(super) is_stale: bool,
    /// Mailboxes to which messages were sent.
    pub(super) sent: Vec<Mailbox>,
    /// What tethers are to say, and whose they are then.
    pub(super) promised: HashMap<u128, Tethered>,
    pub(super) data: Vec<u64>,
    pub(super) answer: Vec<u8>,
    news: Vec<u8>,
    input: Vec<u8>,
    events: Vec<epoll::Event>,
    busy: BusyPoll,
}

impl Executor {
    pub(super) fn new(
        (listener, tls): (TcpListener, Option<ServerTls>),
        (open, on_short): (Opener, OnShort),
        limits: Limits,
        served: Vec<Served>,
        interrupt: Arc<Interrupt>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), flags)?;
        epoll::add(&epoll, &*interrupt, epoll::EventData::new_u64(INTERRUPT), flags)?;
        Ok(Self {
            epoll,
            listener,
            tls,
            certificates_from: Instant::now(),
            judged_by: 0,
            interrupt,
            open,
            find: None,
            on_short,
            limits,
            guests: Vec::new(),
            outs: Vec::new(),
            vacant: Vec::new(),
            serials: 0,
            due_at: Nanos::MAX,
            deaf_until: None,
            unsettled: VecDeque::new(),
            served,
            waits: Waits::default(),
            held_back: HeldBack::default(),
            has_fired: false,
            looks_from: Instant::now(),
            parkers: Parkers::default(),
            has_news: false,
            news_from: Instant::now(),
            touched: Vec::new(),
            paused: BTreeSet::new(),
            is_stale: false,
            sent: Vec::new(),
            promised: HashMap::new(),
            data: Vec::new(),
            answer: Vec::new(),
            news: Vec::new(),
            input: vec![0; READ_BYTES],
            events: Vec::with_capacity(EVENTS_MAX),
            busy: BusyPoll::default(),
        })
    }

    /// Waits for something to do, and does it.
    pub(super) fn turn(&mut self) -> io::Result<()> {
        self.wait()?;
        let events = std::mem::take(&mut self.events);
        for event in &events {
            let flags = event.flags;
            match event.data.u64() {
                LISTENER => self.accept()?,
                INTERRUPT => self.interrupt.clear(),
                number => self.serve(number as usize, flags),
            }
        }
        self.events = events;
        self.go_on();
        self.listen_again()?;
        self.end_patience();
        self.look_at_waits();
        self.look_for_regions();
        self.hang_up_on_the_silent();
        self.expel_the_revoked();
        self.end_leases();
        self.send_news();
        self.flush_touched();
        Ok(())
    }

    /// Sleeps until a client sends something, or something that one waits for may have happened.
    fn wait(&mut self) -> io::Result<()> {
        if self.is_stale && !self.has_fired {
            // While there is more to do, what was slept on before will do.
            self.wait_for_events(Some(&Timespec::default()))?;
            if !self.events.is_empty() {
                return Ok(());
            }
            self.sleep_on_what_is_waited_for()?;
        }
        if self.paused.iter().any(|number| self.takes_answers(*number)) {
            return self.wait_for_events(Some(&Timespec::default()));
        }
        let now = Instant::now();
        let silent = self.unsettled.front().map(|(until, ..)| *until);
        let look = self.has_fired.then_some(self.looks_from);
        let news = self.has_news.then_some(self.news_from);
        let has_secured = self.tls.is_some() && self.guests.len() > self.vacant.len();
        let certificates = has_secured.then_some(self.certificates_from);
        let until = [silent, self.deaf_until, look, news, certificates];
        let until = until.into_iter().flatten().min();
        let left = until.map(|until| until.saturating_duration_since(now));
        let due_at = self.due_at.min(self.held_back.until);
        let due_in = || Duration::from_nanos(due_at.saturating_sub(boot_time()));
        let due_in = (due_at < Nanos::MAX).then(due_in);
        let left = [left, due_in].into_iter().flatten().min();
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut busy = std::mem::take(&mut self.busy);
        let mut look = || {
            let looked = self.wait_for_events(Some(&Timespec::default()));
            looked.is_ok() && !self.events.is_empty()
        };
        let is_found = busy.poll(&mut look);
        self.busy = busy;
        if is_found { Ok(()) } else { self.wait_for_events(left.as_ref()) }
    }

    fn wait_for_events(&mut self, timeout: Option<&Timespec>) -> io::Result<()> {
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn sleep_on_what_is_waited_for(&mut self) -> io::Result<()> {
        self.is_stale = false;
        let (mut sources, mut until) = (Vec::new(), None);
        for (number, lane) in self.waits.lanes() {
            let guest = self.guests[number].as_ref().expect("a guest that waits is there");
            let again = guest.seats[&lane].endpoint.sources(&mut sources);
            until = [until, again].into_iter().flatten().min();
        }
        let regions: Vec<_> = self.served.iter().map(|served| served.region.clone()).collect();
        self.parkers.sleep_on(&sources, &regions, until, &self.interrupt)
    }

    // Guests.

    fn listen_again(&mut self) -> io::Result<()> {
        if self.deaf_until.is_some_and(|until| until <= Instant::now()) {
            self.deaf_until = None;
            let data = epoll::EventData::new_u64(LISTENER);
            epoll::add(&self.epoll, &self.listener, data, epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // There are no more descriptors: the listener would be ready all the time.
                Err(error) if error.raw_os_error().is_some_and(is_short) => {
                    (self.on_short)(&error);
                    epoll::delete(&self.epoll, &self.listener)?;
                    self.deaf_until = Some(Instant::now() + DEAF);
                    return Ok(());
                }
                // That one is gone.
                Err(_) => continue,
            };
            let here = self.guests.len() - self.vacant.len();
            let prepared = stream
                .set_nonblocking(true)
                .and_then(|()| stream.set_nodelay(true))
                .and_then(|()| keep_alive(&stream));
            if prepared.is_err() {
                continue;
            }
            if here >= self.limits.connections {
                self.turn_away(stream);
                continue;
            }
            let number = self.number();
            let data = epoll::EventData::new_u64(number as u64);
            if epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN).is_err() {
                self.vacant.push(number);
                continue;
            }
            let is_local = is_local(&stream);
            let Some(stream) = self.begin(stream) else {
                self.vacant.push(number);
                continue;
            };
            let (guest, limit) = (self.new_guest(Some(stream), is_local), self.limits.greeting);
            self.unsettled.push_back((Instant::now() + limit, number, guest.serial));
            self.guests[number] = Some(guest);
        }
    }

    /// A connection as its client is to speak by it.
    fn begin(&self, tcp: TcpStream) -> Option<Stream> {
        match &self.tls {
            None => Some(Stream::Plain(tcp)),
            Some(tls) => Some(Stream::Secured(Box::new(tls.accept(tcp)?))),
        }
    }

    /// Tells one that is too many so, as far as it takes that at once.
    fn turn_away(&self, stream: TcpStream) {
        let most = self.limits.connections;
        let why = format!("it has {most} connections, as many as it takes: try again later");
        let mut out = Out::default();
        Framing::new(&mut out.bytes, reply::DECLINED).u32(0).text(&why).end();
        // Over TLS nothing can be said before hands were shaken.
        if self.tls.is_none() {
            let _ = out.flush(&Stream::Plain(stream));
        }
    }

    /// A number that no guest has.
    pub(super) fn number(&mut self) -> usize {
        self.vacant.pop().unwrap_or_else(|| {
            self.guests.push(None);
            self.outs.push(Out::default());
            self.guests.len() - 1
        })
    }

    /// A client of which nothing is known yet. The end of its connection may say of a local one
    /// what it does not say of others.
    pub(super) fn new_guest(&mut self, stream: Option<Stream>, is_local: bool) -> Guest {
        self.serials += 1;
        let is_by_connection = match self.limits.closed {
            Closed::Auto => is_local,
            Closed::Death => true,
            Closed::Doubt => false,
        };
        let lease = Tenure { secret: 0, until: 0, is_by_connection };
        let (seats, unnamed) = Default::default();
        let (input, region, tether, serial) = (Vec::new(), None, None, self.serials);
        let (comes_back, is_of_this_home) = (None, false);
        Guest {
            stream,
            process: None,
            input,
            region,
            seats,
            serial,
            tether,
            lease,
            unnamed,
            comes_back,
            is_of_this_home,
        }
    }

    /// A guest that is not served at the moment.
    pub(super) fn guest_mut(&mut self, number: usize) -> Option<&mut Guest> {
        self.guests[number].as_mut()
    }

    /// Serves what one client sent, and sends what lies for it.
    fn serve(&mut self, number: usize, flags: epoll::EventFlags) {
        let Some(mut guest) = self.guests.get_mut(number).and_then(Option::take) else { return };
        if guest.is_away() {
            return self.leave_if_gone(number, guest);
        }
        if flags.contains(epoll::EventFlags::OUT) {
            self.touch(number);
        }
        let is_broken = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        let may_read = flags.contains(epoll::EventFlags::IN) && !self.paused.contains(&number);
        let ended = if is_broken || may_read { self.read(number, &mut guest) } else { Ok(true) };
        if guest.stream.as_ref().is_some_and(Stream::has_unsent) {
            self.touch(number);
        }
        self.keep_or_part(number, guest, ended);
    }

    /// Goes on with what guests sent that did not take their answers, and now have.
    fn go_on(&mut self) {
        for number in std::mem::take(&mut self.paused) {
            let Some(mut guest) = self.guests[number].take() else { continue };
            let ended = self.take_frames(number, &mut guest, &[]);
            self.keep_or_part(number, guest, ended.map(|()| true));
        }
    }

    /// Whether so little lies for a guest that more of what it asks for is done.
    fn takes_answers(&self, number: usize) -> bool {
        self.outs[number].left() < self.limits.unsent
    }

    /// A guest was served, and is still there or not.
    fn keep_or_part(&mut self, number: usize, guest: Guest, ended: Result<bool, HangUp>) {
        match ended {
            Ok(true) => self.guests[number] = Some(guest),
            Ok(false) => self.leave(number, guest),
            Err(HangUp::Garbled) => self.part(number, guest),
            Err(HangUp::Declined(why)) => self.part_with(number, guest, |out| {
                Framing::new(out, reply::DECLINED).u32(0).text(&why).end();
            }),
            Err(HangUp::Absent) => {
                self.part_with(number, guest, |out| Framing::new(out, reply::ABSENT).end());
            }
            Err(HangUp::Resumes(away)) => self.resume(number, guest, away),
        }
    }

    /// Tells a guest this last.
    fn part_with(&mut self, number: usize, guest: Guest, say: impl FnOnce(&mut Vec<u8>)) {
        let out = &mut self.outs[number];
        say(&mut out.bytes);
        // What it does not take now it never will.
        let _ = guest.stream.as_ref().map(|stream| out.flush(stream));
        self.part(number, guest);
    }

    /// Reads some, and does what is asked for. Returns whether the client is still there.
    fn read(&mut self, number: usize, guest: &mut Guest) -> Result<bool, HangUp> {
        let Some(stream) = &guest.stream else { return Ok(true) };
        let mut input = std::mem::take(&mut self.input);
        let read = read_some(stream, &mut input);
        let done = match read {
            Err(_) | Ok(None) => Ok(false),
            Ok(Some(0)) => Ok(true),
            Ok(Some(count)) => self.take_frames(number, guest, &input[..count]).map(|()| true),
        };
        self.input = input;
        done
    }

    fn take_frames(
        &mut self,
        number: usize,
        guest: &mut Guest,
        input: &[u8],
    ) -> Result<(), HangUp> {
        let mut before = std::mem::take(&mut guest.input);
        let is_new = before.is_empty();
        if !is_new {
            before.extend_from_slice(input);
        }
        let bytes = if is_new { input } else { &before };
        if !guest.is_settled() && bytes.starts_with(&HANDSHAKE) {
            return Err(HangUp::Declined("it does not speak TLS".to_owned()));
        }
        let mut at = 0;
        while let Some((frame, length)) = next_frame(&bytes[at..])? {
            // A few bytes may ask for many: what lies for a client is bounded frame by frame.
            if !self.takes_answers(number) {
                self.paused.insert(number);
                break;
            }
            self.handle(number, guest, frame)?;
            at += length;
        }
        if !guest.is_settled() && bytes.len() - at > GREETING_MAX {
            return Err(HangUp::Garbled);
        }
        // Of a frame that comes byte by byte what is there already is not copied again.
        guest.input = if at == 0 && !is_new { before } else { bytes[at..].to_vec() };
        Ok(())
    }

    fn hang_up_on_the_silent(&mut self) {
        if self.unsettled.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some((until, number, serial)) = self.unsettled.front().copied() {
            let guest = self.guests[number].as_ref().filter(|guest| guest.serial == serial);
            let is_settled = guest.is_none_or(Guest::is_settled);
            if !is_settled && until > now {
                break;
            }
            self.unsettled.pop_front();
            if !is_settled && let Some(guest) = self.guests[number].take() {
                self.part(number, guest);
            }
        }
    }

    /// Ends the connections of those whose certificates are not taken any more, once there are
    /// other lists or authorities. One that has shown none yet is judged a second later.
    fn expel_the_revoked(&mut self) {
        let Some(tls) = self.tls.clone() else { return };
        let now = Instant::now();
        if now < self.certificates_from {
            return;
        }
        self.certificates_from = now + LOOK_FOR_CERTIFICATES;
        let judges = tls.judges();
        if judges == self.judged_by {
            return;
        }
        self.judged_by = judges;
        for number in 0..self.guests.len() {
            let stream = self.guests[number].as_ref().and_then(|guest| guest.stream.as_ref());
            let Some(Stream::Secured(client)) = stream else { continue };
            match tls.still_takes(client) {
                Some(true) => {}
                Some(false) => {
                    let guest = self.guests[number].take().expect("its stream was there");
                    self.expel(number, guest);
                }
                None => self.judged_by = JUDGED_BY_NONE,
            }
        }
    }

    // Sending.

    pub(super) fn touch(&mut self, number: usize) {
        if !std::mem::replace(&mut self.outs[number].is_touched, true) {
            self.touched.push(number);
        }
    }

    fn flush_touched(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for number in touched.drain(..) {
            self.outs[number].is_touched = false;
            self.flush(number);
        }
        self.touched = touched;
    }

    /// Sends what lies for a guest. One that takes too little is not read from until it does.
    fn flush(&mut self, number: usize) {
        let Some(guest) = &self.guests[number] else { return };
        let out = &mut self.outs[number];
        let Some(stream) = &guest.stream else { return *out = Out::default() };
        let was_full = out.is_full;
        if out.flush(stream).is_err() || out.left() > self.limits.behind {
            // Its end comes as an event.
            out.bytes.clear();
            *out = Out::default();
            stream.end();
        }
        if out.is_full || was_full {
            let mut flags = epoll::EventFlags::empty();
            flags.set(epoll::EventFlags::OUT, out.is_full);
            flags.set(epoll::EventFlags::IN, out.left() < self.limits.unsent);
            let data = epoll::EventData::new_u64(number as u64);
            // It fails only for what is not watched any more.
            let _ = epoll::modify(&self.epoll, stream, data, flags);
        }
    }

    // What guests are told without asking.

    /// Tells all guests of a region which peers have come, before any guest sees an effect of it.
    #[inline]
    pub(super) fn tell_newcomers(&mut self, region: usize) {
        if self.served[region].has_newcomers() {
            let mut news = std::mem::take(&mut self.news);
            self.served[region].newcomers(&mut news);
            self.tell_all(region, news);
            // Of verbs of this host's own nobody here knows.
            if self.served[region].has_locals() {
                self.held_back.hurry(region);
            }
        }
    }

    pub(super) fn tell_death(&mut self, region: usize, id: EndpointId) {
        let mut news = std::mem::take(&mut self.news);
        self.served[region].death(id, &mut news);
        self.tell_all(region, news);
        self.held_back.hurry(region);
    }

    /// Lies before what a guest is answered next, so it is sent then at the latest.
    fn tell_all(&mut self, region: usize, mut news: Vec<u8>) {
        if !news.is_empty() {
            for number in &self.served[region].guests {
                self.outs[*number].bytes.extend_from_slice(&news);
            }
            self.has_news = true;
            news.clear();
        }
        self.news = news;
    }

    /// Sends what all were told: at once, or, where many come and go beside many guests, in a part
    /// of the time.
    fn send_news(&mut self) {
        let begun = Instant::now();
        if !self.has_news || begun < self.news_from {
            return;
        }
        self.has_news = false;
        let told: Vec<usize> =
            self.served.iter().flat_map(|served| served.guests.iter().copied()).collect();
        for number in told {
            if self.outs[number].left() > 0 {
                self.touch(number);
            }
        }
        self.flush_touched();
        let ended = Instant::now();
        self.news_from = ended + (ended - begun) * LOOKS_APART;
    }

    /// Sends on what was sent to mailboxes of guests; `own` is the one that is served.
    pub(super) fn forward_sent(&mut self, region: usize, number: usize, own: &mut Guest) {
        let mut sent = std::mem::take(&mut self.sent);
        for to in sent.drain(..) {
            let seated = self.served[region].seated.get(usize::from(to.endpoint.index));
            let Some((guest, lane)) = seated.copied().flatten() else { continue };
            let out = &mut self.outs[guest].bytes;
            let receiver =
                if guest == number { Some(&mut *own) } else { self.guests[guest].as_mut() };
            let seat = receiver.and_then(|receiver| receiver.seats.get_mut(&lane));
            self.waits.heed_lane((guest, lane));
            if seat.is_some_and(|seat| seat.forward_mail(lane, out)) && guest != number {
                // At once: it is there when its sender is told so.
                self.flush(guest);
            }
        }
        self.sent = sent;
    }

    /// Ends every wait that has a reason to end. Those that a client's verb may have ended are
    /// known; for those that a process of this host may have ended all are looked at, in a part of
    /// the time: beside many, words that share a bell ring for each other.
    fn look_at_waits(&mut self) {
        self.has_fired |= self.parkers.have_fired();
        let begun = Instant::now();
        // Where there was no time to sleep on what is waited for, that is looked for.
        let is_wanted = self.has_fired || self.is_stale && !self.waits.is_empty();
        let all = is_wanted && begun >= self.looks_from;
        let has_fired = all && std::mem::take(&mut self.has_fired);
        for (number, lane) in self.waits.take_due(all) {
            let Some(mut guest) = self.guests[number].take() else { continue };
            self.look_at_waits_of(number, &mut guest, lane, has_fired);
            self.guests[number] = Some(guest);
        }
        if all {
            self.looks_from = Instant::now() + begun.elapsed() * LOOKS_APART;
        }
        self.is_stale |= has_fired;
    }

    fn look_at_waits_of(&mut self, number: usize, guest: &mut Guest, lane: u32, has_fired: bool) {
        let Some(seat) = guest.seats.get_mut(&lane) else { return };
        if has_fired {
            seat.endpoint.disarm();
        }
        let mut at = 0;
        while at < seat.waits.len() {
            let wait = &mut seat.waits[at];
            // What was armed stays armed.
            let woken = if has_fired || wait.is_over(&seat.endpoint) {
                wait.poll(&seat.endpoint)
            } else {
                None
            };
            match woken {
                None => at += 1,
                Some(woken) => {
                    let wait = seat.waits.swap_remove(at);
                    self.waits.end((number, lane), &wait, &seat.waits);
                    self.end_wait(number, guest.region, (lane, wait.key), woken);
                }
            }
        }
        if seat.forward_mail(lane, &mut self.outs[number].bytes) {
            self.touch(number);
        }
    }

    /// Tells a lane that its wait is over, and first what it must know by then.
    pub(super) fn end_wait(
        &mut self,
        number: usize,
        region: Option<usize>,
        (lane, key): (u32, u32),
        woken: Woken,
    ) {
        if let Some(region) = region {
            self.tell_newcomers(region);
            if let Woken::PeerGone(peer) = woken {
                self.tell_death(region, peer);
            }
        }
        let mut frame = Framing::new(&mut self.outs[number].bytes, reply::WOKEN);
        frame.u32(lane).u32(key);
        put_woken(&mut frame, woken);
        frame.end();
        self.touch(number);
    }

    /// Tells the guests of regions that are not found by their names any more.
    fn look_for_regions(&mut self) {
        let now = Instant::now();
        for region in 0..self.served.len() {
            if self.served[region].finds_itself_gone(now) {
                let mut news = std::mem::take(&mut self.news);
                Framing::new(&mut news, reply::GONE).end();
                self.tell_all(region, news);
            }
        }
    }

    /// The seat of a lane is empty from now on, and everybody learns that its endpoint is dead.
    pub(super) fn detach(&mut self, number: usize, guest: &mut Guest, lane: u32) {
        let Some(region) = guest.region else { return };
        let Some(seat) = guest.seats.remove(&lane) else { return };
        let id = seat.endpoint.id();
        self.is_stale |= self.waits.end_all((number, lane), &seat.waits);
        self.held_back.forget(|held| held == (number, lane));
        self.served[region].seat(id, None);
        seat.endpoint.end();
        self.tell_death(region, id);
        self.waits.heed_all();
    }
}

/// Whether nothing lies between this connection's ends but one kernel.
fn is_local(stream: &TcpStream) -> bool {
    stream.peer_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback())
}

/// Whether the system is short of something that others may give back.
fn is_short(error: i32) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .map(Errno::raw_os_error)
        .contains(&error)
}
