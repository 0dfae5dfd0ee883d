//! Several keys at a time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use farlock_fabric::block_on;
use farlock_locks::local::together;

use super::Kv;
use super::error::KvError;
use super::part::Part;
use super::wish;

/// So many operations of a batch are under way at once by a server.
const AT_ONCE: usize = 32;

/// Several keys at a time. A batch is no transaction: its operations are carried out one after the
/// other where the memory is this host's, and by a server up to 32 at a time, those of one key in
/// order. Each key does its own, which others may see before the rest. What one refuses keeps no
/// other from being done. A crash in the middle leaves some of them done, and of one key the first.
impl Kv {
    /// The values of keys, each as [`Kv::get`] gives it.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Vec<u8>>, KvError>> {
        self.each(
            keys,
            AsRef::as_ref,
            |key| self.get(key),
            async |part: &Part, key: &K| part.value_among(key.as_ref()).await,
        )
    }

    /// Gives keys these values, each as [`Kv::put`] does. Of a key that is there twice the last
    /// value stays.
    pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Vec<Result<(), KvError>> {
        self.each(
            pairs,
            |(key, _)| key.as_ref(),
            |(key, value)| self.put(key, value),
            async |part: &Part, (key, value): &(K, V)| {
                let wish = wish::put(value.as_ref(), Default::default());
                part.change_among(key.as_ref(), wish).await
            },
        )
    }

    /// Takes the values of keys away, each as [`Kv::remove`] does. Of a key that is there twice the
    /// second one has none any more.
    pub fn remove_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<bool, KvError>> {
        self.each(
            keys,
            AsRef::as_ref,
            |key| self.remove(key),
            async |part: &Part, key: &K| part.change_among(key.as_ref(), wish::remove()).await,
        )
    }

    /// Does the same with each of these, of which every one has a key: `alone`, or `among` others.
    fn each<I, T>(
        &self,
        items: impl IntoIterator<Item = I>,
        key: impl Fn(&I) -> &[u8],
        alone: impl Fn(&I) -> Result<T, KvError>,
        among: impl AsyncFn(&Part, &I) -> Result<T, KvError>,
    ) -> Vec<Result<T, KvError>> {
        let items = items.into_iter();
        if !self.is_far() {
            return items.map(|item| alone(&item)).collect();
        }
        let items: Vec<I> = items.collect();
        let part_of = |item: &I| self.part_of(key(item)).map(Some);
        let mut parts: Vec<Result<Option<&Part>, KvError>> = items.iter().map(part_of).collect();
        let mut done: Vec<_> = items.iter().map(|_| None).collect();
        while let Some(part) = parts.iter().flatten().find_map(|part| *part) {
            let is_it = |other: &Result<Option<&Part>, _>| {
                let other = other.as_ref().ok().copied().flatten();
                other.is_some_and(|other| std::ptr::eq(other, part))
            };
            let its: Vec<usize> = (0..items.len()).filter(|&at| is_it(&parts[at])).collect();
            let rounds = Rounds::of(its.iter().map(|&at| key(&items[at])).collect());
            let ended = rounds.play(part, async |at| among(part, &items[its[at]]).await);
            for (at, ended) in its.into_iter().zip(ended) {
                (parts[at], done[at]) = (Ok(None), ended);
            }
        }
        let refused = |part: Result<_, KvError>| Err(part.err().expect("it is away"));
        let ended = done.into_iter().zip(parts);
        ended.map(|(done, part)| done.unwrap_or_else(|| refused(part))).collect()
    }
}

/// Operations on one part, by their keys: many are under way at a time, and one of each key. Where
/// the next has a key that is under way, all that are come to their ends first.
struct Rounds<'k> {
    keys: Vec<&'k [u8]>,
    next: Cell<usize>,
    under_way: RefCell<BTreeSet<&'k [u8]>>,
}

impl<'k> Rounds<'k> {
    fn of(keys: Vec<&'k [u8]>) -> Self {
        Self { keys, next: Cell::new(0), under_way: RefCell::default() }
    }

    /// The next one, if it can begin.
    fn begin(&self) -> Option<usize> {
        let next = self.next.get();
        let begins = self.under_way.borrow_mut().insert(self.keys.get(next)?);
        begins.then(|| self.next.replace(next + 1))
    }

    /// Does all of them; what each came to.
    fn play<T>(&self, part: &Part, act: impl AsyncFn(usize) -> T) -> Vec<Option<T>> {
        let done: RefCell<Vec<Option<T>>> = RefCell::new(self.keys.iter().map(|_| None).collect());
        let worker = async || {
            while let Some(at) = self.begin() {
                let ended = act(at).await;
                self.under_way.borrow_mut().remove(self.keys[at]);
                done.borrow_mut()[at] = Some(ended);
            }
        };
        while self.next.get() < self.keys.len() {
            let workers = AT_ONCE.min(self.keys.len() - self.next.get());
            let all = together((0..workers).map(|_| worker()));
            block_on(part.lane(), part.lane().deferring(all));
        }
        done.into_inner()
    }
}
