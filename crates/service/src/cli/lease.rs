//! For how long a command may run of whose `farlock` nothing is heard.
//!
//! `farlock` may be stopped while the lease ends by which it holds, and its command runs on: its
//! guardian is to kill that before another is granted the lock. So both have one timer, of the boot
//! clock, which `farlock` puts off as the server renews the lease ([`Lease`]), and which the
//! guardian watches ([`Bound`]). Where a connection that stands keeps the lock beyond its lease the
//! timer counts from when the tether, that goes to the same server, has hung up.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime,
    timerfd_create, timerfd_gettime, timerfd_settime,
};

use super::held::Held;

/// The lease of what is held by a server, as `farlock` sees it.
pub(super) struct Lease {
    pub(super) timer: OwnedFd,
    /// `None` once it has hung up.
    tether: Option<OwnedFd>,
    renews_at: Instant,
}

impl Lease {
    /// `None` where none bounds what is held.
    pub(super) fn of(guard: &Held, tether: Option<&OwnedFd>) -> io::Result<Option<Self>> {
        if guard.remaining().is_none() {
            return Ok(None);
        }
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        let tether = tether.map(OwnedFd::try_clone).transpose()?;
        let mut lease = Self { timer, tether, renews_at: Instant::now() };
        lease.put_off(guard)?;
        Ok(Some(lease))
    }

    /// What says that something is to be looked at before the time for that has come.
    pub(super) fn fd(&self) -> Option<PollFd<'_>> {
        self.tether.as_ref().map(|tether| PollFd::new(tether, PollFlags::RDHUP))
    }

    /// When it is to be looked at again.
    pub(super) fn looks_at(&self) -> Instant {
        self.renews_at
    }

    /// Does what is due. Returns a tether that the guardian is to have instead of the last one.
    pub(super) fn look(&mut self, guard: &Held) -> io::Result<Option<OwnedFd>> {
        self.tether.take_if(|tether| has_hung_up(tether));
        let is_untied = self.tether.is_none();
        if is_untied {
            self.tether = guard.tether().filter(|tether| !has_hung_up(tether));
        }
        if Instant::now() >= self.renews_at || is_untied {
            self.put_off(guard)?;
        }
        if is_untied { self.tether.as_ref().map(OwnedFd::try_clone).transpose() } else { Ok(None) }
    }

    /// Puts the timer off, if it can be. Between the looks at the clock and at the lease this
    /// process may be stopped, and the timer is to end no later for that.
    fn put_off(&mut self, guard: &Held) -> io::Result<()> {
        /// How soon another tether is looked for.
        const UNTIED: Duration = Duration::from_millis(20);
        /// How often it is put off while it lasts.
        const TIMES: u32 = 8;
        let now = clock_gettime(ClockId::Boottime);
        let remaining = guard.remaining().unwrap_or_default();
        if let (Ok(left), false) = (Timespec::try_from(remaining), remaining.is_zero()) {
            let at = Itimerspec { it_interval: Timespec::default(), it_value: now + left };
            timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &at)?;
        }
        let pause = remaining / TIMES;
        let pause = if self.tether.is_some() { pause.max(UNTIED) } else { UNTIED };
        self.renews_at = Instant::now() + pause;
        Ok(())
    }
}

/// Whether the other end of a connection is gone.
fn has_hung_up(tether: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(tether, PollFlags::RDHUP)];
    // What cannot be looked at keeps nothing.
    let polled = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&Timespec::default())));
    polled != Ok(0)
}

/// Until when a command may run, as its guardian sees it.
pub(super) struct Bound {
    /// While this process has it, nobody else is granted the lock.
    tether: Option<OwnedFd>,
    /// `None` where no lease bounds what is held.
    timer: Option<OwnedFd>,
    /// Whether the tether stands for what keeps the lock beyond its lease.
    is_kept: bool,
}

impl Bound {
    pub(super) fn new(tether: Option<OwnedFd>, timer: Option<OwnedFd>, is_kept: bool) -> Self {
        Self { tether, timer, is_kept }
    }

    pub(super) fn tether(&self) -> Option<&OwnedFd> {
        self.tether.as_ref()
    }

    pub(super) fn tie(&mut self, tether: OwnedFd, is_kept: bool) {
        (self.tether, self.is_kept) = (Some(tether), is_kept);
    }

    /// What says that it is to be looked at.
    pub(super) fn fd(&self) -> Option<PollFd<'_>> {
        let timer = self.timer.as_ref()?;
        let kept_by = self.tether.as_ref().filter(|_| self.is_kept);
        Some(match kept_by {
            Some(tether) => PollFd::new(tether, PollFlags::RDHUP),
            None => PollFd::new(timer, PollFlags::IN),
        })
    }

    /// Whether the command is to end: others may be granted its lock soon.
    pub(super) fn is_over(&mut self) -> bool {
        let Some(timer) = &self.timer else { return false };
        if self.is_kept && self.tether.as_ref().is_some_and(|tether| !has_hung_up(tether)) {
            return false;
        }
        self.is_kept = false;
        let left = timerfd_gettime(timer.as_fd()).map(|time| time.it_value);
        left.is_ok_and(|left| left == Timespec::default())
    }
}
