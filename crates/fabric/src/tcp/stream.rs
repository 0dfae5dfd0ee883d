//! A connection's bytes, in the clear or secured. What waits for it polls its socket.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::tls::Secured;

#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Secured(Box<Secured>),
}

impl Stream {
    /// Bytes that a reader must have room for.
    pub(super) const READ_BYTES_MIN: usize = 32 << 10;

    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Secured(secured) => secured.tcp(),
        }
    }

    /// The connection as the system has it. By this it can only be kept open.
    pub(super) fn into_fd(self) -> OwnedFd {
        match self {
            Self::Plain(tcp) => tcp.into(),
            Self::Secured(secured) => secured.into_tcp().into(),
        }
    }

    /// Whether the peer has a right to this region. Without TLS every client has.
    pub(super) fn may_use(&self, region: &str) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Secured(secured) => secured.may_use(region),
        }
    }

    /// Reads once, whatever that brings; `None` at the end.
    #[inline]
    pub(super) fn take(&self, into: &mut [u8], flags: RecvFlags) -> io::Result<Option<usize>> {
        match self {
            Self::Plain(tcp) => match recv(tcp, into, flags)?.1 {
                0 => Ok(None),
                count => Ok(Some(count)),
            },
            Self::Secured(secured) => secured.take(into, flags),
        }
    }

    /// Reads until that brings something, or as the flags say; 0 at the end.
    #[inline]
    pub(super) fn receive(&self, into: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        loop {
            match self.take(into, flags)? {
                // Records without a byte of plaintext.
                Some(0) => {}
                taken => return Ok(taken.unwrap_or(0)),
            }
        }
    }

    /// Whether a read that leaves room has taken all that had come.
    #[inline]
    pub(super) fn takes_all_at_once(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Sends what the system takes now: how many bytes of it.
    #[inline]
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => Ok(send(tcp, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?),
            Self::Secured(secured) => secured.send(bytes),
        }
    }

    /// Sends all of it, on a socket that blocks.
    pub(super) fn send_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => (&mut &*tcp).write_all(bytes),
            Self::Secured(secured) => secured.send_all(bytes),
        }
    }

    /// Whether something that was taken to be sent lies here.
    #[inline]
    pub(super) fn has_unsent(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Secured(secured) => secured.has_unsent(),
        }
    }

    /// Sends what was taken and lies here still.
    ///
    /// # Errors
    /// `WouldBlock`, where the system takes no more for now; or what it says.
    #[inline]
    pub(super) fn push(&self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Secured(secured) => secured.push(),
        }
    }

    /// Ends the connection, whichever processes have it.
    pub(super) fn end(&self) {
        // It may have ended.
        let _ = self.tcp().shutdown(Shutdown::Both);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp().as_fd()
    }
}
