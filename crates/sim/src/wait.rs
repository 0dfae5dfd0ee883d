//! Waits in progress, and what ends them.
//!
//! A wait is registered with its endpoint while it lasts. What might end it wakes its task, which
//! asks again and finds the reason then; nothing is remembered that could become untrue.

use farlock_fabric::{Addr, EndpointId, Slot, Wait, WaitState, Woken};

use crate::config::Mode;
use crate::core::Core;
use crate::flight::NONE;
use crate::queue::Event;
use crate::seat::{Life, Seat};

impl Core {
    /// Begins a wait or goes on with it.
    pub(crate) fn poll_wait(
        &mut self,
        id: EndpointId,
        wait: &Wait<'_>,
        state: &mut WaitState,
    ) -> Option<Woken> {
        let woken = self.wait_on(id, wait, state)?;
        self.told(match woken {
            Woken::Changed => 1,
            Woken::Mail => 2,
            Woken::Elapsed => 3,
            Woken::PeerGone(peer) => 4 | peer.bits() << 3,
        });
        Some(woken)
    }

    fn wait_on(&mut self, id: EndpointId, wait: &Wait<'_>, state: &mut WaitState) -> Option<Woken> {
        if !self.seat(id).is_acting(id) {
            return None;
        }
        if (wait.mail.is_some() || !wait.peers.is_empty())
            && let Some(woken) = self.met(id, wait)
        {
            self.end_wait(state);
            return Some(woken);
        }
        if state.begun {
            let watch = &mut self.watches.slab[state.key as u32 as usize];
            assert!(watch.generation == (state.key >> 32) as u32, "this wait has ended");
            watch.task = self.current;
            // Where clocks decide nothing, what the time is must not either: its timer does.
            let by_clock = self.mode == Mode::Timed || self.clocks_decide;
            let over =
                watch.elapsed || by_clock && watch.deadline.is_some_and(|end| end <= self.now);
            let woken = match (watch.changed, over) {
                (true, _) => Woken::Changed,
                (_, true) => Woken::Elapsed,
                _ => return None,
            };
            self.end_wait(state);
            return Some(woken);
        }
        self.begin_wait(id, wait, state)
    }

    /// What ends this wait already: mail, or a death.
    #[inline(never)]
    fn met(&self, id: EndpointId, wait: &Wait<'_>) -> Option<Woken> {
        if let Some(slot) = wait.mail
            && !self.seat(id).mailboxes[usize::from(slot.0)].is_empty()
        {
            return Some(Woken::Mail);
        }
        wait.peers.iter().find(|&&peer| !self.is_alive(peer)).map(|&peer| Woken::PeerGone(peer))
    }

    fn begin_wait(
        &mut self,
        id: EndpointId,
        wait: &Wait<'_>,
        state: &mut WaitState,
    ) -> Option<Woken> {
        let blocks = self.mode == Mode::Explored && wait.word.is_some();
        if let Some((addr, old)) = wait.word
            && (blocks || wait.interval.is_none())
            && self.differs(addr, old, wait.ignoring)
        {
            return Some(Woken::Changed);
        }
        let clock = &self.seat(id).clock;
        let end = wait.interval.map(|ns| clock.when(self.now, clock.read(self.now) + ns));
        let (deadline, patience) = if blocks { (None, end) } else { (end, None) };
        let index = match self.watches.free.pop() {
            Some(index) => index,
            None => self.watches.extend(),
        };
        let number = self.watches.begun;
        self.watches.begun += 1;
        let watch = &mut self.watches.slab[index as usize];
        let generation = watch.generation;
        watch.owner = Some(id);
        watch.task = self.current;
        watch.mail = wait.mail;
        watch.word = if deadline.is_none() { wait.word } else { None };
        watch.ignoring = wait.ignoring;
        watch.peers.clear();
        if !wait.peers.is_empty() {
            watch.peers.extend_from_slice(wait.peers);
        }
        watch.deadline = deadline;
        watch.patience = patience;
        watch.elapsed = false;
        watch.begun = self.now;
        watch.number = number;
        watch.looking = false;
        watch.changed = false;
        if let Some(time) = deadline {
            self.push(time, Event::Timer(index, generation));
        } else if let Some((addr, _)) = wait.word {
            self.watches.look_out(addr, index);
        }
        if wait.mail.is_some() {
            self.seat_mut(id).waits.push(index);
        }
        *state = WaitState {
            begun: true,
            deadline,
            key: u64::from(generation) << 32 | u64::from(index),
            naps: 0,
        };
        None
    }

    /// Forgets a wait, if it had begun.
    pub(crate) fn end_wait(&mut self, state: &mut WaitState) {
        if !std::mem::take(&mut state.begun) {
            return;
        }
        let index = state.key as u32;
        let watch = &mut self.watches.slab[index as usize];
        if watch.generation != (state.key >> 32) as u32 {
            return;
        }
        watch.generation = watch.generation.wrapping_add(1);
        let Some(owner) = watch.owner.take() else { return };
        if watch.mail.is_some() {
            let seat = &mut self.seats[usize::from(owner.index)];
            seat.waits.retain(|&other| other != index);
        }
        if watch.word.take().is_some() {
            self.watches.by_word.retain(|&(_, other)| other != index);
        }
        self.watches.free.push(index);
    }

    /// Whether a timer still belongs to a wait in progress.
    #[inline]
    pub(crate) fn is_current(&self, index: u32, generation: u32) -> bool {
        self.watches.slab[index as usize].generation == generation
    }

    /// A timer went off: the interval is over, or it is time to look at a word.
    pub(crate) fn timer(&mut self, index: u32) {
        let watch = &mut self.watches.slab[index as usize];
        let (task, word) = (watch.task, watch.word);
        watch.looking = false;
        watch.elapsed |= word.is_none();
        // It may have changed and changed back; then nobody noticed.
        if let Some((addr, old)) = word
            && !self.has_changed(index, addr, old)
        {
            return;
        }
        self.wake(task);
    }

    #[inline(never)]
    fn has_changed(&mut self, index: u32, addr: Addr, old: u64) -> bool {
        let ignoring = self.watches.slab[index as usize].ignoring;
        let changed = self.differs(addr, old, ignoring);
        self.watches.slab[index as usize].changed = changed;
        changed
    }

    /// A wait on a word is over, though the word has not changed.
    pub(crate) fn elapse(&mut self, index: u32) {
        let watch = &mut self.watches.slab[index as usize];
        watch.elapsed = true;
        let task = watch.task;
        self.wake(task);
    }

    /// Whether the word exists and has another value. A word outside memory never changes.
    fn differs(&self, addr: Addr, old: u64, ignoring: u64) -> bool {
        let minded = |word: u64| (word ^ old) & !ignoring;
        self.memory.place(addr, 1, 8).is_ok_and(|place| minded(self.memory.read(place)) != 0)
    }

    /// A message reached this slot.
    #[inline]
    pub(crate) fn wake_receivers(&mut self, id: EndpointId, slot: Slot) {
        for i in 0..self.seat(id).waits.len() {
            let watch = &self.watches.slab[self.seat(id).waits[i] as usize];
            if watch.mail == Some(slot) {
                self.wake(watch.task);
            }
        }
    }

    /// This endpoint's death became known.
    pub(crate) fn wake_watchers_of(&mut self, peer: EndpointId) {
        for index in 0..self.watches.slab.len() {
            let watch = &self.watches.slab[index];
            if watch.owner.is_some() && watch.peers.contains(&peer) {
                self.wake(watch.task);
            }
        }
    }

    /// A word changed, or both words of a wide atomic.
    #[inline]
    pub(crate) fn changed(&mut self, addr: Addr) {
        if !self.watches.by_word.is_empty() {
            self.look_at(addr, addr.plus(16));
        }
    }

    /// Lets waits on words from `addr` to before `end` look at them when they would have looked
    /// anyway; in explored mode, at once.
    #[inline(never)]
    fn look_at(&mut self, addr: Addr, end: Addr) {
        let first = self.watches.by_word.partition_point(|&(other, _)| other < addr);
        for i in first..self.watches.by_word.len() {
            let (word, index) = self.watches.by_word[i];
            if word >= end {
                return;
            }
            let watch = &mut self.watches.slab[index as usize];
            if std::mem::replace(&mut watch.looking, true) {
                continue;
            }
            let (begun, generation) = (watch.begun, watch.generation);
            let look = match self.mode {
                Mode::Timed => {
                    let looks = (self.now - begun).div_ceil(self.poll_interval_ns);
                    begun + looks * self.poll_interval_ns
                }
                Mode::Explored => {
                    self.timer(index);
                    continue;
                }
            };
            self.push(look, Event::Timer(index, generation));
        }
    }

    /// Polls this task before the next event.
    #[inline]
    pub(crate) fn wake(&mut self, task: u32) {
        if task == NONE {
            return;
        }
        let meta = &mut self.tasks[task as usize];
        if meta.live && !meta.queued {
            meta.queued = true;
            self.ready.push_back(task);
        }
    }

    /// A pause is over for this task, and in explored mode for its endpoint.
    pub(crate) fn go_on(&mut self, task: u32) {
        let meta = &mut self.tasks[task as usize];
        meta.wakes = false;
        if self.mode == Mode::Explored {
            self.seats[usize::from(meta.endpoint.index)].paused_until = 0;
        }
        self.wake(task);
    }

    #[inline]
    pub(crate) fn is_alive(&self, id: EndpointId) -> bool {
        id.index != 0
            && self.seats.get(usize::from(id.index)).is_some_and(|seat| {
                seat.id == id && seat.life != Life::Dead && !self.is_stale(seat)
            })
    }

    /// Whether an endpoint came before the first node was last reset, where its record lies.
    pub(crate) fn is_stale(&self, seat: &Seat) -> bool {
        self.nodes[0].reset_stamp > seat.stamp
    }

    /// Every wait ends as if its word had changed.
    pub(crate) fn end_waits(&mut self) {
        for index in 0..self.watches.slab.len() {
            let watch = &mut self.watches.slab[index];
            if watch.owner.is_some() {
                watch.changed = true;
                let task = watch.task;
                self.wake(task);
            }
        }
    }
}
