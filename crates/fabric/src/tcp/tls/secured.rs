//! A TCP connection whose bytes are sealed by TLS.
//!
//! Nothing waits for the other side with the mutex held, so one thread may sleep for what comes
//! while others send. What is opened is handed out at once: no plaintext lies in here when a call
//! returns, so a reader may sleep by the socket alone.

use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::Connection;
use rustls::server::danger::ClientCertVerifier;

use super::{fault, files};
use crate::tcp::credentials::gives_right;

/// Sealed bytes taken from the system at once.
const SEALED_BYTES: usize = 15 << 10;

/// Bytes of the longest record, sealed.
const RECORD_BYTES: usize = (16 << 10) + 256;

/// What a reader must have room for: what one read can open.
const OPENED_BYTES: usize = SEALED_BYTES + RECORD_BYTES;

#[derive(Debug)]
pub(in crate::tcp) struct Secured {
    tcp: TcpStream,
    connection: Mutex<Connection>,
}

impl Secured {
    pub(super) fn new(tcp: TcpStream, connection: Connection) -> Self {
        Self { tcp, connection: Mutex::new(connection) }
    }

    pub(in crate::tcp) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    pub(in crate::tcp) fn into_tcp(self) -> TcpStream {
        self.tcp
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shakes hands as a client, on a socket that blocks.
    pub(super) fn shake_hands(&self, patience: Duration) -> io::Result<()> {
        let (begun, mut none) = (Instant::now(), [0; OPENED_BYTES]);
        loop {
            self.push_all()?;
            if !self.connection().is_handshaking() {
                return Ok(());
            }
            if begun.elapsed() > patience {
                return Err(ErrorKind::WouldBlock.into());
            }
            match self.take(&mut none, RecvFlags::empty()) {
                // A server sends nothing of its own before it was greeted.
                Ok(Some(_)) => {}
                Ok(None) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the peer's certificate is for this region.
    pub(in crate::tcp) fn may_use(&self, region: &str) -> bool {
        let connection = self.connection();
        let shown = connection.peer_certificates().and_then(<[_]>::first);
        shown.is_some_and(|shown| {
            let certificate = webpki::EndEntityCert::try_from(shown);
            certificate.is_ok_and(|shown| gives_right(shown.valid_uri_names(), region))
        })
    }

    /// Whether this judge takes the client's certificate, whatever the time is; `None` while none
    /// was shown.
    pub(super) fn is_taken_by(&self, judge: &dyn ClientCertVerifier) -> Option<bool> {
        use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
        let connection = self.connection();
        let (shown, links) = connection.peer_certificates()?.split_first()?;
        Some(match judge.verify_client_cert(shown, links, files::after(Duration::ZERO)) {
            Ok(_) => true,
            Err(rustls::Error::InvalidCertificate(error)) => matches!(
                error,
                Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. }
            ),
            Err(_) => false,
        })
    }

    /// Reads once from the system, and opens that: how many bytes of plaintext it brought, which
    /// may be none; `None` at the end.
    pub(in crate::tcp) fn take(
        &self,
        into: &mut [u8],
        flags: RecvFlags,
    ) -> io::Result<Option<usize>> {
        assert!(into.len() >= OPENED_BYTES, "what is opened must have room");
        let mut sealed = [const { MaybeUninit::uninit() }; SEALED_BYTES];
        let ((sealed, _), _) = recv(&self.tcp, &mut sealed[..], flags)?;
        if sealed.is_empty() {
            return Ok(None);
        }
        let mut connection = self.connection();
        let opened = open(&mut connection, sealed, into);
        // What it has to say to that; what does not fit now goes with what is sent next.
        let _ = push(&mut connection, &self.tcp);
        opened
    }

    /// Seals bytes and sends them, as far as the system takes them now. Returns how many it took.
    pub(in crate::tcp) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut connection = self.connection();
        push(&mut connection, &self.tcp)?;
        let count = connection.writer().write(bytes)?;
        match push(&mut connection, &self.tcp) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Sends all of it, on a socket that blocks.
    pub(in crate::tcp) fn send_all(&self, bytes: &[u8]) -> io::Result<()> {
        self.connection().writer().write_all(bytes)?;
        self.push_all()
    }

    /// Whether something is sealed and not sent.
    pub(in crate::tcp) fn has_unsent(&self) -> bool {
        self.connection().wants_write()
    }

    /// Sends what is sealed.
    ///
    /// # Errors
    /// `WouldBlock`, where the system takes no more for now; or what it says.
    pub(in crate::tcp) fn push(&self) -> io::Result<()> {
        push(&mut self.connection(), &self.tcp)
    }

    fn push_all(&self) -> io::Result<()> {
        let mut connection = self.connection();
        while connection.wants_write() {
            connection.write_tls(&mut &self.tcp)?;
        }
        Ok(())
    }
}

/// Opens what came. `None`: the peer says that nothing more will.
fn open(
    connection: &mut Connection,
    mut sealed: &[u8],
    into: &mut [u8],
) -> io::Result<Option<usize>> {
    let mut opened = 0;
    while !sealed.is_empty() {
        let taken = connection.read_tls(&mut sealed)?;
        let state = connection.process_new_packets();
        let state =
            state.map_err(|error| io::Error::new(ErrorKind::InvalidData, fault::of(error)))?;
        let ready = state.plaintext_bytes_to_read();
        if ready > 0 {
            connection.reader().read_exact(&mut into[opened..opened + ready])?;
            opened += ready;
        }
        if state.peer_has_closed() || taken == 0 {
            return Ok((opened > 0).then_some(opened));
        }
    }
    Ok(Some(opened))
}

fn push(connection: &mut Connection, tcp: &TcpStream) -> io::Result<()> {
    while connection.wants_write() {
        connection.write_tls(&mut NeverBlocking(tcp))?;
    }
    Ok(())
}

/// A socket, written to only as far as the system takes it now.
struct NeverBlocking<'t>(&'t TcpStream);

impl Write for NeverBlocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::io::retry_on_intr(|| send(self.0, bytes, flags))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
