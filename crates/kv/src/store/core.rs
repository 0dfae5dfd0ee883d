//! A client's store: what it works over and what it remembers.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use farlock_fabric::Posted;

use super::change::Change;
use crate::error::OpenError;
use crate::flaw::Flaw;
use crate::gate::Gate;
use crate::index::Index;
use crate::levels::{Levels, Runs};
use crate::nodes::Nodes;
use crate::pool::{Census, Pool};
use crate::reads::Reads;
use crate::recall::Recall;
use crate::shape::{Block, LEVELS, Shape};
use crate::sync::Scheme;

/// So many insertions more that found a crowd than did not are most of the last ones.
const CROWD_MAX: u32 = 64;

/// How often things happened at one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Operations that changed a key.
    pub changes: u64,
    /// Operations among these that count as done right before another one which was carried out.
    pub combined: u64,
    /// Compares that failed, since others were first.
    pub retries: u64,
    /// Operations that found their key where it was remembered, by one round trip or none.
    pub recalled: u64,
    /// Reads that were answered by what another task has read.
    pub delegated: u64,
    /// Blocks that were read again, since they were torn, or recycled after their slot was read.
    pub rereads: u64,
    /// Changes whose completion was lost.
    pub lost: u64,
    /// Insertions of others, of the same key and unfinished, that were taken off.
    pub rivals: u64,
    /// Chunks that were claimed.
    pub claims: u64,
    /// Chunks of the dead and of those who left that were taken over.
    pub adoptions: u64,
    /// Chunks without a value that got another class.
    pub reclassed: u64,
    /// Levels of the index that this client made.
    pub growths: u64,
    /// Slots of the index that this client moved to the next level.
    pub moves: u64,
    /// Nodes of a tree that this client made, and in place of which others they were.
    pub nodes: u64,
}

/// One client's view of a store. It stays on its thread; several tasks may use it.
///
/// An operation may be dropped at any point. What it began is then finished or taken back by
/// [`Store::settle`], and whether it was carried out is open until then.
///
/// An endpoint opens a store once in its life. Another one over the same endpoint would take what
/// belongs to the first for what a dropped task has claimed, and both would hand it out.
///
/// A client that dies leaves its chunks, in which blocks may be free, half written or in slots; who
/// needs memory takes them over, and so does [`Store::recover`].
pub struct Store<S: Scheme, I: Index> {
    pub(super) scheme: S,
    pub(super) index: I,
    pub(super) shape: Shape,
    pub(super) pool: RefCell<Pool>,
    /// How many chunks have memory.
    pub(super) chunks: Cell<u32>,
    /// Whether no other chunk will get any.
    pub(super) has_all: Cell<bool>,
    pub(super) levels: RefCell<Levels>,
    pub(super) runs: RefCell<Runs>,
    /// Of a tree: where nodes are.
    pub(super) nodes: RefCell<Nodes>,
    /// Of its tasks one searches for free blocks at a time.
    pub(super) search: Gate,
    /// Changes whose operation was dropped, or gave up on them.
    pub(super) left: RefCell<Vec<Change>>,
    /// Blocks whose use is over, and whose count is on its way.
    pub(super) frees: RefCell<VecDeque<(Block, Posted)>>,
    /// A search for blocks found few, and no chunk that was never used.
    pub(super) is_short: Cell<bool>,
    /// How many insertions more found their bucket crowded than did not, lately.
    pub(super) crowd: Cell<u32>,
    /// Which slots keys were in, if that is remembered.
    pub(super) recall: Option<RefCell<Recall>>,
    /// Whether an overwrite that comes second may count as done.
    pub(super) absorbs: bool,
    /// Reads of several tasks, if they are done together.
    pub(super) reads: Option<Reads>,
    pub(super) counts: Cell<Counts>,
    pub(super) flaw: Option<Flaw>,
}

impl<S: Scheme, I: Index> Store<S, I> {
    /// The store of this shape.
    ///
    /// # Errors
    /// There is none, or a verb failed.
    pub async fn open(scheme: S, index: I, shape: Shape) -> Result<Self, OpenError> {
        let fits = (index.tag(), index.bytes()) == (shape.tag(), shape.index_bytes);
        if !fits {
            return Err(OpenError::OtherShape);
        }
        shape.check(scheme.endpoint()).await?;
        let store = Self::new(scheme, index, shape);
        if I::GROWTH.is_some() {
            store.learn_levels().await?;
        }
        Ok(store)
    }

    /// The store that [`Shape::check`] has found, of this index.
    pub fn new(scheme: S, index: I, shape: Shape) -> Self {
        let group = I::GROWTH.map_or(1, |growth| growth.group as u64);
        Self {
            scheme,
            index,
            shape,
            pool: RefCell::new(Pool::new(shape)),
            chunks: Cell::new(shape.chunks),
            has_all: Cell::new(false),
            levels: RefCell::new(Levels::new(shape, group)),
            runs: RefCell::default(),
            nodes: RefCell::default(),
            search: Gate::default(),
            left: RefCell::default(),
            frees: RefCell::default(),
            is_short: Cell::default(),
            crowd: Cell::default(),
            recall: None,
            absorbs: false,
            reads: None,
            counts: Cell::default(),
            flaw: None,
        }
    }

    /// The same, but it remembers of the keys that it used last in which slots they were, and what
    /// it read there. Where each verb takes a round trip this spares one of two for a get, and for
    /// a change two of three. It takes some MiB of the client's memory.
    #[must_use]
    pub fn remembering(self) -> Self {
        Self { recall: Some(RefCell::default()), ..self }
    }

    /// The same, but of overwrites that collide one is carried out: another that sees that it comes
    /// second counts as done right before it, and is answered. So it is done at its second miss at
    /// the latest where all changes of its key are overwrites, and costs its memory node a read
    /// where it had been tried again.
    #[must_use]
    pub fn absorbing(self) -> Self {
        Self { absorbs: true, ..self }
    }

    /// The same, with a planted bug.
    #[cfg(feature = "museum")]
    #[must_use]
    pub fn with_flaw(self, flaw: Flaw) -> Self {
        Self { flaw: Some(flaw), ..self }
    }

    /// The scheme by which writers take turns.
    pub fn scheme(&self) -> &S {
        &self.scheme
    }

    /// Only the first so many chunks have memory, as this client knows: it claims no others, until
    /// it is told of more. What others have put elsewhere it finds.
    ///
    /// # Panics
    /// If the store's shape has fewer, or it is none.
    pub fn has_chunks(&self, chunks: u32) {
        assert!((1..=self.shape.chunks).contains(&chunks), "{chunks} of {}", self.shape.chunks);
        self.chunks.set(chunks);
        self.has_all.set(false);
        self.is_short.set(false);
    }

    /// No other chunk will get memory: before it is
    /// [`PoolFull`](crate::WriteError::PoolFull) all is looked through that others have left. Where
    /// more may come only a little of it is.
    pub fn has_all_chunks(&self) {
        self.has_all.set(true);
        self.is_short.set(false);
    }

    /// Whether blocks had to be searched for and few were found: [`Store::has_chunks`] of one more
    /// would spare the next search.
    pub fn is_short(&self) -> bool {
        self.is_short.get()
    }

    /// Whether other chunks may yet get memory.
    pub(super) fn may_get_more(&self) -> bool {
        self.chunks.get() < self.shape.chunks && !self.has_all.get()
    }

    /// Whether most of the last insertions of this client found their buckets three quarters full:
    /// the index will soon need [`Store::growth_chunks`].
    pub fn is_crowded(&self) -> bool {
        self.crowd.get() == CROWD_MAX
    }

    /// An insertion found room, in a bucket that was crowded or was not.
    pub(super) fn found_room(&self, is_crowded: bool) {
        let crowd = self.crowd.get();
        self.crowd.set(if is_crowded { CROWD_MAX.min(crowd + 1) } else { crowd.saturating_sub(1) });
    }

    /// How many chunks side by side, of those that were never used, the index needs to grow; `None`
    /// if it cannot grow any more.
    pub fn growth_chunks(&self) -> Option<u32> {
        let level = I::GROWTH.map(|_| self.levels.borrow().highest() + 1)?;
        self.shape.table_chunks(level).filter(|_| (level as usize) < LEVELS)
    }

    /// How many chunks have memory, as this client knows.
    pub fn chunks(&self) -> u32 {
        self.chunks.get()
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        self.counts.get()
    }

    /// The blocks of the chunks that this client owns.
    pub fn census(&self) -> Census {
        self.pool.borrow().census()
    }

    /// Whether a dropped operation has left something to [`Store::settle`].
    pub fn is_unsettled(&self) -> bool {
        let is_growing = self.runs.borrow().current().is_some();
        is_growing || !self.left.borrow().is_empty() || !self.frees.borrow().is_empty()
    }

    pub(super) fn endpoint(&self) -> &S::Endpoint {
        self.scheme.endpoint()
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// Whether this mistake is to be made.
    pub(super) fn errs(&self, flaw: Flaw) -> bool {
        cfg!(feature = "museum") && self.flaw == Some(flaw)
    }
}

impl<S: Scheme, I: Index> std::fmt::Debug for Store<S, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("shape", &self.shape).finish_non_exhaustive()
    }
}
