//! The thread that carries out what tasks ask of a part of a store by a server.
//!
//! A handle stays on a thread while it does something, and a task does not. So a handle has a
//! thread of its own, which all tasks ask, has many of their operations under way together
//! ([`Pipeline`]), and sleeps until a server answers or a task asks for more.

use std::future::poll_fn;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::task::Poll;
use std::thread::{JoinHandle, current, yield_now};

use farlock_fabric::{Connection as _, fork_count, keep_signals_out};

use super::Kv;
use super::error::KvError;
use super::part::Part;
use super::pipeline::{Act, Pipeline};
use crate::connection::{Region, Unparker};
use crate::session::Fate;

/// How often a thread without work lets others run before it sleeps: to sleep and be woken takes
/// longer than a trip.
const YIELDS: u32 = 100;

/// A thread that carries operations out. It ends with this, when what it was asked for is done.
pub(super) struct Worker {
    requests: Option<Sender<Request>>,
    unparker: Unparker,
    thread: Option<JoinHandle<()>>,
    forks: u64,
}

/// What a task asks for: an operation on a key.
struct Request {
    key: Vec<u8>,
    job: Box<dyn Job>,
}

/// An operation that has not begun.
trait Job: Send {
    fn begin<'p>(self: Box<Self>, key: Vec<u8>, part: &'p Part) -> Act<'p>;

    /// There is no such part.
    fn refuse(self: Box<Self>, error: KvError);
}

/// What an operation came to, if it did not panic.
type Ended<T> = std::thread::Result<Result<T, KvError>>;

/// An answer that a task waits for.
pub(super) struct Asked<T>(Arc<Fate<Ended<T>>>);

struct Asking<T, F> {
    act: F,
    answer: Answer<T>,
}

/// Tells a task what its operation came to. Dropped first, that the thread has panicked.
struct Answer<T>(Arc<Fate<Ended<T>>>);

impl<T> Answer<T> {
    /// The task may be gone.
    fn tell(self, ended: Ended<T>) {
        if let Ok(wake) = self.0.offer_last(ended) {
            wake.now();
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if let Ok(wake) = self.0.offer_last(Err(Box::new("the thread of the store has panicked"))) {
            wake.now();
        }
    }
}

impl Worker {
    /// Begins to carry out operations on this part of a handle's store.
    pub(super) fn start(kv: Kv, index: usize) -> Result<Self, KvError> {
        let (requests, received) = channel();
        let unparker = Unparker::default();
        let parked = unparker.clone();
        let thread = std::thread::Builder::new()
            .name("farlock-kv-tasks".to_owned())
            .spawn(move || {
                keep_signals_out();
                work(&kv, index, &received, &parked);
            })
            .map_err(KvError::Thread)?;
        let (requests, thread, forks) = (Some(requests), Some(thread), fork_count());
        Ok(Self { requests, unparker, thread, forks })
    }

    /// Whether this is a child of the process that started it: there it does not run.
    pub(super) fn is_forked(&self) -> bool {
        fork_count() != self.forks
    }

    /// Asks for an operation on a key. It is carried out whether or not the answer is waited for.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        key: Vec<u8>,
        act: impl AsyncFnOnce(&Part, &[u8]) -> Result<T, KvError> + Send + 'static,
    ) -> Asked<T> {
        let fate = Arc::new(Fate::default());
        let job = Box::new(Asking { act, answer: Answer(Arc::clone(&fate)) });
        let requests = self.requests.as_ref().expect("it is there until the worker ends");
        let sent = requests.send(Request { key, job });
        sent.expect("the thread takes requests as long as there is somebody to ask");
        Region::unpark(&self.unparker);
        Asked(fate)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.requests.take());
        let Some(thread) = self.thread.take().filter(|_| !self.is_forked()) else { return };
        Region::unpark(&self.unparker);
        // The last task may have been dropped by the thread that wakes it.
        if thread.thread().id() != current().id()
            && let Err(panic) = thread.join()
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

impl<T> Asked<T> {
    /// Waits for it, and panics as the operation did.
    pub(super) async fn answer(self) -> Result<T, KvError> {
        let ended = poll_fn(|cx| self.0.poll(cx)).await;
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl<T, F> Job for Asking<T, F>
where
    T: Send,
    F: AsyncFnOnce(&Part, &[u8]) -> Result<T, KvError> + Send,
    Self: 'static,
{
    fn begin<'p>(self: Box<Self>, key: Vec<u8>, part: &'p Part) -> Act<'p> {
        let Self { act, answer } = *self;
        Box::pin(async move { answer.tell(or_panic(act(part, &key)).await) })
    }

    fn refuse(self: Box<Self>, error: KvError) {
        self.answer.tell(Ok(Err(error)));
    }
}

/// What a future comes to, or with what it panics: that is its task's, and no other's.
async fn or_panic<T>(future: impl Future<Output = T>) -> std::thread::Result<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(ended)) => Poll::Ready(Ok(ended)),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

/// The next request. A task that has its answer often asks for more at once.
fn next_of(requests: &Receiver<Request>) -> Result<Request, TryRecvError> {
    for _ in 0..YIELDS {
        match requests.try_recv() {
            Err(TryRecvError::Empty) => yield_now(),
            next => return next,
        }
    }
    Ok(requests.recv()?)
}

/// Carries out what is asked for until nobody can ask any more.
fn work(kv: &Kv, index: usize, requests: &Receiver<Request>, unparker: &Unparker) {
    let mut pipeline = Pipeline::default();
    let mut part = None;
    loop {
        let next = match pipeline.is_empty() {
            true => next_of(requests),
            false => requests.try_recv(),
        };
        match next {
            Ok(Request { key, job }) => {
                match kv.part(index) {
                    Ok(found) => {
                        part = Some(found);
                        pipeline.add(&key.clone(), job.begin(key, found));
                    }
                    Err(error) => job.refuse(error),
                }
                continue;
            }
            Err(TryRecvError::Disconnected) if pipeline.is_empty() => return,
            Err(TryRecvError::Disconnected) => {
                // Nobody waits for an answer: a server that is gone is not waited for.
                let is_last = |part: &&Part| Arc::strong_count(&part.hub) == 1;
                part.filter(is_last).into_iter().for_each(|part: &Part| part.hub.region.leave());
            }
            Err(TryRecvError::Empty) => {}
        }
        let part = part.expect("what is under way is in a part");
        if pipeline.go_on(part.lane()) {
            part.hub.region.watch(iter::once(part.lane()), unparker, None);
        }
    }
}
