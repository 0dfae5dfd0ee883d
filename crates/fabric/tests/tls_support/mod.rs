//! Certificates for tests, of an authority whose key is not kept.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use farlock_fabric::tcp::{ClientTls, ServerTls, TlsFiles, right_to};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};

/// A server at the loopback address and a client of every region that trust each other. Their files
/// are made below this directory.
pub(crate) fn both_sides(below: &Path) -> (ServerTls, ClientTls) {
    let dir = &below.join("tls");
    std::fs::create_dir(dir).unwrap();
    let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "the test's own");
    std::fs::write(dir.join("authority.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    for (side, usage) in [
        ("server", ExtendedKeyUsagePurpose::ServerAuth),
        ("client", ExtendedKeyUsagePurpose::ClientAuth),
    ] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::URI(right_to("*").try_into().unwrap()));
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(dir.join(format!("{side}.pem")), certificate.pem()).unwrap();
        let path = dir.join(format!("{side}.key"));
        std::fs::write(&path, key.serialize_pem()).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
    let server = ServerTls::load(&TlsFiles::of_server(dir)).unwrap();
    (server, ClientTls::load(&TlsFiles::of_client(dir)).unwrap())
}
