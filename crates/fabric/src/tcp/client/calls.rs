//! Questions to the server that are no verbs: asked and waited for.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::bell::Unparker;
use super::channel::Channel;
use super::greeting::{self, declined_or_garbled, greet};
use super::inbox::Inbox;
use crate::addr::{Addr, EndpointId};
use crate::connection::{Peer, Teller, Tether};
use crate::error::{ConnectError, Garbled};
use crate::home::Home;
use crate::tcp::clock::boot_time;
use crate::tcp::silence::{Silence, keep_alive};
use crate::tcp::wire::{Fields, Framing, MAGIC, VERSION, call, reply, request};

/// How long a server may take to answer a call.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a lane asks for another tether, where the server knows nothing of one.
const TIES_AGAIN: u8 = 4;

/// A lane that has a tether.
#[derive(Debug)]
struct TiedLane {
    channel: Weak<Channel>,
    lane: u32,
}

impl Teller for TiedLane {
    fn tell(&self, secret: u128) {
        if let Some(channel) = self.channel.upgrade() {
            channel.tell_tied(self.lane, secret);
        }
    }
}

impl Channel {
    /// Attaches a lane whose arrivals come to this inbox.
    pub(super) fn attach(
        &self,
        number: u32,
        inbox: &Arc<Inbox>,
        bell: &Unparker,
    ) -> Result<EndpointId, ConnectError> {
        let owner = &self.owner;
        let epoch = self.say(request::ATTACH, |frame| {
            frame.u32(number).u32(owner.pid).u64(owner.started_ticks);
            put_home(frame, &owner.home);
            frame.text(&owner.label);
        });
        let answer = self.answer(inbox, bell, epoch, (&mut silence(PATIENCE), true))?;
        self.read_answer(&answer, reply::ATTACHED, |fields| {
            let id = fields.id()?;
            if id.is_somebody() { Ok(id) } else { Err(Garbled("an endpoint in it is nobody")) }
        })
    }

    /// How long the heap is, or is made where it is shorter.
    pub(super) fn heap_length(&self, at_least: Option<u64>) -> Result<u64, ConnectError> {
        let answer = self.ask(|frame| {
            match at_least {
                None => frame.u8(call::HEAP),
                Some(bytes) => frame.u8(call::LENGTHEN).u64(bytes),
            };
        })?;
        self.read_answer(&answer, reply::ANSWER, |fields| fields.u64())
    }

    /// Has these words of the heap have their memory.
    pub(super) fn reserve(&self, addr: Addr, bytes: u64) -> Result<(), ConnectError> {
        let answer = self.ask(|frame| {
            frame.u8(call::RESERVE).u64(addr.bits()).u64(bytes);
        })?;
        self.read_answer(&answer, reply::ANSWER, |_| Ok(()))
    }

    /// What a tether of this lane is to say. With a patience it is asked once, within that; the
    /// thread that seeks other connections does not wait for one here.
    fn tether_secret(&self, lane: u32, patience: Option<Duration>) -> Result<u128, ConnectError> {
        let question = |frame: &mut Framing<'_>| {
            frame.u8(call::TETHER).u32(lane);
        };
        let answer = match patience {
            None => self.ask(question)?,
            Some(patience) => self.ask_within((&mut silence(patience), false), question)?,
        };
        self.read_answer(&answer, reply::ANSWER, |fields| fields.u128())
    }

    /// Gives a lane its tether.
    pub(super) fn tie(self: &Arc<Self>, lane: u32) -> Result<(), ConnectError> {
        let mut tries_left = TIES_AGAIN;
        let (fd, secret) = loop {
            let secret = self.tether_secret(lane, None)?;
            match self.tether_by(secret, greeting::PATIENCE) {
                // The connection by which it was promised may have broken, or the server been
                // replaced: it is promised another one.
                Err(ConnectError::Declined { .. }) if tries_left > 0 => tries_left -= 1,
                tied => break (tied?, secret),
            }
        };
        let teller = TiedLane { channel: Arc::downgrade(self), lane };
        let tether = Tether::told_of((fd, secret), Some(Box::new(teller)));
        self.ties.all().insert(lane, tether);
        Ok(())
    }

    /// Every process that had a tether of this lane by an earlier server has this one, or is gone.
    /// Where that is not heard, the next one knows of this one no better.
    fn tell_tied(&self, lane: u32, secret: u128) {
        let told = self.ask_within((&mut silence(self.patience()), false), |frame| {
            frame.u8(call::TIED).u32(lane).u128(secret);
        });
        drop(told);
    }

    /// Replaces the tethers that ended with the last connection, by the thread that looks after
    /// this one. `false`: some are to be replaced later.
    pub(super) fn tie_again(&self) -> bool {
        let all = self.ties.all().clone();
        all.into_iter().all(|(lane, tether)| {
            let secret = self.tether_secret(lane, Some(self.patience()));
            let fd = |secret| Ok((self.tether_by(secret, self.patience())?, secret));
            match secret.and_then(fd) {
                Ok((fd, secret)) => tether.replace(fd, secret),
                // It has what it had.
                Err(ConnectError::Declined { .. } | ConnectError::Garbled { .. }) => {}
                Err(_) => return false,
            }
            true
        })
    }

    /// A connection that keeps a lane's endpoint alive in any process, and can do nothing else.
    fn tether_by(&self, secret: u128, patience: Duration) -> Result<OwnedFd, ConnectError> {
        let hello = |_| {
            let mut hello = Vec::new();
            Framing::new(&mut hello, request::TETHER).u64(MAGIC).u16(VERSION).u128(secret).end();
            hello
        };
        let bytes = &mut Vec::new();
        let (stream, answer, _) = greet(self.tls.as_ref(), &self.server, hello, bytes, patience)?;
        if answer.first() != Some(&reply::ANSWER) {
            return Err(declined_or_garbled(&answer, &self.server));
        }
        let server = self.server.clone();
        let kept = keep_alive(stream.tcp());
        kept.map_err(|source| ConnectError::Unreachable { server, source })?;
        Ok(stream.into_fd())
    }

    /// Has the server take this client for alive for another lease. The thread that asks for that
    /// seeks another connection where one broke, so it does not wait for one here.
    pub(super) fn ask_to_renew(&self, patience: Duration) -> Result<(), ConnectError> {
        let answer = self.ask_within((&mut silence(patience), false), |frame| {
            frame.u8(call::RENEW);
        })?;
        self.read_answer(&answer, reply::ANSWER, |_| Ok(()))
    }

    /// The endpoints that are there. More than a frame holds are asked for again and again.
    pub(super) fn peers(&self) -> Result<Vec<Peer>, ConnectError> {
        let mut peers: Vec<Peer> = Vec::new();
        loop {
            let after = peers.last().map_or(0, |last| last.id.index);
            let answer = self.ask(|frame| {
                frame.u8(call::PEERS).u16(after);
            })?;
            let more = self.read_answer(&answer, reply::ANSWER, take_peers)?;
            // They come in the order of their indices, so this ends.
            let is_last = more.last().is_none_or(|last| last.id.index <= after);
            peers.extend(more);
            if is_last {
                return Ok(peers);
            }
        }
    }

    /// Asks again where the connection broke before the answer came.
    fn ask(&self, question: impl Fn(&mut Framing<'_>)) -> Result<Vec<u8>, ConnectError> {
        let mut silent = silence(PATIENCE);
        loop {
            match self.ask_within((&mut silent, true), &question) {
                Err(ConnectError::HungUp { .. }) if !self.is_over() => {}
                answer => return answer,
            }
        }
    }

    fn ask_within(
        &self,
        silence: (&mut Silence, bool),
        question: impl Fn(&mut Framing<'_>),
    ) -> Result<Vec<u8>, ConnectError> {
        let bell = Unparker::default();
        let (number, inbox) = (self.number(), Arc::new(Inbox::of(0, bell.clone())));
        self.enter(number, &inbox);
        let epoch = self.say(request::CALL, |frame| question(frame.u32(number)));
        let answer = self.answer(&inbox, &bell, epoch, silence);
        self.leave(number);
        answer
    }

    /// The frame that answers what was said after the connection had broken so often, unless the
    /// silence is over before, and where there is no connection perhaps by another one.
    fn answer(
        &self,
        inbox: &Inbox,
        bell: &Unparker,
        epoch: u32,
        (silence, by_another): (&mut Silence, bool),
    ) -> Result<Vec<u8>, ConnectError> {
        self.flush();
        loop {
            let mut state = inbox.state();
            if let Some(answer) = state.answer.take() {
                return Ok(answer);
            }
            let is_over = state.is_over || state.epoch != epoch || !by_another && self.is_broken();
            let is_late = silence.is_over(boot_time());
            drop(state);
            let server = self.server.clone();
            if is_over {
                return Err(ConnectError::HungUp { server });
            }
            if is_late {
                return Err(ConnectError::NoAnswer { server, within: PATIENCE });
            }
            // A server that is silent is no reason to take this process for one that does not run.
            self.note_running();
            let notes_at = boot_time() + self.lease().length / 8;
            self.sleep(bell, Some(silence.looks_at().min(notes_at)), false);
        }
    }

    pub(super) fn read_answer<T>(
        &self,
        answer: &[u8],
        kind: u8,
        read: impl FnOnce(&mut Fields<'_>) -> Result<T, Garbled>,
    ) -> Result<T, ConnectError> {
        let server = self.server.clone();
        let mut fields = Fields(answer);
        let garbled = |why| ConnectError::Garbled { server: server.clone(), why };
        if fields.u8().map_err(garbled)? == reply::DECLINED {
            let why = fields.reason().map_err(garbled)?;
            return Err(ConnectError::Declined { server, why });
        }
        if answer[0] != kind {
            return Err(garbled(Garbled("it answers another question")));
        }
        let value = read(&mut fields).map_err(garbled)?;
        fields.end().map_err(garbled)?;
        Ok(value)
    }
}

/// One that begins now, and is borne for so long.
fn silence(patience: Duration) -> Silence {
    Silence::within(patience, boot_time())
}

/// Writes a peer for display.
pub(in crate::tcp) fn put_peer(frame: &mut Framing<'_>, peer: &Peer) {
    let flags = u8::from(peer.tethered) | u8::from(peer.orphaned) << 1;
    frame.id(peer.id).u32(peer.pid).u64(peer.started_ticks).u64(peer.since);
    frame.u8(flags).text(&peer.label);
    put_home(frame, &peer.home);
}

fn put_home(frame: &mut Framing<'_>, home: &Home) {
    frame.u64(home.id).text(&home.host);
}

/// Where a process lives.
pub(in crate::tcp) fn take_home(fields: &mut Fields<'_>) -> Result<Home, Garbled> {
    Ok(Home { id: fields.u64()?, host: fields.text()?.to_owned() })
}

pub(super) fn take_peers(fields: &mut Fields<'_>) -> Result<Vec<Peer>, Garbled> {
    let count = fields.u16()?;
    (0..count).map(|_| take_peer(fields)).collect()
}

fn take_peer(fields: &mut Fields<'_>) -> Result<Peer, Garbled> {
    let id = fields.id()?;
    let (pid, started_ticks, since) = (fields.u32()?, fields.u64()?, fields.u64()?);
    let flags = fields.u8()?;
    let (label, home) = (fields.text()?.to_owned(), take_home(fields)?);
    let (tethered, orphaned) = (flags & 1 != 0, flags & 2 != 0);
    Ok(Peer { id, pid, started_ticks, since, label, home, tethered, orphaned })
}
