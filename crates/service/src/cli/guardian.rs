//! The guardian: a double of `farlock lock` that runs the command, and outlives neither.
//!
//! It is forked at the start, before there are threads, and waits for the lock to be granted. The
//! command runs below it, in the caller's group, and so does all that the command starts, for the
//! guardian adopts orphans ([`family`]). It takes no signal but those that cannot be blocked, so
//! what is typed at a terminal reaches the command and leaves the guardian to look after it.
//!
//! It also serves as an echo: a signal that was sent to the whole group waits at the guardian too,
//! so what is passed on reaches the command once. Of what comes in the microseconds in which the
//! command is forked it cannot tell whether that reached it, and passes it on: a signal may come
//! twice then, and is never lost.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use farlock::text::shown;
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::FdFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, set_parent_process_death_signal,
    waitpid,
};
use serde::{Deserialize, Serialize};

use super::family::{self, Strangers};
use super::held::Held;
use super::inherited::{self, Fork, Inherited};
use super::lease::Bound;
use super::report::{Exit, Failure, say};

/// What a guardian is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Run the command, with this token. Its tether comes along if it has one, and if a lease
    /// bounds what it holds the timer of that.
    Run { token: u64, is_tied: bool, is_leased: bool, is_kept: bool },
    /// This tether, that comes along, is instead of the last one.
    Tie { is_kept: bool },
    /// Pass a signal on to the command, unless it went there by itself.
    Pass(i32),
    /// Say whether the command is stopped, in answer to the question of this number.
    Look(u64),
    /// Kill the command and all below it.
    Kill,
    /// The lock is released, or was not granted: what is left below may go on.
    Leave,
}

/// What a guardian tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum News {
    /// The command has ended, with this status of `waitpid`.
    Ended(i32),
    /// The command was stopped, or goes on.
    Stopped(bool),
    /// The same, in answer to [`Order::Look`] of this number.
    Asked(u64, bool),
    /// Nothing was heard of a lease until it ended, so the command is being killed.
    Lost,
}

/// A guardian, as `farlock lock` sees it. If this process ends, however it ends, the guardian kills
/// what runs below it and ends too.
pub(super) struct Guardian {
    pid: Pid,
    line: OwnedFd,
}

impl Guardian {
    /// Forks the guardian of a command. Signals are blocked until [`Inherited::unblock`], in the
    /// guardian for good.
    pub(super) fn fork(
        inherited: &Inherited,
        command: &[OsString],
        name: &str,
    ) -> Result<Self, Failure> {
        let failed = |error| Failure::system("the command cannot be guarded", error);
        let parent = getpid();
        let (line, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| failed(error.into()))?;
        SigSet::all().thread_block().map_err(|error| failed(error.into()))?;
        inherited::heed_children();
        match inherited::fork().map_err(failed)? {
            Fork::Parent(pid) => Ok(Self { pid, line }),
            Fork::Child => {
                drop(line);
                let guarding = Guarding { inherited, command, name, line: other };
                let failed = guarding.run(parent).err();
                if let Some(error) = &failed {
                    say(format_args!("farlock: the command's guardian failed: {error}"));
                }
                inherited::exit(if failed.is_some() { Exit::CONFLICT } else { Exit::OK });
            }
        }
    }

    /// Has the command run under what is held. The tether keeps that from others.
    pub(super) fn start(
        &self,
        guard: &Held,
        tether: Option<&OwnedFd>,
        timer: Option<&OwnedFd>,
    ) -> io::Result<()> {
        let (is_tied, is_leased) = (tether.is_some(), timer.is_some());
        let (token, is_kept) = (guard.token().get(), guard.outlasts_lease());
        let order = Order::Run { token, is_tied, is_leased, is_kept };
        self.tell_with(order, tether.into_iter().chain(timer))
    }

    /// Gives it another tether.
    pub(super) fn tie(&self, guard: &Held, tether: &OwnedFd) -> io::Result<()> {
        let order = Order::Tie { is_kept: guard.outlasts_lease() };
        self.tell_with(order, std::iter::once(tether))
    }

    fn tell_with<'f>(
        &self,
        order: Order,
        fds: impl Iterator<Item = &'f OwnedFd>,
    ) -> io::Result<()> {
        let fds: Vec<_> = fds.map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(rights.push(SendAncillaryMessage::ScmRights(&fds)), "there is room for them");
        }
        send(&self.line, &order, &mut rights)
    }

    /// Has it kill the command and all below it, also if it is stopped itself.
    pub(super) fn kill(&self) {
        self.tell(Order::Kill);
        // It is there until it is waited for.
        let _ = kill_process(self.pid, Signal::CONT);
    }

    /// Tells it something. One that has ended needs to know nothing.
    pub(super) fn tell(&self, order: Order) {
        let _ = send(&self.line, &order, &mut SendAncillaryBuffer::default());
    }

    /// What it has to tell; `None`: it has ended.
    pub(super) fn hear(&self) -> io::Result<Option<News>> {
        receive(&self.line, &mut RecvAncillaryBuffer::default())
    }

    /// Becomes readable when it has something to tell.
    pub(super) fn line(&self) -> &OwnedFd {
        &self.line
    }

    /// Waits until it has ended, for which there is nothing left to guard.
    pub(super) fn end(self) {
        self.tell(Order::Leave);
        drop(self.line);
        // A child of ours, which nobody else waits for.
        let _ = rustix::io::retry_on_intr(|| waitpid(Some(self.pid), WaitOptions::empty()));
    }
}

/// Descriptors that come along with one order.
const FDS_MAX: usize = 2;

fn send<T: Serialize>(
    line: &OwnedFd,
    message: &T,
    rights: &mut SendAncillaryBuffer<'_, '_, '_>,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let data = [io::IoSlice::new(&bytes)];
    rustix::io::retry_on_intr(|| sendmsg(line, &data, rights, SendFlags::NOSIGNAL))?;
    Ok(())
}

fn receive<T: for<'a> Deserialize<'a>>(
    line: &OwnedFd,
    rights: &mut RecvAncillaryBuffer<'_>,
) -> io::Result<Option<T>> {
    let mut bytes = [0; 128];
    loop {
        let mut data = [io::IoSliceMut::new(&mut bytes)];
        let received = recvmsg(line, &mut data, rights, RecvFlags::CMSG_CLOEXEC);
        match received {
            Ok(received) if received.bytes == 0 => return Ok(None),
            Ok(received) => {
                assert!(!received.flags.contains(ReturnFlags::TRUNC), "messages are short");
                return Ok(Some(serde_json::from_slice(&bytes[..received.bytes])?));
            }
            // The other side ended without hearing what it was told last. That is said once, and
            // before what it told last.
            Err(rustix::io::Errno::CONNRESET | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The guardian's own side.
struct Guarding<'a> {
    inherited: &'a Inherited,
    command: &'a [OsString],
    name: &'a str,
    line: OwnedFd,
}

/// What a command finds in its environment; the last one is never set.
pub(super) const NAME: &str = "FARLOCK_NAME";
const TOKEN: &str = "FARLOCK_TOKEN";
const DEADLINE: &str = "FARLOCK_DEADLINE";

/// A command with its environment.
struct Program {
    words: Vec<CString>,
    environment: Vec<CString>,
}

/// A command that runs.
struct Running {
    pid: Pid,
    is_stopped: bool,
    /// Signals that came to the group, by their numbers, and were not yet asked for.
    echoes: u64,
    bound: Bound,
}

impl Guarding<'_> {
    fn run(&self, parent: Pid) -> io::Result<()> {
        // For readers of a list of processes.
        let _ = rustix::thread::set_name(c"farlock-guard");
        // If it is stopped when `farlock` dies, it goes on, and kills what runs below it.
        set_parent_process_death_signal(Some(Signal::CONT))?;
        family::adopt_orphans();
        let mut program = self.program()?;
        let (order, mut fds) = self.hear()?;
        let Some(Order::Run { token, is_tied, is_leased, is_kept }) = order else {
            return Ok(());
        };
        let mut fd_if = |has: bool| if has { fds.next() } else { None };
        let bound = Bound::new(fd_if(is_tied), fd_if(is_leased), is_kept);
        if getppid() != Some(parent) {
            return Ok(());
        }
        let news =
            SignalFd::with_flags(&SigSet::all(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let me = getpid();
        program.environment.push(variable(TOKEN.into(), token.to_string().into())?);
        let pid = match inherited::fork() {
            Ok(Fork::Parent(pid)) => pid,
            Ok(Fork::Child) => self.execute(me, &program, bound.tether()),
            Err(error) => {
                let hint = "no process can be made: see `ulimit -u`, and what runs already";
                say(Failure::system("the command cannot be started", error).hinting(hint));
                self.tell(News::Ended(i32::from(Exit::SYSTEM.0) << u8::BITS));
                return Ok(());
            }
        };
        let mut running = Running { pid, is_stopped: false, echoes: 0, bound };
        // What the group was sent before the command was there did not reach it.
        while news.read_signal()?.is_some() {}
        let mut is_told = false;
        loop {
            if let Some(status) = self.look(&mut running) {
                self.tell(News::Ended(status));
                return self.leave(running.bound);
            }
            if is_told && self.obey(&mut running)? {
                return Ok(());
            }
            if running.bound.is_over() {
                self.tell(News::Lost);
                self.kill(&running);
                return Ok(());
            }
            is_told = self.wait(&running.bound, Some(&news))?;
            while let Some(signal) = news.read_signal()? {
                running.echoes |= 1 << (signal.ssi_signo - 1);
            }
        }
    }

    /// The command has ended. What it left running goes on when the lock is released; if `farlock`
    /// dies before that, it is killed before anybody else is granted.
    fn leave(&self, mut bound: Bound) -> io::Result<()> {
        let kill = || family::end(&Strangers::default(), None, |_, _| {});
        while !family::is_empty() {
            if bound.is_over() {
                kill();
            } else if self.wait(&bound, None)? {
                match self.hear()? {
                    (Some(Order::Leave), _) => break,
                    (None | Some(Order::Kill), _) => kill(),
                    (Some(Order::Tie { is_kept }), fds) => {
                        fds.for_each(|tether| bound.tie(tether, is_kept));
                    }
                    (Some(Order::Run { .. } | Order::Pass(_) | Order::Look(_)), _) => {}
                }
            }
        }
        Ok(())
    }

    /// Sleeps until there is something to do. Returns whether it was told something.
    fn wait(&self, bound: &Bound, news: Option<&SignalFd>) -> io::Result<bool> {
        let mut fds = vec![PollFd::new(&self.line, PollFlags::IN)];
        fds.extend(news.map(|news| PollFd::new(news, PollFlags::IN)));
        fds.extend(bound.fd());
        rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
        Ok(!fds[0].revents().is_empty())
    }

    /// What it is told, with what comes along.
    fn hear(&self) -> io::Result<(Option<Order>, impl Iterator<Item = OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let order = receive(&self.line, &mut rights)?;
        let fds: Vec<OwnedFd> = rights
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            })
            .flatten()
            .collect();
        Ok((order, fds.into_iter()))
    }

    /// Kills the command and all below it, and tells when all have ended.
    fn kill(&self, running: &Running) {
        let mut status = None;
        family::end(&Strangers::default(), Some(running.pid), |pid, raw| {
            if pid == running.pid {
                status = Some(raw);
            }
        });
        self.tell(News::Ended(status.expect("it was below, and all below have ended")));
    }

    fn tell(&self, news: News) {
        // That the other side has ended is found out when it is next listened to.
        let _ = send(&self.line, &news, &mut SendAncillaryBuffer::default());
    }

    /// What became of the command, and of orphans below it. Returns the command's status when it
    /// has ended.
    fn look(&self, running: &mut Running) -> Option<i32> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        while let Ok(Some((pid, status))) =
            rustix::io::retry_on_intr(|| rustix::process::wait(options))
        {
            if pid != running.pid {
                continue;
            }
            let is_stopped = status.stopped();
            if !is_stopped && !status.continued() {
                return Some(status.as_raw());
            }
            running.is_stopped = is_stopped;
            self.tell(News::Stopped(is_stopped));
        }
        None
    }

    /// Does what it is told. Returns whether that was the last.
    fn obey(&self, running: &mut Running) -> io::Result<bool> {
        let (order, fds) = self.hear()?;
        match order {
            Some(Order::Run { .. }) => panic!("a command is run once"),
            Some(Order::Leave) => panic!("nobody leaves a command that runs"),
            Some(Order::Tie { is_kept }) => {
                fds.for_each(|tether| running.bound.tie(tether, is_kept));
            }
            Some(Order::Look(number)) => self.tell(News::Asked(number, running.is_stopped)),
            Some(Order::Pass(number)) => {
                let bit = 1 << (number - 1);
                if running.echoes & bit == 0
                    && let Some(signal) = Signal::from_named_raw(number)
                {
                    family::signal(running.pid, signal);
                }
                running.echoes &= !bit;
            }
            Some(Order::Kill) | None => {
                self.kill(running);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Becomes the command.
    fn execute(&self, guardian: Pid, program: &Program, tether: Option<&OwnedFd>) -> ! {
        let error = self.try_execute(guardian, program, tether);
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NOT_FOUND,
            _ => Exit::CANNOT_RUN,
        };
        let program = self.command[0].to_string_lossy();
        let hint = match exit {
            Exit::NOT_FOUND if !program.contains('/') => "no directory of PATH has it",
            Exit::NOT_FOUND => "see that the path is right, and what its first line names is there",
            _ => "`ls -l` shows whose it is, and whether it may be run",
        };
        say(Failure::system(format!("cannot run '{}'", shown(&program)), error).hinting(hint));
        inherited::exit(exit);
    }

    /// Returns why it could not.
    fn try_execute(&self, guardian: Pid, program: &Program, tether: Option<&OwnedFd>) -> io::Error {
        let prepare = || -> io::Result<()> {
            // A guardian that is killed takes the command along, which its group may not.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != Some(guardian) {
                inherited::exit(Exit::killed_by(Signal::KILL.as_raw()));
            }
            if let Some(tether) = tether {
                rustix::io::fcntl_setfd(tether, FdFlags::empty())?;
            }
            self.inherited.restore()
        };
        if let Err(error) = prepare() {
            return error;
        }
        let Program { words, environment } = program;
        match nix::unistd::execvpe(&words[0], words, environment) {
            Ok(never) => match never {},
            Err(error) => error.into(),
        }
    }

    /// What is to be executed, but for its token. It is made while the lock is acquired: nobody
    /// waits for it then, and a child forked later finds it made.
    fn program(&self) -> io::Result<Program> {
        let words = self.command.iter().map(|word| CString::new(word.as_bytes()));
        let words = words.collect::<Result<_, _>>()?;
        let is_own = |name: &OsStr| [NAME, TOKEN, DEADLINE].iter().any(|own| name == *own);
        let given = std::env::vars_os().filter(|(name, _)| !is_own(name));
        let named = std::iter::once((NAME.into(), self.name.into()));
        let environment = given.chain(named).map(|(name, value)| variable(name, value));
        Ok(Program { words, environment: environment.collect::<io::Result<_>>()? })
    }
}

/// A variable of the environment, as a program is given it.
fn variable(name: OsString, value: OsString) -> io::Result<CString> {
    let mut line = name.into_vec();
    line.push(b'=');
    line.extend(value.into_vec());
    Ok(CString::new(line)?)
}
