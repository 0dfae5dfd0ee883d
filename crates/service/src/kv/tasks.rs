//! A store as tasks use it.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use farlock_locks::Token;

use super::Kv;
use super::error::KvError;
use super::handle::Source;
use super::index::Index;
use super::part::Part;
use super::value::Term;
use super::watch::Watch;
use super::wish::{self, Wishes};
use super::worker::{Asked, Worker};

/// So many operations a thread does without a break, as executors allow.
const AT_A_STRETCH: u32 = 128;

/// A key-value store as many tasks use it at a time: [`Kv::into_async`]. Clones are cheap, and
/// share it.
///
/// What is asked for begins when its future is polled. In memory of this host it is done then, in a
/// microsecond or so, on the thread that polls, which is left to its other tasks after each 128
/// operations. By a server it is carried out by a thread of the store, which has many operations
/// under way together, those of one key in order: so many tasks have many times the rate of one. A
/// future that is dropped before its end leaves it open whether its change is made: the thread
/// carries it out.
///
/// Any executor will do. A panic of a closure that is handed over is its task's. As a handle's, all
/// operations end with [`KvError::Disconnected`] once a server was away for longer than its lease:
/// then the store is to be opened again, for all tasks.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # let session = farlock::Session::connect("db1:4747")?;
/// let users = session.kv("users")?.into_async()?;
/// users.put("alice", "admin").await?;
/// assert_eq!(users.get("alice").await?.as_deref(), Some(&b"admin"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AsyncKv {
    shared: Arc<Shared>,
    /// None changes what was never written with one.
    token: Option<Token>,
}

/// What clones share.
struct Shared {
    /// What handles are made of; let go of before them, for the last one takes ephemeral pairs
    /// away.
    source: Source,
    /// Handles that no thread uses just now.
    idle: Mutex<Vec<Kv>>,
    /// By part: who carries out what is to be done there, if it is a server's.
    workers: Box<[Option<Worker>]>,
    index: Index,
}

/// An operation that was asked for.
pub(super) enum Begun<T> {
    Done(Result<T, KvError>),
    Asked(Asked<T>),
}

impl<T> Begun<T> {
    pub(super) async fn answer(self) -> Result<T, KvError> {
        match self {
            Self::Done(done) => done,
            Self::Asked(asked) => asked.answer().await,
        }
    }
}

impl Kv {
    /// The same store for tasks, in place of this handle.
    ///
    /// # Errors
    /// See [`KvError`]: there is no other place in the store, or no thread.
    pub fn into_async(self) -> Result<AsyncKv, KvError> {
        let (source, index) = (self.source(), self.index());
        let is_far: Vec<bool> = (0..self.parts()).map(|part| self.is_far_in(part)).collect();
        let mut own = Some(self);
        let mut workers = Vec::with_capacity(is_far.len());
        for (part, &is_far_in) in is_far.iter().enumerate() {
            // In memory of this host it is there as long as tasks may have others.
            let own = own.take_if(|_| is_far.iter().all(|is_far| *is_far));
            let handle = || own.map_or_else(|| source.handle(), Ok);
            let worker = || Worker::start(handle()?, part);
            workers.push(if is_far_in { Some(worker()?) } else { None });
        }
        let idle = Mutex::new(own.into_iter().collect());
        let shared = Arc::new(Shared { source, idle, workers: workers.into(), index });
        Ok(AsyncKv { shared, token: None })
    }
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Vec<Kv>> {
        // Nothing that can panic runs under this mutex.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something by a handle, on this thread.
    fn by_handle<T>(&self, act: impl FnOnce(&Kv) -> Result<T, KvError>) -> Result<T, KvError> {
        let idle = self.idle().pop();
        let kv = idle.map_or_else(|| self.source.handle(), Ok)?;
        let done = act(&kv);
        self.idle().push(kv);
        done
    }
}

impl AsyncKv {
    /// Begins an operation on a key.
    fn begin<T: Send + 'static>(
        &self,
        key: &[u8],
        act: impl AsyncFnOnce(&Part, &[u8]) -> Result<T, KvError> + Send + 'static,
    ) -> Begun<T> {
        self.begin_in(farlock_kv::part_of(key, self.parts()), key, act)
    }

    /// Begins one in the part with this number; of no key, if that is empty.
    pub(super) fn begin_in<T: Send + 'static>(
        &self,
        index: usize,
        key: &[u8],
        act: impl AsyncFnOnce(&Part, &[u8]) -> Result<T, KvError> + Send + 'static,
    ) -> Begun<T> {
        let shared = &self.shared;
        match &shared.workers[index] {
            Some(worker) if worker.is_forked() => Begun::Done(Err(KvError::Forked)),
            Some(worker) => Begun::Asked(worker.ask(key.to_vec(), act)),
            None => Begun::Done(shared.by_handle(|kv| {
                let part = kv.part(index)?;
                part.block(act(part, key))
            })),
        }
    }

    /// Does an operation on a key.
    async fn act<T: Send + 'static>(
        &self,
        key: impl AsRef<[u8]>,
        act: impl AsyncFnOnce(&Part, &[u8]) -> Result<T, KvError> + Send + 'static,
    ) -> Result<T, KvError> {
        let_others().await;
        let begun = self.begin(key.as_ref(), act);
        begun.answer().await
    }

    /// Changes a key as a wish says.
    async fn change<'v, T: Send + 'static>(
        &self,
        key: impl AsRef<[u8]>,
        wish: impl Wishes<'v, T> + Send + 'static,
    ) -> Result<T, KvError> {
        let token = self.token;
        self.act(key, async move |part: &Part, key: &[u8]| part.change(key, token, wish).await)
            .await
    }

    /// Gives a key this value as a wish says, for so long if that is bounded.
    async fn give<T: Send + 'static, W: Wishes<'static, T>>(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time: Option<Duration>,
        wish: impl FnOnce(Vec<u8>, Term) -> W + Send + 'static,
    ) -> Result<T, KvError> {
        let (value, token) = (value.as_ref().to_vec(), self.token);
        let act = async move |part: &Part, key: &[u8]| {
            let term = time.map_or_else(Term::default, |time| part.term(time));
            part.change(key, token, wish(value, term)).await
        };
        self.act(key, act).await
    }

    /// The store's name.
    pub fn name(&self) -> &str {
        self.shared.source.name()
    }

    /// The index that the store was made with.
    pub fn index(&self) -> Index {
        self.shared.index
    }

    /// Over how many regions the store is, as [`Kv::parts`].
    pub fn parts(&self) -> usize {
        self.shared.workers.len()
    }

    /// A handle of the same store, for a thread.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn handle(&self) -> Result<Kv, KvError> {
        self.shared.source.handle()
    }

    /// The same store, changed with this token, as by [`Kv::fenced`].
    #[must_use]
    pub fn fenced(&self, token: Token) -> Self {
        Self { shared: Arc::clone(&self.shared), token: Some(token) }
    }

    /// As [`Kv::get`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, KvError> {
        self.act(key, async |part: &Part, key: &[u8]| part.value(key).await).await
    }

    /// As [`Kv::time_left`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn time_left(
        &self,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Option<Duration>>, KvError> {
        self.act(key, async |part: &Part, key: &[u8]| part.time_left(key).await).await
    }

    /// As [`Kv::token`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn token(&self, key: impl AsRef<[u8]>) -> Result<Option<Token>, KvError> {
        self.act(key, async |part: &Part, key: &[u8]| part.token(key).await).await
    }

    /// As [`Kv::put`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), KvError> {
        self.give(key, value, None, wish::put).await
    }

    /// As [`Kv::put_for`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn put_for(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time: Duration,
    ) -> Result<(), KvError> {
        self.give(key, value, Some(time), wish::put).await
    }

    /// As [`Kv::put_ephemeral`]: for as long as there are handles, this one and its clones among
    /// them.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn put_ephemeral(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), KvError> {
        let value = value.as_ref().to_vec();
        let act = async move |part: &Part, key: &[u8]| part.put_ephemeral(key, value).await;
        self.act(key, act).await
    }

    /// As [`Kv::insert`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn insert(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool, KvError> {
        self.give(key, value, None, wish::insert).await
    }

    /// As [`Kv::insert_for`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn insert_for(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time: Duration,
    ) -> Result<bool, KvError> {
        self.give(key, value, Some(time), wish::insert).await
    }

    /// As [`Kv::insert_ephemeral`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn insert_ephemeral(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool, KvError> {
        let value = value.as_ref().to_vec();
        let act = async move |part: &Part, key: &[u8]| part.insert_ephemeral(key, value).await;
        self.act(key, act).await
    }

    /// As [`Kv::replace`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn replace(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool, KvError> {
        self.give(key, value, None, wish::replace).await
    }

    /// As [`Kv::replace_for`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn replace_for(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time: Duration,
    ) -> Result<bool, KvError> {
        self.give(key, value, Some(time), wish::replace).await
    }

    /// As [`Kv::compare_and_set`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool, KvError> {
        let (expected, value) = (expected.as_ref().to_vec(), value.as_ref().to_vec());
        self.change(key, wish::compare_and_set(expected, value)).await
    }

    /// As [`Kv::update_with`]. By a server `change` runs on the thread of the store: it is to be
    /// quick, and waits for nothing.
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn update_with(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>> + Send + 'static,
    ) -> Result<Option<Vec<u8>>, KvError> {
        self.change(key, wish::update(change)).await
    }

    /// As [`Kv::add`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn add(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64, KvError> {
        self.change(key, wish::add(by)).await
    }

    /// As [`Kv::remove`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool, KvError> {
        self.change(key, wish::remove()).await
    }

    /// As [`Kv::watch`].
    ///
    /// # Errors
    /// See [`KvError`].
    pub async fn watch(&self, key: impl AsRef<[u8]>) -> Result<Watch, KvError> {
        self.act(key, async |part: &Part, key: &[u8]| part.watch(key)).await
    }

    /// As [`Kv::get_many`].
    pub async fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Vec<u8>>, KvError>> {
        let keys: Vec<Vec<u8>> = keys.into_iter().map(|key| key.as_ref().to_vec()).collect();
        self.begin_each(keys, |key| {
            self.begin(&key, async |part: &Part, key: &[u8]| part.value(key).await)
        })
        .await
    }

    /// As [`Kv::put_many`].
    pub async fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Vec<Result<(), KvError>> {
        let owned = |(key, value): (K, V)| (key.as_ref().to_vec(), value.as_ref().to_vec());
        let (pairs, token) = (pairs.into_iter().map(owned).collect(), self.token);
        self.begin_each(pairs, |(key, value): (Vec<u8>, Vec<u8>)| {
            let wish = wish::put(value, Term::default());
            self.begin(&key, async move |part: &Part, key: &[u8]| {
                part.change(key, token, wish).await
            })
        })
        .await
    }

    /// As [`Kv::remove_many`].
    pub async fn remove_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<bool, KvError>> {
        let keys: Vec<Vec<u8>> = keys.into_iter().map(|key| key.as_ref().to_vec()).collect();
        let token = self.token;
        self.begin_each(keys, |key| {
            self.begin(&key, async move |part: &Part, key: &[u8]| {
                part.change(key, token, wish::remove()).await
            })
        })
        .await
    }

    /// Begins an operation for each of these, and waits for all.
    async fn begin_each<I, T>(
        &self,
        items: Vec<I>,
        begin: impl Fn(I) -> Begun<T>,
    ) -> Vec<Result<T, KvError>> {
        let mut begun = Vec::with_capacity(items.len());
        for item in items {
            let_others().await;
            begun.push(begin(item));
        }
        let mut answers = Vec::with_capacity(begun.len());
        for begun in begun {
            answers.push(begun.answer().await);
        }
        answers
    }
}

/// What is done at once would never give the thread back: after so many operations of a thread its
/// other tasks come first.
pub(super) async fn let_others() {
    thread_local! {
        static LEFT: Cell<u32> = const { Cell::new(AT_A_STRETCH) };
    }
    let left = LEFT.get();
    if left > 0 {
        return LEFT.set(left - 1);
    }
    LEFT.set(AT_A_STRETCH);
    let mut has_waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl fmt::Debug for AsyncKv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncKv").field(&self.name()).finish()
    }
}

/// A store is shared by tasks on any thread, and so are its operations' futures.
const _: fn() = || {
    fn is_shared<T: Send + Sync + Clone>() {}
    fn is_send<T: Send>(_: T) {}
    is_shared::<AsyncKv>();
    let _ = |kv: &AsyncKv| {
        is_send(kv.put("key", "value"));
        is_send(kv.watch("key"));
        is_send(kv.get_many(["key"]));
    };
};
