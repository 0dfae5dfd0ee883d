//! Several keys at a time.

use std::cell::OnceCell;

use super::Kv;
use super::error::KvError;
use super::part::Part;
use super::pipeline::Pipeline;
use super::wish;

/// So many operations of a batch are prepared at a time.
const WINDOW: usize = 1024;

/// Several keys at a time. A batch is no transaction: its operations are carried out one after the
/// other where the memory is this host's, and by a server many at a time, those of one key in
/// order. Each key does its own, which others may see before the rest. What one refuses keeps no
/// other from being done. A crash in the middle leaves some of them done, and of one key the first.
impl Kv {
    /// The values of keys, each as [`Kv::get`] gives it.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Vec<u8>>, KvError>> {
        self.each(keys, AsRef::as_ref, async |part, key: &K| part.value(key.as_ref()).await)
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
            async |part, (key, value): &(K, V)| {
                let wish = wish::put(value.as_ref(), Default::default());
                part.change(key.as_ref(), None, wish).await
            },
        )
    }

    /// Takes the values of keys away, each as [`Kv::remove`] does. Of a key that is there twice the
    /// second one has none any more.
    pub fn remove_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<bool, KvError>> {
        self.each(keys, AsRef::as_ref, async |part, key: &K| {
            part.change(key.as_ref(), None, wish::remove()).await
        })
    }

    /// Does the same with each of these, of which every one has a key.
    fn each<I, T>(
        &self,
        items: impl IntoIterator<Item = I>,
        key: impl Fn(&I) -> &[u8],
        act: impl AsyncFn(&Part, &I) -> Result<T, KvError>,
    ) -> Vec<Result<T, KvError>> {
        let mut items = items.into_iter();
        if !self.is_far() {
            let alone = |item: I| {
                let part = self.part_of(key(&item))?;
                part.block(act(part, &item))
            };
            return items.map(alone).collect();
        }
        let mut done = Vec::new();
        loop {
            let window: Vec<I> = items.by_ref().take(WINDOW).collect();
            if window.is_empty() {
                return done;
            }
            done.extend(self.each_together(&window, &key, &act));
        }
    }

    fn each_together<I, T>(
        &self,
        items: &[I],
        key: impl Fn(&I) -> &[u8],
        act: impl AsyncFn(&Part, &I) -> Result<T, KvError>,
    ) -> Vec<Result<T, KvError>> {
        let done: Vec<OnceCell<_>> = items.iter().map(|_| OnceCell::new()).collect();
        let tell = |at: usize, ended| {
            let told = done[at].set(ended);
            assert!(told.is_ok(), "an operation ends once");
        };
        let (act, tell) = (&act, &tell);
        let mut pipelines: Vec<(&Part, Pipeline<'_>)> = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let part = match self.part_of(key(item)) {
                Ok(part) => part,
                Err(error) => {
                    tell(at, Err(error));
                    continue;
                }
            };
            let known = pipelines.iter().position(|(other, _)| std::ptr::eq(*other, part));
            let known = known.unwrap_or_else(|| {
                pipelines.push((part, Pipeline::default()));
                pipelines.len() - 1
            });
            pipelines[known].1.add(key(item), async move { tell(at, act(part, item).await) });
        }
        pipelines.into_iter().for_each(|(part, pipeline)| pipeline.finish(part));
        done.into_iter().map(|done| done.into_inner().expect("all have ended")).collect()
    }
}
