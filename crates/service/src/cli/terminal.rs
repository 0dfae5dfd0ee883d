//! The controlling terminal: which group of processes is in its foreground.
//!
//! A group may hand the foreground on only while it has it: a process in the background that tries
//! is stopped. So the foreground always moves by the hand of who has it: `farlock lock` gives it to
//! the command's group, and the guardian, which is in that group, gives it back.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The controlling terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    fd: OwnedFd,
}

impl Terminal {
    /// The controlling terminal, if there is one.
    pub(super) fn open() -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        Some(Self { fd })
    }

    /// Whether this process's group is in the foreground.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.fd).is_ok_and(|group| group == getpgrp())
    }

    /// Puts another group into the foreground, if ours is there.
    pub(super) fn hand_to(&self, group: Pid) {
        if self.is_ours() {
            // A group that has just ended cannot have it; then whoever waits for us takes it.
            let _ = tcsetpgrp(&self.fd, group);
        }
    }

    /// Waits until the foreground is ours, which the parent is just arranging.
    pub(super) fn await_ours(&self) {
        const LIMIT: Duration = Duration::from_secs(1);
        const POLL: Duration = Duration::from_micros(50);
        let begun = Instant::now();
        while !self.is_ours() && begun.elapsed() < LIMIT {
            std::thread::sleep(POLL);
        }
    }
}
