//! What rustls says, as what a client of farlock can act on.

use rustls::{AlertDescription, CertificateError, Error};

use crate::error::TlsFault;

/// What went wrong, as a client sees it: what it found itself, or what the server said.
pub(super) fn of(error: Error) -> TlsFault {
    match error {
        Error::InvalidCertificate(error) => of_certificate(error),
        Error::AlertReceived(alert) => of_alert(alert),
        // That is no record of TLS.
        Error::InvalidMessage(_) => TlsFault::NotSpoken,
        error => TlsFault::Other(error.to_string()),
    }
}

fn of_certificate(error: CertificateError) -> TlsFault {
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, InvalidPurpose, InvalidPurposeContext,
        NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext, Revoked,
        UnknownIssuer,
    };
    match error {
        Expired | ExpiredContext { .. } => TlsFault::Expired,
        NotValidYet | NotValidYetContext { .. } => TlsFault::NotYetValid,
        Revoked => TlsFault::Revoked,
        UnknownIssuer | BadSignature => TlsFault::Foreign,
        NotValidForName | NotValidForNameContext { .. } => TlsFault::OtherName,
        InvalidPurpose | InvalidPurposeContext { .. } => TlsFault::NoServer,
        error => TlsFault::Other(Error::InvalidCertificate(error).to_string()),
    }
}

fn of_alert(alert: AlertDescription) -> TlsFault {
    match alert {
        AlertDescription::CertificateExpired => TlsFault::ClientNotCurrent,
        AlertDescription::CertificateRevoked => TlsFault::ClientRevoked,
        AlertDescription::UnknownCA | AlertDescription::DecryptError => TlsFault::ClientForeign,
        AlertDescription::CertificateRequired => TlsFault::ClientUnknown,
        AlertDescription::UnsupportedCertificate => TlsFault::NoClient,
        alert => TlsFault::Other(Error::AlertReceived(alert).to_string()),
    }
}
