//! Peers that fall silent: the system asks them once in a while whether they are there.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use rustix::net::sockopt;

/// Silence after which the system asks, and how often and how many times it then does. So a host
/// that is gone is known after some ten seconds.
const IDLE: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_secs(2);
const QUESTIONS: u32 = 3;

/// Has the system end this connection when the other host is gone.
pub(super) fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, IDLE)?;
    sockopt::set_tcp_keepintvl(stream, INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, QUESTIONS)?;
    let unanswered = IDLE + INTERVAL * QUESTIONS;
    Ok(sockopt::set_tcp_user_timeout(stream, unanswered.as_millis() as u32)?)
}
