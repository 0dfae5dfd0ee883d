//! Addresses of servers, as people write them.

use std::io;
use std::net::Ipv6Addr;

use farlock_fabric::ConnectError;
use thiserror::Error;

/// Why what was said of a server names none.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It is no host and port.
    #[error("{address:?} is no server's address: HOST:PORT is expected, {why}")]
    Malformed {
        /// What was said.
        address: String,
        /// The first thing that is wrong.
        why: &'static str,
    },
    /// It says `tls://`, and no files of TLS are named.
    #[error("{address} is reached over TLS, and nothing says by which certificate")]
    NoCertificate {
        /// What was said.
        address: String,
    },
    /// It says `tcp://`, and files of TLS are named.
    #[error("{address} is reached in the clear, and a certificate is given")]
    InTheClear {
        /// What was said.
        address: String,
    },
}

impl AddressError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Malformed { .. } => {
                "as in db1:4747, 10.0.0.5:4747 or [::1]:4747: 4747 is where `farlock serve` \
                 listens if nothing else is said"
            }
            Self::NoCertificate { .. } => {
                "say by --tls, or FARLOCK_TLS, where this client's certificate is"
            }
            Self::InTheClear { .. } => "leave out either tcp:// or --tls and FARLOCK_TLS",
        }
        .to_owned()
    }
}

/// Whether this can be the address of a server, `HOST:PORT`. Nobody is asked whether there is such
/// a host. Port 0, which is any that is free, is for those that listen.
///
/// # Errors
/// [`AddressError::Malformed`].
pub fn check_address(address: &str, listens: bool) -> Result<(), AddressError> {
    let wrong = |why| Err(AddressError::Malformed { address: address.to_owned(), why });
    if address.contains(',') {
        return wrong("and one alone: `farlock kv` takes several, and nothing else does");
    }
    if address.contains('/') {
        return wrong("and no scheme but tcp:// and tls:// of a client's");
    }
    if address.parse::<Ipv6Addr>().is_ok() {
        return wrong("an address of IPv6 stands in brackets, and the port behind them");
    }
    let is_bracketed = |host: &str| host.starts_with('[') && host.ends_with(']');
    let Some((host, port)) = address.rsplit_once(':').filter(|_| !is_bracketed(address)) else {
        return wrong("the port is missing");
    };
    match port.parse::<u16>() {
        _ if host.is_empty() => wrong("the host is missing"),
        _ if port.is_empty() => wrong("the port is missing"),
        Ok(0) if !listens => wrong("and nobody listens at port 0"),
        Ok(_) if port.starts_with('+') => wrong("the port is a number from 1 to 65535"),
        Ok(_) if host.contains(':') && !is_bracketed(host) => {
            wrong("an address of IPv6 stands in brackets, and the port behind them")
        }
        Ok(_) if host.starts_with('[') != host.ends_with(']') => wrong("a bracket is missing"),
        Ok(_) => Ok(()),
        Err(_) => wrong("the port is a number from 1 to 65535"),
    }
}

/// Files of TLS are named, and this farlock was built without.
pub(crate) fn without_tls() -> ConnectError {
    let why = "this program was built without farlock's feature `tls`";
    let source = io::Error::new(io::ErrorKind::Unsupported, why);
    ConnectError::System { what: "speak TLS", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["db1:4747", "10.0.0.5:1", "[::1]:65535", "a_b.example:80"] {
            assert_eq!(check_address(good, false), Ok(()), "{good}");
        }
        assert_eq!(check_address("127.0.0.1:0", true), Ok(()));
        let rows = [
            ("", "the port is missing"),
            ("localhost", "the port is missing"),
            ("4747", "the port is missing"),
            ("localhost:", "the port is missing"),
            (":4747", "the host is missing"),
            ("localhost:99999", "the port is a number from 1 to 65535"),
            ("localhost:http", "the port is a number from 1 to 65535"),
            ("localhost:+1", "the port is a number from 1 to 65535"),
            ("localhost:0", "and nobody listens at port 0"),
            ("[::1]", "the port is missing"),
            ("::1", "an address of IPv6 stands in brackets, and the port behind them"),
            ("::1:4747", "an address of IPv6 stands in brackets, and the port behind them"),
            ("[::1:4747", "an address of IPv6 stands in brackets, and the port behind them"),
            ("http://db1:80", "and no scheme but tcp:// and tls:// of a client's"),
        ];
        for (address, why) in rows {
            let address = address.to_owned();
            let refused = check_address(&address, false);
            assert_eq!(refused, Err(AddressError::Malformed { address, why }));
        }
    }
}
