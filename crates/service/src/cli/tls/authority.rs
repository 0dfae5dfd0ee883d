//! An authority: a key, and what it certifies.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use farlock::{ConnectError, SessionError};
use farlock_fabric::TlsFileFault;
use farlock_fabric::tcp::{Revoked, right_to};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber,
};

use crate::cli::report::{Exit, Failure};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long an authority is valid, in days, and what it says of those that are revoked.
const OWN_DAYS: u32 = 3650;

/// How far the clock of a host may lag behind that of the authority.
const LAG: Duration = DAY;

/// What certifies servers and clients.
pub(super) struct Authority(Issuer<'static, KeyPair>);

/// Files that are to be written.
pub(super) struct Issued(Vec<File>);

struct File {
    name: String,
    is_secret: bool,
    text: String,
}

impl Authority {
    /// A new one.
    pub(super) fn new() -> Result<Self, Failure> {
        let key = KeyPair::generate().map_err(failed)?;
        Ok(Self(Issuer::new(of_authority(&key), key)))
    }

    /// The one whose key is in this directory.
    pub(super) fn load(dir: &Path) -> Result<Self, Failure> {
        let path = dir.join("authority.key");
        let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let what = format!("there is no authority in {dir:?}: no authority.key is there");
                let hint = "`farlock tls init` makes one; say by --dir where it is";
                Failure::new(Exit::UNAVAILABLE, "tls-file", what, hint.to_owned())
            }
            _ => take(&path, error),
        })?;
        let key = KeyPair::from_pem(&text);
        let key = key.map_err(|_| refused(&path, TlsFileFault::Damaged))?;
        Ok(Self(Issuer::new(of_authority(&key), key)))
    }

    /// Its own certificate and key.
    pub(super) fn certificate(&self) -> Result<Issued, Failure> {
        let mut params = of_authority(self.0.key());
        set_time(&mut params, OWN_DAYS);
        let certificate = params.self_signed(self.0.key()).map_err(failed)?;
        Ok(Issued::pair("authority", certificate.pem(), self.0.key().serialize_pem()))
    }

    /// A certificate for a server that is reached by these names and addresses.
    pub(super) fn certify_server(&self, hosts: &[String], days: u32) -> Result<Issued, Failure> {
        let mut params = CertificateParams::new(hosts).map_err(failed)?;
        params.distinguished_name = named("farlock server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.certify("server", params, days)
    }

    /// A certificate for a client that may use these regions.
    pub(super) fn certify_client(
        &self,
        name: &str,
        regions: &[String],
        days: u32,
    ) -> Result<Issued, Failure> {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        for region in regions {
            let uri = right_to(region).try_into().map_err(failed)?;
            params.subject_alt_names.push(SanType::URI(uri));
        }
        self.certify("client", params, days)
    }

    /// The list of certificates that are revoked, by their numbers, each since when.
    pub(super) fn list(&self, revoked: &[Revoked]) -> Result<String, Failure> {
        let revoked_certs = revoked.iter().map(|(number, since)| RevokedCertParams {
            serial_number: SerialNumber::from_slice(number),
            revocation_time: (*since).into(),
            reason_code: None,
            invalidity_date: None,
        });
        let now = SystemTime::now();
        let number = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let list = CertificateRevocationListParams {
            this_update: now.into(),
            // Nobody is to do without it once it is old.
            next_update: (now + DAY * OWN_DAYS).into(),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.0).and_then(|list| list.pem()).map_err(failed)
    }

    fn certify(
        &self,
        side: &str,
        mut params: CertificateParams,
        days: u32,
    ) -> Result<Issued, Failure> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        set_time(&mut params, days);
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.0).map_err(failed)?;
        Ok(Issued::pair(side, certificate.pem(), key.serialize_pem()))
    }
}

/// An authority is called by its key: so two are never taken for each other, and its name is known
/// wherever its key is.
fn of_authority(key: &KeyPair) -> CertificateParams {
    const NAME_BYTES: usize = 8;
    // What comes first of a public key says only of which form it is.
    let own = key.public_key_raw().iter().skip(1).take(NAME_BYTES);
    let number: String = own.map(|byte| format!("{byte:02x}")).collect();
    let mut params = CertificateParams::default();
    params.distinguished_name = named(&format!("farlock authority {number}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn set_time(params: &mut CertificateParams, days: u32) {
    let now = SystemTime::now();
    params.not_before = (now - LAG).into();
    params.not_after = (now + DAY * days).into();
}

impl Issued {
    fn pair(side: &str, certificate: String, key: String) -> Self {
        let (pem, secret) = (format!("{side}.pem"), format!("{side}.key"));
        Self(vec![
            File { name: secret, is_secret: true, text: key },
            File { name: pem, is_secret: false, text: certificate },
        ])
    }

    /// A file that is there already, to be written elsewhere too.
    pub(super) fn copied(from: &Path, name: &str) -> Result<Self, Failure> {
        let path = from.join(name);
        let text = std::fs::read_to_string(&path).map_err(|error| take(&path, error))?;
        Ok(Self(vec![File { name: name.to_owned(), is_secret: false, text }]))
    }

    /// Refuses where one of the files is there.
    pub(super) fn is_new(&self, dir: &Path) -> Result<(), Failure> {
        let there = self.0.iter().map(|file| dir.join(&file.name)).find(|path| path.exists());
        there.map_or(Ok(()), |path| Err(take(&path, io::ErrorKind::AlreadyExists.into())))
    }

    /// Writes the files, those that are secret for their owner alone: all, or none stays.
    pub(super) fn write(&self, dir: &Path) -> Result<(), Failure> {
        self.is_new(dir)?;
        let mut made = Vec::new();
        for File { name, is_secret, text } in &self.0 {
            let (path, mode) = (dir.join(name), if *is_secret { 0o600 } else { 0o644 });
            let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
            let written = file.and_then(|mut file| {
                made.push(path.clone());
                file.write_all(text.as_bytes())
            });
            if let Err(error) = written {
                // Half of a pair would be in the way of the next one.
                made.iter().for_each(|path| drop(std::fs::remove_file(path)));
                return Err(take(&path, error));
            }
        }
        Ok(())
    }
}

/// A file could not be read or written.
pub(super) fn take(path: &Path, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => refused(path, TlsFileFault::Missing),
        io::ErrorKind::AlreadyExists => {
            let what = format!("{path:?} is there already, and is not overwritten");
            let hint = "move it away, and what belongs to it: a .pem and a .key are made together; \
                        or choose another name or directory";
            Failure::new(Exit::CONFLICT, "tls-exists", what, hint.to_owned())
        }
        _ => Failure::system(format_args!("{path:?}"), error),
    }
}

fn refused(path: &Path, why: TlsFileFault) -> Failure {
    let path = path.to_owned();
    SessionError::Connect(ConnectError::TlsFile { path, why }).into()
}

/// The library that makes certificates refuses something.
fn failed(error: rcgen::Error) -> Failure {
    Failure::usage(
        format_args!("no certificate can be made of that: {error}"),
        "see that hosts are names or addresses",
    )
}
