//! Reading for all: one waiter at a time, or tasks.

use std::io;
use std::sync::{Arc, MutexGuard, TryLockError};
use std::task::Waker;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::RecvFlags;

use super::{ANSWER_PATIENCE, Channel, Incoming, lock};
use crate::endpoint::Nanos;
use crate::tcp::client::bell::Unparker;
use crate::tcp::client::inbox::Wakes;
use crate::tcp::client::looker::LEAVES;
use crate::tcp::clock::boot_time;
use crate::tcp::silence::Silence;

impl Channel {
    /// Takes what has come, if no other thread is about to.
    pub(in crate::tcp::client) fn read_now(&self, own: &Unparker) {
        let mut wakes = Wakes::default();
        if let Some(mut incoming) = self.try_read() {
            self.drain(&mut incoming, (own, &mut wakes), RecvFlags::DONTWAIT);
            drop(incoming);
            self.pass_on();
        }
    }

    /// Sleeps until the bell rings, something has come that this thread read, or a time of the boot
    /// clock. The bell is that of all inboxes for which the caller waits. One that reads for tasks
    /// alone does not read while these do.
    pub(in crate::tcp::client) fn sleep(
        &self,
        bell: &Unparker,
        until: Option<Nanos>,
        reads_for_tasks: bool,
    ) {
        let (_, is_next) = self.read_or_sleep(bell, until, reads_for_tasks);
        if is_next {
            self.pass_on();
        }
    }

    /// The same. Returns whether the bell rang, and whether the last reader has passed reading on
    /// to this thread, which is to read then or to pass it on.
    fn read_or_sleep(
        &self,
        bell: &Unparker,
        until: Option<Nanos>,
        reads_for_tasks: bool,
    ) -> (bool, bool) {
        if reads_for_tasks && self.is_left_to_tasks() {
            return (self.sleep_beside_tasks(bell, until), false);
        }
        lock(&self.sleepers).push(bell.clone());
        let (mut is_next, mut wakes) = (false, Wakes::default());
        if let Some(mut incoming) = self.try_read() {
            self.wake_no_more(bell);
            self.read(&mut incoming, (bell, &mut wakes), until);
            drop(incoming);
            self.pass_on();
        } else {
            bell.sleep(until);
            is_next = !self.wake_no_more(bell);
        }
        (bell.hear(), is_next)
    }

    // Looking by tasks.

    /// Sleeps for a moment, or until no task looks. Returns whether the bell rang.
    fn sleep_beside_tasks(&self, bell: &Unparker, until: Option<Nanos>) -> bool {
        lock(&self.idlers).push(bell.clone());
        let at = boot_time() + LEAVES.as_nanos() as Nanos;
        // The last one may have ended meanwhile.
        if self.is_left_to_tasks() {
            bell.sleep(Some(until.map_or(at, |until| until.min(at))));
        }
        lock(&self.idlers).retain(|idler| !idler.is(bell));
        bell.hear()
    }

    /// No task looks from now on: a thread reads.
    fn leave_to_threads(&self) {
        let idler = lock(&self.idlers).pop();
        match idler {
            Some(idler) => idler.ring(),
            None => self.pass_on(),
        }
    }

    /// Sends what the task of a verb has said, or has it sent with what others say. Returns whether
    /// the task is to read.
    pub(in crate::tcp::client) fn looks(&self, verb: u64, is_new: bool, task: &Waker) -> bool {
        // A task of a thread that sleeps on the connection itself is not polled before that.
        if is_new && !task.will_wake(Waker::noop()) && self.looker.begins(verb) {
            self.flush_soon();
            task.wake_by_ref();
            return false;
        }
        self.flush_together();
        self.looker.is(verb) || !is_new && !self.looker.is_there()
    }

    /// The task of a verb has read, and has no answer: if it is the one that looks it is polled
    /// again.
    pub(in crate::tcp::client) fn look_again(&self, verb: u64, task: &Waker) {
        if !self.looker.is(verb) {
            return;
        }
        if self.looker.goes_on() {
            std::thread::yield_now();
            task.wake_by_ref();
        } else {
            self.leave_to_threads();
        }
    }

    /// The task of a verb does not look for its answer any more.
    pub(in crate::tcp::client) fn looks_no_more(&self, verb: u64, is_found: bool) {
        if self.looker.is(verb) {
            self.looker.ends(is_found);
            if self.awaits() {
                self.leave_to_threads();
            }
        }
    }

    fn is_left_to_tasks(&self) -> bool {
        self.looker.is_there() || self.looker.pays() && !self.awaits()
    }

    fn awaits(&self) -> bool {
        lock(&self.outgoing).pace.awaits()
    }

    /// Blocks until a look finds something, at a thing that only the server brings, or the end of
    /// the connection: where nothing came for [`ANSWER_PATIENCE`] it is given up. What else rings
    /// the bell is heard later.
    pub(in crate::tcp::client) fn block_until<T>(
        &self,
        (bell, limit): (&Unparker, Option<Nanos>),
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let silence = || Silence::within(ANSWER_PATIENCE, boot_time());
        let mut silent = silence();
        let (mut was_rung, mut is_next) = (false, false);
        let found = loop {
            if let Some(found) = look() {
                break Some(found);
            }
            if limit.is_some_and(|limit| boot_time() >= limit) {
                break None;
            }
            let mut wakes = Wakes::default();
            if !self.flush()
                && let Some(mut incoming) = self.try_read()
            {
                // The last reader may have left it just before it let go.
                let found = look();
                if found.is_none() {
                    self.read_an_answer(&mut incoming, (bell, &mut wakes), limit);
                }
                drop(incoming);
                self.pass_on();
                is_next = false;
                if found.is_some() {
                    break found;
                }
            } else {
                let looks_at = silent.looks_at();
                let at = limit.map_or(looks_at, |limit| limit.min(looks_at));
                let (rang, is_passed_on) = self.read_or_sleep(bell, Some(at), false);
                was_rung |= rang;
                is_next |= is_passed_on;
                if silent.is_over(boot_time()) {
                    self.give_up();
                    // Another connection has as long.
                    silent = silence();
                }
            }
        };
        if is_next {
            self.pass_on();
        }
        if was_rung {
            bell.ring();
        }
        found
    }

    /// Returns whether it was to be woken still.
    fn wake_no_more(&self, bell: &Unparker) -> bool {
        let mut sleepers = lock(&self.sleepers);
        let before = sleepers.len();
        sleepers.retain(|sleeper| !sleeper.is(bell));
        sleepers.len() < before
    }

    /// Another waiter may read now.
    fn pass_on(&self) {
        let next = lock(&self.sleepers).pop();
        if let Some(next) = next {
            next.ring();
        }
    }

    fn try_read(&self) -> Option<MutexGuard<'_, Incoming>> {
        let incoming = match self.incoming.try_lock() {
            Ok(incoming) => incoming,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (!self.is_broken()).then_some(incoming)
    }

    /// Reads until something came, the bell rings, or a time.
    fn read(
        &self,
        incoming: &mut Incoming,
        (bell, wakes): (&Unparker, &mut Wakes),
        until: Option<Nanos>,
    ) {
        if self.is_over() || bell.begin_reading(&self.interrupt) {
            bell.end_reading();
            return;
        }
        let is_left = self.flush();
        let wants = if is_left { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds =
            [PollFd::new(&*incoming.stream, wants), PollFd::new(&*self.interrupt, PollFlags::IN)];
        let left = until.map(|until| {
            let left = until.saturating_sub(boot_time());
            let tv_nsec = (left % 1_000_000_000) as _;
            Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec }
        });
        // Where it is interrupted the caller looks and sleeps again.
        let polled = poll(&mut fds, left.as_ref());
        let [stream, interrupt] = fds.map(|fd| !fd.revents().is_empty());
        bell.end_reading();
        if interrupt {
            self.interrupt.clear();
        }
        if polled.is_ok() && stream {
            self.flush();
            self.drain(incoming, (bell, wakes), RecvFlags::DONTWAIT);
        }
    }

    /// Blocks until something came, or the connection ended, or until this limit; where there is
    /// none, for [`ANSWER_PATIENCE`].
    fn read_an_answer(
        &self,
        incoming: &mut Incoming,
        (own, wakes): (&Unparker, &mut Wakes),
        limit: Option<Nanos>,
    ) {
        let mut busy = std::mem::take(&mut incoming.busy);
        let is_there = busy.poll(|| self.drain(incoming, (own, wakes), RecvFlags::DONTWAIT));
        incoming.busy = busy;
        match limit {
            _ if is_there => {}
            Some(_) => self.read(incoming, (own, wakes), limit),
            None => drop(self.drain(incoming, (own, wakes), RecvFlags::empty())),
        }
    }

    /// Takes everything that has come. Where the first of it may be waited for, `flags` say so.
    /// Returns whether anything came, or the connection ended.
    fn drain(
        &self,
        incoming: &mut Incoming,
        (own, wakes): (&Unparker, &mut Wakes),
        mut flags: RecvFlags,
    ) -> bool {
        let mut has_come = false;
        loop {
            let stream = Arc::clone(&incoming.stream);
            let read = stream.receive(&mut incoming.bytes[incoming.filled..], flags);
            let has_waited = !flags.contains(RecvFlags::DONTWAIT);
            flags = RecvFlags::DONTWAIT;
            match read {
                Ok(0) => break self.break_off(incoming),
                Ok(count) => {
                    has_come = true;
                    incoming.filled += count;
                    let has_room = incoming.filled < incoming.bytes.len();
                    let is_all = has_room && stream.takes_all_at_once();
                    if self.dispatch(incoming, (own, wakes)).is_err() {
                        break self.break_off(incoming);
                    }
                    self.hear_of_answers(std::mem::take(&mut wakes.answers));
                    if is_all {
                        return true;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !has_waited => {
                    return has_come;
                }
                Err(_) => break self.break_off(incoming),
            }
        }
        true
    }

    /// What lies until these come is sent.
    fn hear_of_answers(&self, answers: u32) {
        if answers == 0 {
            return;
        }
        let mut outgoing = lock(&self.outgoing);
        let is_all = outgoing.pace.hears(answers, boot_time);
        let lies = is_all && outgoing.has_unsent();
        drop(outgoing);
        if lies {
            self.flush();
        }
    }
}
