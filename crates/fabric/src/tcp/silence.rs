//! Peers that fall silent: the system asks them once in a while whether they are there, and one
//! that awaits an answer gives up at last.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use rustix::net::sockopt;

use crate::endpoint::Nanos;

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

/// How long one hears nothing that awaits an answer, while it listens. A process that is stopped
/// does not: what came meanwhile lies there, so such a time counts as one look.
#[derive(Debug)]
pub(super) struct Silence {
    left: Nanos,
    look: Nanos,
    looked_at: Nanos,
}

impl Silence {
    /// In how many parts it is waited for.
    const LOOKS: Nanos = 8;

    /// One that is borne for so long from now on.
    pub(super) fn within(patience: Duration, now: Nanos) -> Self {
        let left = patience.as_nanos() as Nanos;
        Self { left, look: left.div_ceil(Self::LOOKS), looked_at: now }
    }

    /// When it is to be looked at again.
    pub(super) fn looks_at(&self) -> Nanos {
        self.looked_at.saturating_add(self.left.min(self.look))
    }

    /// Whether it has lasted for too long by now.
    pub(super) fn is_over(&mut self, now: Nanos) -> bool {
        let passed = now.saturating_sub(self.looked_at);
        self.left = self.left.saturating_sub(passed.min(self.look));
        self.looked_at = now;
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_lasts_for_as_long_as_one_listens() {
        for patience in [0, 1, 7, 8, 1000, 10_000_000_000] {
            let within = Duration::from_nanos(patience);
            let (mut silence, mut now) = (Silence::within(within, 5), 5);
            while !silence.is_over(now) {
                assert!(silence.looks_at() > now);
                now = silence.looks_at();
            }
            assert_eq!(now, 5 + patience);
        }
        // Looks in between change nothing.
        let mut silence = Silence::within(Duration::from_nanos(800), 0);
        assert_eq!((1..).find(|now| silence.is_over(*now)), Some(800));
    }

    #[test]
    fn the_time_in_which_a_process_is_stopped_is_no_silence() {
        let mut silence = Silence::within(Duration::from_nanos(800), 0);
        assert!(!silence.is_over(1_000_000), "what came lies there");
        assert_eq!((1_000_000..).find(|now| silence.is_over(*now)), Some(1_000_700));
    }
}
