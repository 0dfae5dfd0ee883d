//! A region of a server as a connection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::bell::Unparker;
use super::channel::Channel;
use super::greeting::{PATIENCE, greet, read_greeting};
use super::inbox::Inbox;
use super::lane::{TcpEndpoint, TcpKeeper, TcpLane, park, watch};
use crate::addr::Addr;
use crate::connection::{Connection, Origin, Peer, Tether};
use crate::error::ConnectError;
use crate::home::home_id;
use crate::shm::fork;
use crate::shm::serving::Owner;
use crate::tcp::clock::boot_time;
use crate::tcp::tls::ClientTls;
use crate::tcp::wire::{Framing, MAGIC, VERSION, reply, request, visible};

/// A region that a server serves. Clones are the same connection; its endpoints share one TCP
/// connection, and die with it.
#[derive(Clone, Debug)]
pub struct Remote(Arc<Channel>);

impl Remote {
    /// Connects to the region of this name by a server, `host:port`, which may create it where it
    /// is missing. Others see this process under this label, of at most 40 bytes.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(server: &str, region: &str, label: &str) -> Result<Self, ConnectError> {
        Self::connect_by(None, server, (request::HELLO, region), label)
    }

    /// The same over TLS: server and client show each other certificates.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect_secured(
        tls: &ClientTls,
        server: &str,
        region: &str,
        label: &str,
    ) -> Result<Self, ConnectError> {
        Self::connect_by(Some(tls), server, (request::HELLO, region), label)
    }

    /// The same, in the clear or over TLS, of a region that is not made where it is missing.
    ///
    /// # Errors
    /// See [`ConnectError`]: [`Absent`](ConnectError::Absent) where it is missing.
    pub fn find(
        tls: Option<&ClientTls>,
        server: &str,
        region: &str,
        label: &str,
    ) -> Result<Self, ConnectError> {
        Self::connect_by(tls, server, (request::FIND, region), label)
    }

    fn connect_by(
        tls: Option<&ClientTls>,
        server: &str,
        (how, region): (u8, &str),
        label: &str,
    ) -> Result<Self, ConnectError> {
        fork::watch().map_err(|source| ConnectError::System { what: "watch for forks", source })?;
        // No host has a name that is not visible.
        let server = &visible(server);
        let unreachable = |source| ConnectError::Unreachable { server: server.to_owned(), source };
        let hello = |port| {
            let mut hello = Vec::new();
            let mut frame = Framing::new(&mut hello, how);
            frame.u64(MAGIC).u16(VERSION).text(region).u128(home_id()).u16(port).end();
            hello
        };
        let (asked_at, mut rest) = (boot_time(), Vec::new());
        let (stream, greeting, filled) = greet(tls, server, hello, &mut rest, PATIENCE)?;
        if greeting == [reply::ABSENT] {
            return Err(ConnectError::Absent { name: region.to_owned(), dir: server.into() });
        }
        let facts = read_greeting(&greeting, server, asked_at)?;
        let names = (server.to_owned(), region.to_owned());
        let (stream, owner) = ((stream, tls.cloned()), Owner::this(label.to_owned()));
        let channel = Channel::new(stream, names, owner, facts, (asked_at, rest, filled));
        Ok(Self(channel.map_err(unreachable)?))
    }

    /// Whether its endpoints are dead, or may be by now: the connection has ended, and no other was
    /// to be had in time.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// Whether they died because the server takes this client's certificate no more.
    pub fn is_revoked(&self) -> bool {
        self.0.is_revoked()
    }

    /// Whether they died because this process did not run, and so did not ask for its lease: it was
    /// stopped, or its host stood still.
    pub fn has_slept_through(&self) -> bool {
        self.0.has_slept_through()
    }

    /// Its user is about to go: nothing waits for another connection any more where this one
    /// breaks.
    pub fn leave(&self) {
        self.0.leave_it();
    }

    /// For how long its endpoints live at least, whatever becomes of the connection and the server.
    pub fn valid_for(&self) -> Duration {
        Duration::from_nanos(self.0.valid_for())
    }

    /// Whether they live for as long as the connection stands, however long this process says
    /// nothing.
    pub fn is_kept_by_connection(&self) -> bool {
        self.0.is_kept_by_connection()
    }

    /// The address of its server, as it was given.
    pub fn server(&self) -> &str {
        &self.0.server
    }

    /// Sleeps as [`Connection::park_all`] does, also where nothing is pending by these lanes, and
    /// takes in meanwhile what comes for others, whose tasks are woken.
    pub fn watch<'l>(
        &self,
        lanes: impl Iterator<Item = &'l TcpLane> + Clone,
        unparker: &Unparker,
        limit: Option<Duration>,
    ) {
        let nanos = |limit: Duration| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let until = limit.map(|limit| boot_time().saturating_add(nanos(limit)));
        watch(&self.0, lanes, unparker, until);
    }

    /// Tries again where the connection broke meanwhile.
    fn attach(&self) -> Result<(TcpLane, TcpKeeper), ConnectError> {
        const TIMES: u32 = 3;
        for _ in 1..TIMES {
            match self.try_to_attach() {
                Err(ConnectError::HungUp { .. }) if !self.is_over() => {}
                attached => return attached,
            }
        }
        self.try_to_attach()
    }

    fn try_to_attach(&self) -> Result<(TcpLane, TcpKeeper), ConnectError> {
        let (channel, bell) = (&self.0, Unparker::default());
        let inbox = Arc::new(Inbox::of(channel.facts.slots, bell.clone()));
        let number = channel.number();
        channel.enter(number, &inbox);
        let attached = channel.attach(number, &inbox, &bell);
        let id = attached.inspect_err(|_| channel.leave(number))?;
        let keeper = TcpKeeper::new(channel, number, &inbox);
        let mut seed = [0; 8];
        // No secret hangs on these numbers: different at every start is enough.
        let drawn = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
        let seed = if drawn == Ok(8) { u64::from_ne_bytes(seed) } else { boot_time() };
        Ok((TcpLane::new(channel, number, id, (&inbox, &bell), seed), keeper))
    }
}

impl Connection for Remote {
    type Endpoint = TcpEndpoint;
    type Lane = TcpLane;
    type Keeper = TcpKeeper;
    type Unparker = Unparker;

    fn name(&self) -> &str {
        &self.0.region
    }

    /// The length is what the server says now; where it cannot be asked, what it said last.
    fn heap(&self) -> (Addr, u64) {
        let bytes = self.0.heap_length(None);
        let known = &self.0.heap_bytes;
        let bytes = bytes.map_or_else(
            |_| known.load(Ordering::Relaxed),
            |bytes| bytes.max(known.fetch_max(bytes, Ordering::Relaxed)),
        );
        (self.0.facts.heap, bytes)
    }

    fn lengthen(&self, heap_bytes: u64) -> Result<(), ConnectError> {
        let bytes = self.0.heap_length(Some(heap_bytes))?;
        self.0.heap_bytes.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn reserve(&self, addr: Addr, bytes: u64) -> Result<(), ConnectError> {
        self.0.reserve(addr, bytes)
    }

    fn origin(&self) -> Origin {
        self.0.facts.origin
    }

    fn places(&self) -> u16 {
        self.0.facts.acting
    }

    fn is_deleted(&self) -> bool {
        // What was told may lie unread.
        self.0.read_now(&Unparker::default());
        self.0.is_gone()
    }

    /// None, where the server cannot be asked.
    fn peers(&self) -> Vec<Peer> {
        self.0.peers().unwrap_or_default()
    }

    fn endpoint(&self) -> Result<TcpEndpoint, ConnectError> {
        let (lane, keeper) = self.attach()?;
        Ok(TcpEndpoint { lane, _keeper: keeper })
    }

    /// The tether is a connection of its own, by which nothing can be done.
    fn lane(&self, is_tethered: bool) -> Result<(TcpLane, TcpKeeper), ConnectError> {
        let (lane, keeper) = self.attach()?;
        if is_tethered {
            self.0.tie(keeper.number())?;
        }
        Ok((lane, keeper))
    }

    fn tether(keeper: &TcpKeeper) -> io::Result<Option<Tether>> {
        Ok(keeper.tether())
    }

    fn own_thread(&self) -> impl Sized + use<> {}

    fn unparker(lane: &TcpLane) -> Unparker {
        lane.unparker()
    }

    fn unpark(unparker: &Unparker) {
        unparker.ring();
    }

    fn park_all<'l>(lanes: impl Iterator<Item = &'l TcpLane> + Clone, unparker: &Unparker) {
        let Some(first) = lanes.clone().next() else { return };
        park(&first.channel().clone(), lanes, unparker);
    }
}
