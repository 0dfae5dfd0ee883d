//! Reads certificates and private keys.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, TrustAnchor, UnixTime,
};
use webpki::BorrowedCertRevocationList;

use super::TlsFiles;
use crate::error::{ConnectError, TlsFileFault};

/// Bytes of a file of certificates, at most: what is longer is none.
const BYTES_MAX: u64 = 1 << 20;

/// What others than its owner may do with a file.
const OTHERS: u32 = 0o077;

/// Certificates that were taken back.
pub(super) type Revocations = Vec<CertificateRevocationListDer<'static>>;

/// What one side shows.
pub(super) struct Own {
    /// Its certificate, with what links it to an authority.
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

pub(super) fn read_own(from: &TlsFiles) -> Result<Own, ConnectError> {
    let chain = certificates(&from.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&contents(&from.key, true)?);
    let key = key.map_err(|_| failed(&from.key, TlsFileFault::Damaged))?;
    Ok(Own { chain, key })
}

/// By whom the other side may be certified.
pub(super) fn read_roots(from: &TlsFiles) -> Result<RootCertStore, ConnectError> {
    let damaged = |path: &Path| failed(path, TlsFileFault::Damaged);
    let mut roots = RootCertStore::empty();
    for authority in certificates(&from.authority)? {
        let judged = webpki::anchor_from_trusted_cert(&authority).map(|_| ());
        judged.map_err(|error| unusable(&from.authority, &error))?;
        roots.add(authority).map_err(|_| damaged(&from.authority))?;
    }
    Ok(roots)
}

/// The lists that are to be used with these authorities.
pub(super) fn read_revoked(
    from: &TlsFiles,
    roots: &RootCertStore,
) -> Result<Revocations, ConnectError> {
    lists(&from.revoked, &roots.roots)
}

/// The lists of revoked certificates in a file, which need not be there. One of an authority that
/// is not known would revoke nothing, without a word.
fn lists(
    path: &Path,
    roots: &[TrustAnchor<'_>],
) -> Result<Vec<CertificateRevocationListDer<'static>>, ConnectError> {
    let contents = match contents(path, false) {
        Err(ConnectError::TlsFile { why: TlsFileFault::Missing, .. }) => return Ok(Vec::new()),
        contents => contents?,
    };
    let found: Result<Vec<_>, _> =
        CertificateRevocationListDer::pem_slice_iter(&contents).collect();
    let found = found.ok().filter(|found| !found.is_empty());
    let found = found.ok_or_else(|| failed(path, TlsFileFault::Damaged))?;
    for list in &found {
        let list = webpki::CertRevocationList::from(list_of(path, list)?);
        if !roots.iter().any(|root| root.subject.as_ref() == list.issuer()) {
            return Err(failed(path, TlsFileFault::OtherAuthority));
        }
    }
    Ok(found)
}

fn list_of<'l>(
    path: &Path,
    list: &'l CertificateRevocationListDer<'_>,
) -> Result<BorrowedCertRevocationList<'l>, ConnectError> {
    BorrowedCertRevocationList::from_der(list).map_err(|error| match error {
        webpki::Error::BadDer | webpki::Error::TrailingData(_) => {
            failed(path, TlsFileFault::Damaged)
        }
        other => failed(path, TlsFileFault::Refused(other.to_string())),
    })
}

/// What a list of revoked certificates says of one: its number, and since when.
pub type Revoked = (Vec<u8>, SystemTime);

/// What the lists say that are to be used with this authority; nothing where there is no such file.
///
/// # Errors
/// [`ConnectError::TlsFile`], also where a list is of another authority.
pub fn revoked(lists_at: &Path, authority: &Path) -> Result<Vec<Revoked>, ConnectError> {
    let authorities = certificates(authority)?;
    let roots = anchors(authority, &authorities)?;
    let mut all = Vec::new();
    for list in &lists(lists_at, &roots)? {
        for revoked in &list_of(lists_at, list)? {
            let revoked = revoked.map_err(|_| failed(lists_at, TlsFileFault::Damaged))?;
            let since = Duration::from_secs(revoked.revocation_date.as_secs());
            all.push((revoked.serial_number.to_vec(), UNIX_EPOCH + since));
        }
    }
    Ok(all)
}

/// The number of a certificate that this authority has signed.
///
/// # Errors
/// [`ConnectError::TlsFile`], also where it is of another authority.
pub fn certificate_number(of: &Path, authority: &Path) -> Result<Vec<u8>, ConnectError> {
    let authorities = certificates(authority)?;
    let roots = anchors(authority, &authorities)?;
    let chain = certificates(of)?;
    let certificate =
        webpki::EndEntityCert::try_from(&chain[0]).map_err(|error| unusable(of, &error))?;
    if !roots.iter().any(|root| root.subject.as_ref() == certificate.issuer()) {
        return Err(failed(of, TlsFileFault::OtherAuthority));
    }
    Ok(certificate.serial().to_vec())
}

fn anchors<'c>(
    path: &Path,
    certificates: &'c [CertificateDer<'_>],
) -> Result<Vec<TrustAnchor<'c>>, ConnectError> {
    let anchors = certificates.iter().map(webpki::anchor_from_trusted_cert);
    anchors.collect::<Result<_, _>>().map_err(|error| unusable(path, &error))
}

/// What tells two files from those that they have replaced: their numbers, when they were written
/// and when anything about them was changed. `None` where there is none.
pub(super) type Stamp = [Option<(u64, (i64, i64), (i64, i64))>; 2];

pub(super) fn stamp(files: [&Path; 2]) -> Stamp {
    files.map(|path| {
        let of = std::fs::metadata(path).ok()?;
        Some((of.ino(), (of.mtime(), of.mtime_nsec()), (of.ctime(), of.ctime_nsec())))
    })
}

/// Why a certificate and its key are not used together.
pub(super) fn refused(files: &TlsFiles, error: &rustls::Error) -> ConnectError {
    match error {
        rustls::Error::InconsistentKeys(_) => failed(&files.key, TlsFileFault::OtherKey),
        rustls::Error::InvalidCertificate(_) => refused_certificate(&files.certificate),
        _ => failed(&files.key, TlsFileFault::Damaged),
    }
}

/// Why the first certificate of a file is not taken.
fn refused_certificate(path: &Path) -> ConnectError {
    let found = match certificates(path) {
        Ok(found) => found,
        Err(error) => return error,
    };
    match webpki::EndEntityCert::try_from(&found[0]) {
        Err(error) => unusable(path, &error),
        Ok(_) => failed(path, TlsFileFault::Damaged),
    }
}

/// What is wrong with a certificate that cannot be understood.
fn unusable(path: &Path, error: &webpki::Error) -> ConnectError {
    failed(
        path,
        match error {
            webpki::Error::UnsupportedCertVersion => TlsFileFault::WithoutExtensions,
            webpki::Error::BadDer | webpki::Error::TrailingData(_) => TlsFileFault::Damaged,
            other => TlsFileFault::Refused(other.to_string()),
        },
    )
}

/// A time so long from now, as certificates have it.
pub(super) fn after(from_now: Duration) -> UnixTime {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixTime::since_unix_epoch(since_epoch + from_now)
}

/// Whether a server's certificate is valid so long from now. What else may be wrong with it, or by
/// whom it is certified, is for its clients to judge.
pub(super) fn check_time(of: &TlsFiles, from_now: Duration) -> Result<(), ConnectError> {
    // What is wrong with the files is said where they are read.
    let (Ok(roots), Ok(Own { chain, .. })) = (read_roots(of), read_own(of)) else {
        return Ok(());
    };
    let Ok(certificate) = webpki::EndEntityCert::try_from(&chain[0]) else { return Ok(()) };
    let at = after(from_now);
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
    let usage = webpki::KeyUsage::server_auth();
    let judged =
        certificate.verify_for_usage(algorithms, &roots.roots, &chain[1..], at, usage, None, None);
    match judged.err() {
        Some(webpki::Error::CertExpired { .. }) => {
            Err(failed(&of.certificate, TlsFileFault::Expired))
        }
        Some(webpki::Error::CertNotValidYet { .. }) => {
            Err(failed(&of.certificate, TlsFileFault::NotYetValid))
        }
        _ => Ok(()),
    }
}

/// All certificates of a file, and at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let contents = contents(path, false)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&contents).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(failed(path, TlsFileFault::Damaged)),
    }
}

/// What a file has. One that is secret is refused where others than its owner may read it.
fn contents(path: &Path, is_secret: bool) -> Result<Vec<u8>, ConnectError> {
    let unreadable = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => failed(path, TlsFileFault::Missing),
        _ => failed(path, TlsFileFault::Unreadable(error)),
    };
    // A pipe that nobody writes to would never be open, and the server serves nobody meanwhile.
    let mut options = File::options();
    let opened = options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
    let file = opened.map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(unreadable(std::io::Error::other("it is no file of bytes")));
    }
    // Who else may read a file of another owner is for that one to say.
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    let mode = metadata.mode() & 0o777;
    if is_secret && is_own && mode & OTHERS != 0 {
        return Err(failed(path, TlsFileFault::Exposed { mode }));
    }
    let mut contents = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut contents).map_err(unreadable)?;
    Ok(contents)
}

fn failed(path: &Path, why: TlsFileFault) -> ConnectError {
    ConnectError::TlsFile { path: path.to_owned(), why }
}
