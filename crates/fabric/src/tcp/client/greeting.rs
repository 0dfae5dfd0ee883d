//! How a connection begins: a server is reached, and says what it is.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;

use super::facts::Facts;
use crate::error::{ConnectError, Garbled, TlsFault};
use crate::tcp::stream::Stream;
use crate::tcp::tls::ClientTls;
use crate::tcp::wire::{FRAME_MAX, Fields, HEAD, MAGIC, VERSION, next_frame, reply};

/// So much is read at once, where there is so much.
pub(super) const READ_BYTES: usize = 64 << 10;

/// How long reaching a server, and its greeting, may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Reaches a server, says this, which may name the port that the connection comes from, and waits
/// for the first frame. What came behind that lies in `bytes` then. Returns how many bytes that is.
pub(super) fn greet(
    tls: Option<&ClientTls>,
    server: &str,
    hello: impl FnOnce(u16) -> Vec<u8>,
    bytes: &mut Vec<u8>,
    patience: Duration,
) -> Result<(Stream, Vec<u8>, usize), ConnectError> {
    let unreachable = |source| ConnectError::Unreachable { server: server.to_owned(), source };
    let tcp = reach(server, patience).map_err(unreachable)?;
    let prepared = tcp
        .set_nodelay(true)
        .and_then(|()| tcp.set_read_timeout(Some(patience)))
        .and_then(|()| tcp.set_write_timeout(Some(patience)));
    prepared.map_err(unreachable)?;
    let stream = match tls {
        None => Stream::Plain(tcp),
        Some(tls) => Stream::Secured(Box::new(tls.shake_hands(tcp, server, patience)?)),
    };
    let port = stream.tcp().local_addr().map_or(0, |own| own.port());
    let said = stream.send_all(&hello(port));
    let answered = first_frame(&stream, server, bytes, patience);
    // A server that hung up before it was told all may have said why.
    if let (Err(source), Err(ConnectError::HungUp { .. } | ConnectError::Unreachable { .. })) =
        (said, &answered)
    {
        return Err(unreachable(source));
    }
    let (greeting, filled) = answered?;
    Ok((stream, greeting, filled))
}

/// The first address of the server that answers.
fn reach(server: &str, patience: Duration) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in server.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) if is_its_own_peer(&stream) => {
                failed = io::ErrorKind::ConnectionRefused.into();
            }
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Whether nobody listens there, and the system gave the connection that very port: then it is
/// connected to itself.
fn is_its_own_peer(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(own), Ok(peer)) if own == peer)
}

/// The first frame that comes. What came behind it lies in `bytes` then; so much it is.
fn first_frame(
    stream: &Stream,
    server: &str,
    bytes: &mut Vec<u8>,
    patience: Duration,
) -> Result<(Vec<u8>, usize), ConnectError> {
    /// How a server begins that speaks TLS alone, and was told something else: with an alert. No
    /// frame is so long.
    const ALERT: [u8; 4] = [0x15, 0x03, 0x03, 0x00];
    let name = || server.to_owned();
    let (mut filled, begun) = (0, Instant::now());
    loop {
        if bytes[..filled].starts_with(&ALERT) {
            return Err(ConnectError::Tls { server: name(), why: TlsFault::Wanted });
        }
        let next = next_frame(&bytes[..filled]);
        let next = next.map_err(|why| ConnectError::Garbled { server: name(), why })?;
        if let Some((frame, length)) = next {
            let frame = frame.to_vec();
            bytes.copy_within(length..filled, 0);
            return Ok((frame, filled - length));
        }
        if begun.elapsed() > patience || filled > FRAME_MAX + HEAD {
            return Err(ConnectError::NoAnswer { server: name(), within: patience });
        }
        make_room(bytes, filled);
        match stream.receive(&mut bytes[filled..], RecvFlags::empty()) {
            Ok(0) => return Err(ConnectError::HungUp { server: name() }),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ConnectError::of_stream(error, server, patience)),
        }
    }
}

/// Has a buffer take as much as is read at once, behind what it is filled with.
pub(super) fn make_room(bytes: &mut Vec<u8>, filled: usize) {
    if bytes.len() < filled + Stream::READ_BYTES_MIN {
        bytes.resize(filled + READ_BYTES, 0);
    }
}

pub(super) fn read_greeting(
    frame: &[u8],
    server: &str,
    asked_at: u64,
) -> Result<Facts, ConnectError> {
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
pub(super) fn declined_or_garbled(frame: &[u8], server: &str) -> ConnectError {
    let server = server.to_owned();
    let mut fields = Fields(frame);
    let why = match fields.u8() {
        Ok(reply::DECLINED) => fields.u32().and_then(|_| fields.reason()),
        _ => Err(Garbled("it does not begin as a server does")),
    };
    match why {
        Ok(why) => ConnectError::Declined { server, why },
        Err(why) => ConnectError::Garbled { server, why },
    }
}
