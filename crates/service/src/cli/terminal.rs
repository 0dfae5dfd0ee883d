//! The controlling terminal: which group of processes is in its foreground.

use rustix::fs::{Mode, OFlags};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

/// Whether this process's group is in the foreground of a terminal.
pub(super) fn is_in_foreground() -> bool {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::open("/dev/tty", flags, Mode::empty());
    terminal.is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}
