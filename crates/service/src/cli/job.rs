//! A command as a job: behind a guardian, served with signals until it ends.
//!
//! ```text
//! farlock lock (F)  --  guardian (G), its double  --  the command and all that it starts
//! ```
//!
//! All are in the caller's group, so a terminal treats them as one job.
//!
//! | dies | what happens |
//! | --- | --- |
//! | the command | G tells its status, F releases and ends likewise; what the command left running goes on |
//! | F, however | G kills all below it (the kernel lets it go on if it is stopped), and holds the command's tether until nobody is left |
//! | G | the command dies with it, F kills all that G left, then ends |
//! | F and G at once | the command dies with G; what it started keeps the lock by the tether until it ends |
//!
//! If F is stopped, so that it does not learn that its lock is lost, G finds that out by itself
//! ([`super::lease`]).
//!
//! So the lock passes on only when nothing that runs under it is left. Those that took another
//! user's rights are not killed but awaited.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{getpid, kill_process};

use farlock::LostReason;
use farlock::session::Lost;

use super::family::{self, Strangers};
use super::guardian::{Guardian, News, Order};
use super::held::Held;
use super::inherited::Inherited;
use super::lease::Lease;
use super::report::{Exit, Failure, say};
use super::terminal::is_in_foreground;

/// Signals that are meant for the command: all but those that say that this process itself went
/// wrong, that stop it, or that its children ended.
const PASSED_ON: [Signal; 16] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTERM,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGXCPU,
    Signal::SIGXFSZ,
    Signal::SIGPWR,
    Signal::SIGSTKFLT,
    Signal::SIGIO,
    Signal::SIGURG,
    Signal::SIGWINCH,
];

/// How long a command has to end after SIGTERM, before it is killed.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// How a job ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// Its command has ended, and this is its status.
    Command(Exit),
    /// Its command died of this signal, which was sent to this process too.
    Signal(Signal),
    /// Its guardian was killed, and all that ran below it.
    Guardian,
    /// Its guardian was killed before there was anything to run.
    Unbegun,
}

/// A command that waits for its lock.
pub(super) struct Job {
    guardian: Guardian,
    inherited: Inherited,
    strangers: Strangers,
}

/// A command that runs.
struct Running<'g> {
    guard: &'g Held,
    region: RegionWatch<'g>,
    /// `None` where none bounds what is held.
    lease: Option<Lease>,
    guardian: Guardian,
    strangers: Strangers,
    signals: SignalFd,
    /// Signals that came to this process.
    received: SigSet,
    /// When the command has had its time to end.
    killed_at: Option<Instant>,
    /// How often it was asked whether the command is stopped.
    looks: u64,
}

impl Job {
    /// Prepares a command under the lock of this name. This process must have one thread.
    pub(super) fn prepare(words: &[std::ffi::OsString], name: &str) -> Result<Self, Failure> {
        let strangers = Strangers::look();
        let inherited = Inherited::look().map_err(failed)?;
        let guardian = Guardian::fork(&inherited, words, name)?;
        family::adopt_orphans();
        inherited.unblock().map_err(failed)?;
        Ok(Self { guardian, inherited, strangers })
    }

    /// The lock was not granted: there is nothing to run.
    pub(super) fn cancel(self) {
        self.guardian.end();
    }

    /// Runs the command to its end. Its guardian is to be ended when the lock is released. Says on
    /// standard error if the lock is lost meanwhile, with the file of its region; `None` where a
    /// server has that: then it kills the command. Returns also whether it has said so.
    pub(super) fn run(
        self,
        guard: &Held,
        region: Option<&Path>,
    ) -> Result<(Ended, Guardian, bool), Failure> {
        let Self { guardian, inherited, strangers } = self;
        // What comes from here on is for the command, also before it has begun.
        let passed_on: SigSet =
            PASSED_ON.into_iter().filter(|signal| !inherited.keeps_out(*signal)).collect();
        passed_on.thread_block().map_err(|error| failed(error.into()))?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals =
            SignalFd::with_flags(&passed_on, flags).map_err(|error| failed(error.into()))?;
        let tether = guard.tether();
        let lease = Lease::of(guard, tether.as_ref()).map_err(failed)?;
        let timer = lease.as_ref().map(|lease| &lease.timer);
        match guardian.start(guard, tether.as_ref(), timer) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok((Ended::Unbegun, guardian, false));
            }
            started => started.map_err(failed)?,
        }
        let received = SigSet::empty();
        let region = match region {
            Some(file) => RegionWatch::Later(file, Instant::now() + WATCHED_AFTER),
            None => RegionWatch::of_server(guard).map_err(failed)?,
        };
        let (killed_at, looks) = (None, 0);
        let running = Running {
            guard,
            region,
            lease,
            guardian,
            strangers,
            signals,
            received,
            killed_at,
            looks,
        };
        running.serve().map_err(failed)
    }
}

/// What looks whether the lock is lost while its command runs.
enum RegionWatch<'g> {
    /// Nobody yet: the hold is looked at then, and the file of the region watched from then on. To
    /// end that takes the kernel some milliseconds, which short commands are not to wait for.
    Later(&'g Path, Instant),
    /// The kernel.
    Watched(&'g Path, OwnedFd),
    /// The session, which sets this when it may be lost.
    Server(Pin<Box<Lost<'g>>>, Arc<Bell>),
    /// Nobody: it cannot be watched. It is told in the end.
    Nobody,
    /// Nobody any more: it is lost, which was said.
    Lost,
}

/// A command that has run for so long is told of what happens meanwhile.
const WATCHED_AFTER: Duration = Duration::from_secs(1);
/// For how long a hold that was looked at is taken for what it was then, at most.
const LOOKED_AT: Duration = Duration::from_millis(20);

/// Set by the session's thread, and waited for beside other descriptors.
struct Bell(OwnedFd);

impl Bell {
    /// Whether it is over; if not the bell is set when it may be.
    fn look<F: Future>(self: &Arc<Self>, future: Pin<&mut F>) -> Poll<F::Output> {
        // What it counts does not matter.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
        future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(self))))
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // It fails only where it is set more often than it can count, and then it is set.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl<'g> RegionWatch<'g> {
    /// Of a hold by a server.
    fn of_server(guard: &'g Held) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(Bell(eventfd(0, flags)?));
        // Looked at once, so that it is set also by what has happened already.
        bell.wake_by_ref();
        Ok(Self::Server(Box::pin(guard.lost()), bell))
    }
    fn fd(&self) -> Option<&OwnedFd> {
        match self {
            Self::Watched(_, fd) => Some(fd),
            Self::Server(_, bell) => Some(&bell.0),
            Self::Later(..) | Self::Nobody | Self::Lost => None,
        }
    }

    /// Says, once, that what is held by a server is lost.
    fn is_lost(&mut self, guard: &Held, reason: LostReason) {
        if !matches!(self, Self::Lost) {
            let how = "is lost, and its command is killed";
            let mut hint = "others may have the lock now: see how far the command came, and run \
                            it again"
                .to_owned();
            match reason {
                LostReason::Disconnected => {
                    hint += "; a longer `farlock serve --lease` outlasts longer outages";
                }
                LostReason::CertificateRevoked => {
                    hint += "; first have another certificate made (`farlock tls client`)";
                }
                _ => {}
            }
            say(Failure::lost(guard.name(), how, reason, &hint));
            *self = Self::Lost;
        }
    }

    /// When it begins, if that is to come.
    fn begins_at(&self) -> Option<Instant> {
        if let Self::Later(_, at) = self { Some(*at) } else { None }
    }

    /// Something happened; maybe to the region's file, or its server. Returns whether the command
    /// is to end at once, for others have its lock.
    fn goes_on(&mut self, guard: &Held, is_touched: bool) -> bool {
        match self {
            Self::Server(lost, bell) if is_touched => {
                let Poll::Ready(reason) = bell.look(lost.as_mut()) else { return false };
                self.is_lost(guard, reason);
                return true;
            }
            Self::Later(path, at) if Instant::now() >= *at => {
                let path = *path;
                *self = watch(path).map_or(Self::Nobody, |fd| Self::Watched(path, fd));
            }
            // What it was does not matter; what it did to the hold shows a little later.
            Self::Watched(path, _) if is_touched => {
                let path = *path;
                *self = Self::Later(path, Instant::now() + LOOKED_AT);
                return false;
            }
            _ => return false,
        }
        if let Some(reason) = guard.lost_reason() {
            let how = "is lost, and others may be granted it while the command runs";
            let hint = "end the command, unless what it writes to refuses the tokens of others: \
                        that of the next holder is above FARLOCK_TOKEN";
            say(Failure::lost(guard.name(), how, reason, hint));
            *self = Self::Lost;
        }
        false
    }
}

/// Becomes readable when the file is deleted, moved, or changed otherwise than by its users.
fn watch(path: &Path) -> io::Result<OwnedFd> {
    let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    inotify::add_watch(&fd, path, WatchFlags::ATTRIB | WatchFlags::MOVE_SELF)?;
    Ok(fd)
}

fn failed(error: io::Error) -> Failure {
    Failure::system("the command could not be run", error)
}

impl Running<'_> {
    fn serve(mut self) -> io::Result<(Ended, Guardian, bool)> {
        loop {
            let mut fds = vec![
                PollFd::new(self.guardian.line(), PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            fds.extend(self.region.fd().map(|fd| PollFd::new(fd, PollFlags::IN)));
            fds.extend(self.lease.as_ref().and_then(Lease::fd));
            let leased_at = self.lease.as_ref().map(Lease::looks_at);
            let until = [self.killed_at, self.region.begins_at(), leased_at];
            let until = until.into_iter().flatten().min();
            let left = until.map(|at| at.saturating_duration_since(Instant::now()));
            let left = left.map(|left| Timespec::try_from(left).expect("a grace is short"));
            rustix::io::retry_on_intr(|| poll(&mut fds, left.as_ref()))?;
            let has_news = !fds[0].revents().is_empty();
            let is_touched = fds.get(2).is_some_and(|fd| !fd.revents().is_empty());
            drop(fds);
            if self.region.goes_on(self.guard, is_touched) {
                self.guardian.kill();
            }
            if let Some(lease) = &mut self.lease
                && let Some(tether) = lease.look(self.guard)?
            {
                // One that has ended needs none. It kills what had the last one.
                if self.guardian.tie(self.guard, &tether).is_ok() {
                    self.guard.tether_is_passed_on(&tether);
                }
            }
            self.pass_signals_on()?;
            if has_news && let Some(ended) = self.hear()? {
                return Ok((ended, self.guardian, matches!(self.region, RegionWatch::Lost)));
            }
            if self.killed_at.is_some_and(|at| Instant::now() >= at) {
                self.killed_at = None;
                self.guardian.kill();
            }
        }
    }

    fn pass_signals_on(&mut self) -> io::Result<()> {
        while let Some(info) = self.signals.read_signal()? {
            let number = info.ssi_signo as i32;
            let signal = Signal::try_from(number)?;
            self.received.add(signal);
            self.guardian.tell(Order::Pass(number));
            if signal == Signal::SIGTERM {
                self.killed_at.get_or_insert_with(|| Instant::now() + GRACE);
            }
        }
        Ok(())
    }

    /// Hears what the guardian has to tell. Returns how the command ended, if it has.
    fn hear(&mut self) -> io::Result<Option<Ended>> {
        match self.guardian.hear()? {
            Some(News::Ended(status)) => return Ok(Some(self.ended(ExitStatus::from_raw(status)))),
            Some(News::Stopped(true)) if is_in_foreground() => {
                // Either the group was stopped, we have been too, and all of it goes on; or the
                // command alone, and its shell must learn that from us.
                run_for_a_moment();
                self.looks += 1;
                self.guardian.tell(Order::Look(self.looks));
            }
            // An older answer is of before this process was stopped, and went on, itself.
            Some(News::Asked(number, true)) if number == self.looks => {
                let _ = kill_process(getpid(), rustix::process::Signal::STOP);
            }
            Some(News::Lost) => {
                let reason = self.guard.lost_reason().unwrap_or(LostReason::SleptThrough);
                self.region.is_lost(self.guard, reason);
            }
            Some(News::Stopped(_) | News::Asked(..)) => {}
            None => {
                family::end(&self.strangers, None, |_, _| {});
                return Ok(Some(Ended::Guardian));
            }
        }
        Ok(None)
    }

    fn ended(&self, status: ExitStatus) -> Ended {
        let Some(number) = status.signal() else {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ended::Command(Exit(code.expect("what was not killed has a status of a byte")));
        };
        match Signal::try_from(number) {
            Ok(signal) if self.received.contains(signal) => Ended::Signal(signal),
            _ => Ended::Command(Exit::killed_by(number)),
        }
    }
}

/// Lets a group that goes on go on together: all of it does within that time. Where this process
/// was stopped meanwhile that begins anew.
fn run_for_a_moment() {
    const TOGETHER: Duration = Duration::from_millis(20);
    const TRIES: u32 = 5;
    for _ in 0..TRIES {
        let begun = Instant::now();
        std::thread::sleep(TOGETHER);
        if begun.elapsed() < TOGETHER * 2 {
            return;
        }
    }
}

/// Dies of a signal, as the command did: the caller is to see what it would have seen of the
/// command.
pub(super) fn die_of(signal: Signal) -> Exit {
    // Where either fails, this process ends as one that tells of it.
    let _ = nix::sys::signal::raise(signal);
    // Pending now: it acts when it is let in.
    let _ = SigSet::from(signal).thread_unblock();
    Exit::killed_by(signal as i32)
}
