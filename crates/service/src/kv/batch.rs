//! Several keys at a time.

use super::Kv;
use super::error::KvError;

/// Several keys at a time. A batch is no transaction: its operations are carried out one after the
/// other, in order, and each key does its own, which others may see before the rest. What one
/// refuses keeps no other from being done. A crash in the middle leaves the first of them done.
impl Kv {
    /// The values of keys, each as [`Kv::get`] gives it.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Vec<u8>>, KvError>> {
        keys.into_iter().map(|key| self.get(key)).collect()
    }

    /// Gives keys these values, each as [`Kv::put`] does. Of a key that is there twice the last
    /// value stays.
    pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Vec<Result<(), KvError>> {
        pairs.into_iter().map(|(key, value)| self.put(key, value)).collect()
    }

    /// Takes the values of keys away, each as [`Kv::remove`] does. Of a key that is there twice the
    /// second one has none any more.
    pub fn remove_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<bool, KvError>> {
        keys.into_iter().map(|key| self.remove(key)).collect()
    }
}
