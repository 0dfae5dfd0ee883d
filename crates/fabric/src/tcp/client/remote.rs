//! A region of a server as a connection.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::bell::Unparker;
use super::channel::{Channel, Facts};
use super::inbox::Inbox;
use super::lane::{TcpEndpoint, TcpKeeper, TcpLane, park};
use crate::addr::Addr;
use crate::connection::{Connection, Origin, Peer};
use crate::error::{ConnectError, Garbled};
use crate::shm::serving::Owner;
use crate::tcp::clock::boot_time;
use crate::tcp::silence::keep_alive;
use crate::tcp::wire::{
    FRAME_MAX, Fields, Framing, HEAD, MAGIC, VERSION, next_frame, reply, request,
};

/// How long reaching a server, and its greeting, may take.
const PATIENCE: Duration = Duration::from_secs(5);

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
        let unreachable = |source| ConnectError::Unreachable { server: server.to_owned(), source };
        let mut hello = Vec::new();
        Framing::new(&mut hello, request::HELLO).u64(MAGIC).u16(VERSION).text(region).end();
        let asked_at = boot_time();
        let (stream, greeting, rest) = greet(server, &hello)?;
        let facts = read_greeting(&greeting, server, asked_at)?;
        let names = (server.to_owned(), region.to_owned());
        let channel = Channel::new(stream, names, Owner::this(label.to_owned()), facts, &rest);
        Ok(Self(channel.map_err(unreachable)?))
    }

    /// Whether the connection has ended, by whichever side: its endpoints are dead.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// A connection that keeps a lane alive in any process, and can do nothing else.
    fn tie(&self, lane: u32) -> Result<OwnedFd, ConnectError> {
        let (channel, server) = (&self.0, &self.0.server);
        let secret = channel.tether_secret(lane)?;
        let mut hello = Vec::new();
        Framing::new(&mut hello, request::TETHER).u64(MAGIC).u16(VERSION).u128(secret).end();
        let (stream, answer, _) = greet(server, &hello)?;
        match answer.first() {
            Some(&reply::ANSWER) => {
                let kept = keep_alive(&stream);
                kept.map_err(|source| ConnectError::Unreachable {
                    server: server.clone(),
                    source,
                })?;
                Ok(stream.into())
            }
            _ => Err(declined_or_garbled(&answer, server)),
        }
    }

    fn attach(&self) -> Result<(TcpLane, TcpKeeper), ConnectError> {
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

/// Reaches a server, says this, and waits for its first frame. Returns what came behind it too.
fn greet(server: &str, hello: &[u8]) -> Result<(TcpStream, Vec<u8>, Vec<u8>), ConnectError> {
    let unreachable = |source| ConnectError::Unreachable { server: server.to_owned(), source };
    let mut stream = reach(server).map_err(unreachable)?;
    let said = stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
        .and_then(|()| stream.write_all(hello));
    said.map_err(unreachable)?;
    let (greeting, rest) = first_frame(&mut stream, server)?;
    Ok((stream, greeting, rest))
}

/// The first address of the server that answers.
fn reach(server: &str) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in server.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// The first frame that comes, and what came behind it.
fn first_frame(stream: &mut TcpStream, server: &str) -> Result<(Vec<u8>, Vec<u8>), ConnectError> {
    let name = || server.to_owned();
    let (mut bytes, begun) = (Vec::new(), Instant::now());
    loop {
        let next = next_frame(&bytes);
        let next = next.map_err(|why| ConnectError::Garbled { server: name(), why })?;
        if let Some((frame, length)) = next {
            return Ok((frame.to_vec(), bytes[length..].to_vec()));
        }
        if begun.elapsed() > PATIENCE || bytes.len() > FRAME_MAX + HEAD {
            return Err(ConnectError::NoAnswer { server: name(), within: PATIENCE });
        }
        let mut some = [0; 4096];
        match stream.read(&mut some) {
            Ok(0) => return Err(ConnectError::HungUp { server: name() }),
            Ok(count) => bytes.extend_from_slice(&some[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(ConnectError::NoAnswer { server: name(), within: PATIENCE });
            }
            Err(source) => return Err(ConnectError::Unreachable { server: name(), source }),
        }
    }
}

fn read_greeting(frame: &[u8], server: &str, asked_at: u64) -> Result<Facts, ConnectError> {
    let name = || server.to_owned();
    let garbled = |why| ConnectError::Garbled { server: name(), why };
    let mut fields = Fields(frame);
    if fields.u8().map_err(garbled)? != reply::WELCOME {
        return Err(declined_or_garbled(frame, server));
    }
    let (magic, version) = (fields.u64().map_err(garbled)?, fields.u16().map_err(garbled)?);
    if magic != MAGIC {
        return Err(garbled(Garbled("it does not begin as a server does")));
    }
    if version != VERSION {
        return Err(ConnectError::OtherVersion { server: name(), theirs: version, ours: VERSION });
    }
    let facts = Facts::take(&mut fields, asked_at).map_err(garbled)?;
    fields.end().map_err(garbled)?;
    Ok(facts)
}

/// What a first frame says that is not the one that was hoped for.
fn declined_or_garbled(frame: &[u8], server: &str) -> ConnectError {
    let server = server.to_owned();
    let mut fields = Fields(frame);
    let why = match fields.u8() {
        Ok(reply::DECLINED) => fields.u32().and_then(|_| fields.text()),
        _ => Err(Garbled("it does not begin as a server does")),
    };
    match why {
        Ok(why) => ConnectError::Declined { server, why: why.to_owned() },
        Err(why) => ConnectError::Garbled { server, why },
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
        let (lane, mut keeper) = self.attach()?;
        if is_tethered {
            keeper.tether = Some(self.tie(keeper.number())?);
        }
        Ok((lane, keeper))
    }

    fn tether(keeper: &TcpKeeper) -> io::Result<Option<OwnedFd>> {
        keeper.tether.as_ref().map(OwnedFd::try_clone).transpose()
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
