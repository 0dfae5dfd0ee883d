//! TLS 1.3 by rustls, where both sides have a certificate: what a server and a client are given,
//! and connections that are secured.
//!
//! No session is resumed, for each begins with a look at the certificates; and the end of a
//! connection is that of TCP, so that a tether ends with the last process that has it.

mod fault;
mod files;
mod secured;

use std::fmt;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

pub use files::{Revoked, certificate_number, revoked};
pub(super) use secured::Secured;

use files::{Own, Revocations, Stamp};

use super::credentials::TlsFiles;
use crate::error::{ConnectError, TlsFault, TlsFileFault};

/// How seldom a server looks whether its files are others now.
const LOOK_FOR_FILES: Duration = Duration::from_secs(1);

/// What a server shows, and by whom its clients may be certified: what its files say when a client
/// comes. Clones are the same.
#[derive(Clone)]
pub struct ServerTls {
    files: TlsFiles,
    shown: Arc<Mutex<Shown>>,
    on_refused: Arc<OnceLock<OnRefused>>,
}

/// What is told why files that have changed are not used, or not taken by clients.
type OnRefused = Box<dyn Fn(&ConnectError) + Send + Sync>;

/// What was read last. Each part is renewed by itself: files that cannot be used keep no list of
/// revoked certificates from being heeded.
struct Shown {
    config: Arc<ServerConfig>,
    own: Part<Own>,
    roots: Part<RootCertStore>,
    revoked: Part<Revocations>,
    judge: Arc<dyn ClientCertVerifier>,
    /// How often the judge was another.
    judges: u64,
    looked_at: Instant,
}

/// What files said when they made sense last.
struct Part<T> {
    said: T,
    stamp: Stamp,
    /// The files that were refused last, and whether that was told.
    refused: Option<(Stamp, bool)>,
}

/// What a client shows, and by whom its servers may be certified. Clones are the same.
#[derive(Clone)]
pub struct ClientTls(Arc<ClientConfig>);

impl ServerTls {
    /// Reads the files. A certificate that is over, or not valid yet, is refused: no client would
    /// take it.
    ///
    /// # Errors
    /// [`ConnectError::TlsFile`].
    pub fn load(from: &TlsFiles) -> Result<Self, ConnectError> {
        let looked_at = Instant::now();
        let [of_own, of_roots, of_lists] = stamps(from);
        let roots = Part::read(of_roots, || files::read_roots(from))?;
        let own = Part::read(of_own, || files::read_own(from))?;
        let revoked = Part::read(of_lists, || files::read_revoked(from, &roots.said))?;
        let judge = judge_of(from, &roots.said, &revoked.said)?;
        files::check_time(from, Duration::ZERO)?;
        let config = config_of(from, &own.said, &judge)?;
        let shown = Shown { config, own, roots, revoked, judge, judges: 0, looked_at };
        let shown = Arc::new(Mutex::new(shown));
        Ok(Self { files: from.clone(), shown, on_refused: Arc::default() })
    }

    /// Has this told, on the thread that runs the server, where files that have changed make no
    /// sense, or where the certificate is one that clients refuse for its time. The first that is
    /// said is told.
    pub fn on_refused(&self, tell: impl Fn(&ConnectError) + Send + Sync + 'static) {
        // One that is there stays.
        let _ = self.on_refused.set(Box::new(tell));
    }

    /// Whether its certificate, as the file is now, will be over after this time. Of files that are
    /// just being replaced nothing is said.
    pub fn expires_within(&self, time: Duration) -> bool {
        let judged = files::check_time(&self.files, time);
        matches!(judged, Err(ConnectError::TlsFile { why: TlsFileFault::Expired, .. }))
    }

    /// As the files are now, so that a certificate is renewed while clients hold locks. While they
    /// are being replaced, and make no sense together, what was read before goes on.
    fn shown(&self) -> MutexGuard<'_, Shown> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.looked_at.elapsed() > LOOK_FOR_FILES {
            shown.looked_at = Instant::now();
            self.renew(&mut shown);
        }
        shown
    }

    /// How often clients are judged by other files since the beginning: those that are here are to
    /// be judged again then.
    pub(super) fn judges(&self) -> u64 {
        self.shown().judges
    }

    /// Whether a client that was taken would still be, whatever the time is; `None` while it has
    /// not shown its certificate.
    pub(super) fn still_takes(&self, client: &Secured) -> Option<bool> {
        let judge = Arc::clone(&self.shown().judge);
        client.is_taken_by(&*judge)
    }

    /// Reads files that have changed.
    fn renew(&self, shown: &mut Shown) {
        let (files, mut refused) = (&self.files, Vec::new());
        let [of_own, of_roots, of_lists] = stamps(files);
        let mut heed = |renewed: Result<bool, ConnectError>| {
            renewed.unwrap_or_else(|why| {
                refused.push(why);
                false
            })
        };
        let has_roots = heed(shown.roots.renew(of_roots, || files::read_roots(files)));
        let roots = &shown.roots.said;
        let has_lists = heed(shown.revoked.renew(of_lists, || files::read_revoked(files, roots)));
        let judges_anew = has_roots || has_lists;
        if judges_anew {
            let judge = judge_of(files, roots, &shown.revoked.said);
            heed(judge.map(|judge| {
                shown.judge = judge;
                shown.judges += 1;
                true
            }));
        }
        let judge = &shown.judge;
        let shows_anew = heed(shown.own.renew(of_own, || {
            let own = files::read_own(files)?;
            config_of(files, &own, judge).map(|_| own)
        }));
        if judges_anew || shows_anew {
            let config = config_of(files, &shown.own.said, judge);
            heed(config.map(|config| {
                shown.config = config;
                true
            }));
            heed(files::check_time(files, Duration::ZERO).map(|()| true));
        }
        if let Some(tell) = self.on_refused.get() {
            refused.iter().for_each(tell);
        }
    }

    /// The server's side of a connection that was accepted; `None` where there is no memory.
    pub(super) fn accept(&self, tcp: TcpStream) -> Option<Secured> {
        let connection = ServerConnection::new(Arc::clone(&self.shown().config)).ok()?;
        Some(Secured::new(tcp, connection.into()))
    }
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`ConnectError::TlsFile`].
    pub fn load(from: &TlsFiles) -> Result<Self, ConnectError> {
        let (roots, Own { chain, key }) = (files::read_roots(from)?, files::read_own(from)?);
        let revoked = files::read_revoked(from, &roots)?;
        let judge = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .with_crls(revoked)
            .allow_unknown_revocation_status()
            .build()
            .map_err(|error| no_judge(from, &error))?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has suites of this version")
            .with_webpki_verifier(judge);
        let config = builder.with_client_auth_cert(chain, key);
        let mut config = config.map_err(|error| files::refused(from, &error))?;
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }

    /// Shakes hands with the server of this name, `host:port`, which may take so long.
    pub(super) fn shake_hands(
        &self,
        tcp: TcpStream,
        server: &str,
        patience: Duration,
    ) -> Result<Secured, ConnectError> {
        let failed = |why| ConnectError::Tls { server: server.to_owned(), why };
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|_| failed(TlsFault::OtherName))?;
        let connection = ClientConnection::new(Arc::clone(&self.0), name)
            .map_err(|error| failed(fault::of(error)))?;
        let secured = Secured::new(tcp, connection.into());
        match secured.shake_hands(patience) {
            Ok(()) => Ok(secured),
            Err(error) => Err(ConnectError::of_stream(error, server, patience)),
        }
    }
}

impl<T> Part<T> {
    fn read(
        stamp: Stamp,
        read: impl FnOnce() -> Result<T, ConnectError>,
    ) -> Result<Self, ConnectError> {
        Ok(Self { said: read()?, stamp, refused: None })
    }

    /// Reads files that have changed. Returns whether they say something else now. Of those that
    /// are refused it is told once, if they are still as they were at the look before: until then
    /// they may be about to be replaced.
    fn renew(
        &mut self,
        stamp: Stamp,
        read: impl FnOnce() -> Result<T, ConnectError>,
    ) -> Result<bool, ConnectError> {
        if stamp == self.stamp {
            return Ok(false);
        }
        match read() {
            Ok(said) => {
                *self = Self { said, stamp, refused: None };
                Ok(true)
            }
            Err(why) => match self.refused.replace((stamp, true)) {
                Some((same, true)) if same == stamp => Ok(false),
                Some((same, false)) if same == stamp => Err(why),
                _ => {
                    self.refused = Some((stamp, false));
                    Ok(false)
                }
            },
        }
    }
}

/// What tells the files of a side's own, of the authorities, and of what is revoked from those that
/// they have replaced.
fn stamps(files: &TlsFiles) -> [Stamp; 3] {
    let TlsFiles { authority, certificate, key, revoked } = files;
    [[certificate, key], [authority, authority], [revoked, revoked]]
        .map(|[one, other]| files::stamp([one, other]))
}

/// The judge of clients that these may have certified, and that have not been taken back.
fn judge_of(
    from: &TlsFiles,
    roots: &RootCertStore,
    revoked: &Revocations,
) -> Result<Arc<dyn ClientCertVerifier>, ConnectError> {
    // What no list speaks of is not revoked; no list need be there, nor be new.
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots.clone()), provider())
        .with_crls(revoked.iter().cloned())
        .allow_unknown_revocation_status()
        .build()
        .map_err(|error| no_judge(from, &error))
}

fn config_of(
    from: &TlsFiles,
    own: &Own,
    judge: &Arc<dyn ClientCertVerifier>,
) -> Result<Arc<ServerConfig>, ConnectError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has suites of this version")
        .with_client_cert_verifier(Arc::clone(judge));
    let config = builder.with_single_cert(own.chain.clone(), own.key.clone_key());
    let mut config = config.map_err(|error| files::refused(from, &error))?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Files that were read and by which nobody can be judged.
fn no_judge(from: &TlsFiles, error: &VerifierBuilderError) -> ConnectError {
    let path = match error {
        VerifierBuilderError::InvalidCrl(_) => &from.revoked,
        _ => &from.authority,
    };
    ConnectError::TlsFile { path: path.clone(), why: TlsFileFault::Damaged }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}
