//! In the place of `tls` where this crate is built without it: there is nothing of these.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use rustix::net::RecvFlags;

use super::credentials::TlsFiles;
use crate::error::{ConnectError, TlsFileFault};

/// What a server shows; this build has none.
#[derive(Clone, Debug)]
pub enum ServerTls {}

/// What a client shows; this build has none.
#[derive(Clone, Debug)]
pub enum ClientTls {}

#[derive(Debug)]
pub(super) enum Secured {}

fn unsupported(from: &TlsFiles) -> ConnectError {
    ConnectError::TlsFile { path: from.certificate.clone(), why: TlsFileFault::Unsupported }
}

impl ServerTls {
    /// Needs the feature `tls`.
    ///
    /// # Errors
    /// [`ConnectError::TlsFile`].
    pub fn load(from: &TlsFiles) -> Result<Self, ConnectError> {
        Err(unsupported(from))
    }

    /// Needs the feature `tls`.
    pub fn expires_within(&self, _time: Duration) -> bool {
        match *self {}
    }

    /// Needs the feature `tls`.
    pub fn on_refused(&self, _tell: impl Fn(&ConnectError) + Send + Sync + 'static) {
        match *self {}
    }

    pub(super) fn judges(&self) -> u64 {
        match *self {}
    }

    pub(super) fn still_takes(&self, _client: &Secured) -> Option<bool> {
        match *self {}
    }

    pub(super) fn accept(&self, _tcp: TcpStream) -> Option<Secured> {
        match *self {}
    }
}

impl ClientTls {
    /// Needs the feature `tls`.
    ///
    /// # Errors
    /// [`ConnectError::TlsFile`].
    pub fn load(from: &TlsFiles) -> Result<Self, ConnectError> {
        Err(unsupported(from))
    }

    pub(super) fn shake_hands(
        &self,
        _tcp: TcpStream,
        _server: &str,
        _patience: Duration,
    ) -> Result<Secured, ConnectError> {
        match *self {}
    }
}

impl Secured {
    pub(super) fn tcp(&self) -> &TcpStream {
        match *self {}
    }

    pub(super) fn into_tcp(self) -> TcpStream {
        match self {}
    }

    pub(super) fn may_use(&self, _region: &str) -> bool {
        match *self {}
    }

    pub(super) fn take(&self, _: &mut [u8], _: RecvFlags) -> io::Result<Option<usize>> {
        match *self {}
    }

    pub(super) fn send(&self, _bytes: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn send_all(&self, _bytes: &[u8]) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn has_unsent(&self) -> bool {
        match *self {}
    }

    pub(super) fn push(&self) -> io::Result<()> {
        match *self {}
    }
}
