//! How commands end: exit statuses, and failures in words.

use std::fmt;
use std::io::{self, Write};

use farlock::text::shown;
use farlock::{AcquireError, AddressError, ConnectError, DirectoryError, LostReason, SessionError};
use farlock_fabric::chain;

use super::inherited;

pub(super) use super::exit::Exit;

/// Says something on standard error. Where nobody can hear it, what is done and how it ends are the
/// same.
pub(super) fn say(what: impl fmt::Display) {
    // In one write, so that what several say at a time is not mixed.
    let _ = io::stderr().write_all(format!("{what}\n").as_bytes());
}

/// Shows on standard output how something goes on whose end is printed. A reader that went away has
/// seen enough.
pub(super) fn show(what: impl fmt::Display) {
    let _ = io::stdout().write_all(format!("{what}\n").as_bytes());
}

/// Prints what a command was asked for.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    printed(io::stdout().write_all(text.as_bytes()))
}

/// Prints what a command has done. Where that is lost it is done all the same.
pub(super) fn print_done(what: impl fmt::Display) -> Result<(), Failure> {
    print(&format!("{what}\n"))
        .map_err(|failure| failure.hinting("what was asked for is done; see where the output goes"))
}

/// Whether what a command was asked for is printed. A reader that went away has seen enough.
pub(super) fn printed(outcome: io::Result<()>) -> Result<(), Failure> {
    is_read(outcome).map(drop)
}

/// The same, and whether the reader is still there.
pub(super) fn is_read(outcome: io::Result<()>) -> Result<bool, Failure> {
    match arrived(outcome) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        arrived => arrived.map_err(not_written).map(|()| true),
    }
}

/// Whether all that is of use only as a whole is written: a reader that goes away has lost it.
pub(super) fn written(outcome: io::Result<()>) -> Result<(), Failure> {
    arrived(outcome).map_err(not_written)
}

fn arrived(outcome: io::Result<()>) -> io::Result<()> {
    inherited::output_is_open().and(outcome).and_then(|()| io::stdout().flush())
}

fn not_written(error: io::Error) -> Failure {
    let what = format!("cannot write to standard output: {error}");
    let hint = "see where the output goes".to_owned();
    Failure::new(Exit::SYSTEM, "output", what, hint)
}

/// Why a command failed: what happened, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    pub(super) exit: Exit,
    /// The stable name of what happened.
    code: &'static str,
    what: String,
    hint: String,
}

impl Failure {
    /// A failure of this name.
    pub(super) fn new(exit: Exit, code: &'static str, what: String, hint: String) -> Self {
        Self { exit, code, what, hint }
    }

    /// The same, at this place of what was given.
    pub(super) fn at(self, place: impl fmt::Display) -> Self {
        Self { what: format!("{place}: {}", self.what), ..self }
    }

    /// The system refused to do something.
    pub(super) fn system(what: impl fmt::Display, error: io::Error) -> Self {
        let what = format!("{what}: {error}");
        Self::new(Exit::SYSTEM, "system", what, hint_of_system(&error).to_owned())
    }

    /// The same, with a hint that knows better.
    pub(super) fn hinting(self, hint: &str) -> Self {
        Self { hint: hint.to_owned(), ..self }
    }

    /// The same, with more of what happened.
    pub(super) fn adding(self, more: &str) -> Self {
        Self { what: self.what + more, ..self }
    }

    /// The same, with one thing more that can be done.
    pub(super) fn hinting_too(self, more: &str) -> Self {
        Self { hint: self.hint + more, ..self }
    }

    /// The command line asks for what there is not.
    pub(super) fn usage(what: impl fmt::Display, hint: &str) -> Self {
        let (what, hint) = (what.to_string(), hint.to_owned());
        Self { exit: Exit::USAGE, code: "usage", what, hint }
    }

    /// There is no region of that name.
    pub(super) fn absent(what: impl fmt::Display) -> Self {
        let hint = "`farlock region list` names those there are".to_owned();
        Self { exit: Exit::CONFLICT, code: "region-absent", what: what.to_string(), hint }
    }

    /// What is asked for would take something from a user of the region.
    pub(super) fn in_use(what: impl fmt::Display, hint: &str) -> Self {
        let (what, hint) = (what.to_string(), hint.to_owned());
        Self { exit: Exit::CONFLICT, code: "region-in-use", what, hint }
    }

    /// A held lock was lost. How this program ends is for its command to say.
    pub(super) fn lost(lock: &str, how: &str, reason: LostReason, hint: &str) -> Self {
        let what = format!("the lock '{}' {how}: {}", shown(lock), chain(&reason));
        Self::new(Exit::UNAVAILABLE, "lost", what, hint.to_owned())
    }

    /// The same, ending with another status.
    pub(super) fn exiting(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }
}

/// What to do where the system refuses something.
fn hint_of_system(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "see that the path is right",
        io::ErrorKind::PermissionDenied => "`ls -l` shows whose it is, and what others may do",
        io::ErrorKind::AlreadyExists => "move it away, or choose another name",
        io::ErrorKind::IsADirectory => "that is a directory: name a file in it",
        io::ErrorKind::NotADirectory => "a part of the path is no directory: see that it is right",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room there",
        io::ErrorKind::ReadOnlyFilesystem => "nothing can be written there: choose another place",
        io::ErrorKind::InvalidFilename => "choose a shorter name",
        io::ErrorKind::ResourceBusy => "something is mounted there: choose another name",
        io::ErrorKind::FileTooLarge => "raise the limit on the size of files (ulimit -f)",
        _ if error.raw_os_error() == Some(libc::EBADF) => {
            "it is closed here: see how this is called"
        }
        _ => "see whether limits of this user (`ulimit -a`) or of this host are reached",
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "farlock: {} [{}]", self.what, self.code)?;
        if !self.hint.is_empty() {
            write!(f, "\n   hint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl From<AddressError> for Failure {
    fn from(error: AddressError) -> Self {
        Self::usage(&error, &error.hint())
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let (code, hint) = (error.code(), error.hint());
        let exit = match error {
            SessionError::Thread(_) => Exit::SYSTEM,
            SessionError::Connect(ConnectError::Locked { .. }) => Exit::CONFLICT,
            SessionError::Connect(ConnectError::Name { .. }) => Exit::USAGE,
            _ => Exit::UNAVAILABLE,
        };
        Self { exit, code, what: chain(&error), hint }
    }
}

impl From<DirectoryError> for Failure {
    fn from(error: DirectoryError) -> Self {
        let (code, hint) = (error.code(), error.hint());
        let exit = match error {
            DirectoryError::Name { .. } => Exit::USAGE,
            DirectoryError::Damaged { .. } => Exit::DAMAGED,
            _ => Exit::UNAVAILABLE,
        };
        Self { exit, code, what: chain(&error), hint }
    }
}

impl From<AcquireError> for Failure {
    /// With hints for people at a terminal: those of the error are for programs.
    fn from(error: AcquireError) -> Self {
        let (code, what) = (error.code(), chain(&error));
        let hint = match &error {
            AcquireError::Busy { holders, .. } => holders
                .hint()
                .unwrap_or_else(|| "wait for it: without -n, or with -w SECONDS".to_owned()),
            AcquireError::TimedOut { holders, .. } => holders.hint().unwrap_or_else(|| {
                "wait longer, or see with `farlock ls` who else waits".to_owned()
            }),
            AcquireError::Lost { .. } => "ask again: nothing was run".to_owned(),
            AcquireError::OtherUnit { made, .. } => {
                format!("say `--unit {made}`, or use another name: all users of a table must agree")
            }
            _ => error.hint(),
        };
        let exit = match error {
            AcquireError::Busy { .. } | AcquireError::TimedOut { .. } => Exit::CONFLICT,
            AcquireError::Directory { source, .. } => return source.into(),
            AcquireError::NoPlace { source, .. } => match *source {
                SessionError::Connect(
                    ConnectError::NoSpace { .. }
                    | ConnectError::Unreachable { .. }
                    | ConnectError::HungUp { .. }
                    | ConnectError::NoAnswer { .. }
                    | ConnectError::Garbled { .. }
                    | ConnectError::Declined { .. }
                    | ConnectError::Tls { .. },
                ) => Exit::UNAVAILABLE,
                _ => Exit::SYSTEM,
            },
            AcquireError::NoUnits { source, .. } => match *source {
                SessionError::Connect(ConnectError::Capacity { what: "bytes", .. }) => Exit::SYSTEM,
                _ => Exit::UNAVAILABLE,
            },
            _ => Exit::UNAVAILABLE,
        };
        Self { exit, code, what, hint }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Whichever place it wanted one for: the server is not to be reached.
    #[test]
    fn a_server_that_hangs_up_is_unavailable_and_no_fault_of_the_system() {
        let exit_of = |error| {
            let source = Arc::new(SessionError::Connect(error));
            Failure::from(AcquireError::NoPlace { name: "r".to_owned(), source }).exit
        };
        let server = "127.0.0.1:4970".to_owned();
        assert_eq!(exit_of(ConnectError::HungUp { server }).0, Exit::UNAVAILABLE.0);
        assert_eq!(exit_of(ConnectError::ThreadFull { keepers: 1 }).0, Exit::SYSTEM.0);
    }
}
