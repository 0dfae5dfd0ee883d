//! Endpoints that are stopped for good, until [`Handle::go_on`]; and endpoints that act while
//! nobody else does.

use farlock_fabric::{EndpointId, Nanos};

use crate::history::HaltObserver;
use crate::queue::{Event, FOR_GOOD};
use crate::world::Handle;

impl Handle {
    /// Stops an endpoint's tasks until [`Handle::go_on`]. Its verbs in flight go on.
    pub fn stop(&self, id: EndpointId) {
        let mut core = self.shared.core.borrow_mut();
        core.disturbed = true;
        core.seat_mut(id).paused_until = FOR_GOOD;
    }

    /// Whether an endpoint has not crashed, or nobody knows that it has.
    pub fn is_alive(&self, id: EndpointId) -> bool {
        self.shared.core.borrow().is_alive(id)
    }

    /// Whether an endpoint is stopped for good, or paused.
    pub fn is_stopped(&self, id: EndpointId) -> bool {
        self.shared.core.borrow().seat(id).paused_until > 0
    }

    /// Lets an endpoint go on at once that was stopped for good.
    pub fn go_on(&self, id: EndpointId) {
        let mut core = self.shared.core.borrow_mut();
        core.seat_mut(id).paused_until = 0;
        for task in 0..core.tasks.len() {
            let meta = &mut core.tasks[task];
            if meta.endpoint == id && std::mem::take(&mut meta.wakes) {
                core.wake(task as u32);
            }
        }
    }

    /// Lets an endpoint that was stopped for good go on after so many nanoseconds: it is paused.
    pub fn go_on_after(&self, id: EndpointId, interval: Nanos) {
        let mut core = self.shared.core.borrow_mut();
        let until = core.now.saturating_add(interval).max(1);
        core.seat_mut(id).paused_until = until;
        for task in 0..core.tasks.len() {
            if core.tasks[task].endpoint == id && core.tasks[task].wakes {
                core.push(until, Event::Wake(task as u32));
            }
        }
    }

    /// Shows endpoints that are stopped for good to this observer; `None`: to nobody.
    pub fn observe_halts(&self, observer: Option<HaltObserver>) {
        let before = std::mem::replace(&mut self.shared.core.borrow_mut().on_halt, observer);
        drop(before);
    }

    /// Explored mode: from now on nothing happens but what this endpoint does, and only if it
    /// `waits` its waits end by the clock, the soonest first, when there is nothing else. The
    /// oracle is not asked which event is next, and nobody crashes. `None`: as usual again.
    pub fn act_alone(&self, id: Option<EndpointId>, waits: bool) {
        self.shared.core.borrow_mut().alone = id.map(|id| (id.index, waits));
    }

    /// Ends this run, with [`Ended::Abandoned`](crate::Ended::Abandoned).
    pub fn abandon(&self) {
        self.shared.core.borrow_mut().abandoned = true;
    }

    /// Whether a wait of this endpoint has lasted as long as it was to last at most, by the time of
    /// the world, though it has not been told.
    pub fn is_due(&self, id: EndpointId) -> bool {
        let core = self.shared.core.borrow();
        core.watches.ends(id).any(|end| end <= core.now)
    }

    /// Tells the observer of one task that is stopped for good and would be polled.
    pub(crate) fn tells_of_halt(&self) {
        let (id, observer) = {
            let mut core = self.shared.core.borrow_mut();
            let Some(task) = core.halted.pop() else { return };
            (core.tasks[task as usize].endpoint, core.on_halt.take())
        };
        let Some(mut observer) = observer else { return };
        observer(id);
        self.shared.core.borrow_mut().on_halt.get_or_insert(observer);
    }
}
