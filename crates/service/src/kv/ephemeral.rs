//! Pairs that end with the session that has written them.

use std::borrow::Cow;
use std::sync::Arc;

use farlock_fabric::{Endpoint as _, Slot};

use super::Kv;
use super::error::KvError;
use super::hub::{Hub, Owning};
use super::part::Part;
use super::value::{Owner, Term};
use super::wish::{self, Live, Wish};

impl Kv {
    /// Gives a key this value, whether or not it has one, for as long as its owner is there: all
    /// handles of this session's store, or of this [`Kv::open`], watches included. The pair ends
    /// when the last of them is dropped, or their process is dead, however it died; nobody sees it
    /// from then on. Keep a handle. A process that is stopped lives. In ZooKeeper such pairs are
    /// called ephemeral too.
    ///
    /// Other clients may change it. [`Kv::add`] and [`Kv::compare_and_set`] keep its owner; all
    /// else that gives a value makes a pair of it that stays, so that it never has an owner and a
    /// time, or an owner and a token. A fenced key is refused.
    ///
    /// The last handle takes its pairs away. What a dead process leaves is freed by the next change
    /// of its key, by [`Kv::sweep`], or when the store is full. No dump has it.
    ///
    /// # Errors
    /// See [`KvError`]. A crash leaves the key as it was, or without a value.
    pub fn put_ephemeral(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), KvError> {
        let key = key.as_ref();
        let part = self.part_of(key)?;
        part.block(part.put_ephemeral(key, value.as_ref()))
    }

    /// The same, unless the key has a value: then it keeps that. Returns whether it had none. Of
    /// several that say who does something, one succeeds, until it is gone.
    ///
    /// # Errors
    /// See [`KvError`].
    pub fn insert_ephemeral(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool, KvError> {
        let key = key.as_ref();
        let part = self.part_of(key)?;
        part.block(part.insert_ephemeral(key, value.as_ref()))
    }
}

impl Part {
    /// See [`Kv::put_ephemeral`].
    pub(super) async fn put_ephemeral(
        &self,
        key: &[u8],
        value: impl Into<Cow<'_, [u8]>>,
    ) -> Result<(), KvError> {
        let wish = wish::put(value, self.own_term(key)?);
        self.change(key, None, wish).await
    }

    /// See [`Kv::insert_ephemeral`].
    pub(super) async fn insert_ephemeral(
        &self,
        key: &[u8],
        value: impl Into<Cow<'_, [u8]>>,
    ) -> Result<bool, KvError> {
        let wish = wish::insert(value, self.own_term(key)?);
        let inserted = self.change(key, None, wish).await;
        if matches!(inserted, Ok(false)) {
            self.hub.owning().has_not(key);
        }
        inserted
    }

    /// Until when a value of this key lasts that ends with its owner.
    fn own_term(&self, key: &[u8]) -> Result<Term, KvError> {
        self.hub.check()?;
        let owner = Some(self.hub.owner(key)?);
        Ok(Term { until: None, owner })
    }

    /// Takes away what ends with this store's last handle, if this one is.
    pub(super) fn remove_own(&self) {
        // As long as this is locked, a handle that comes now puts nothing of its own there.
        let mut owning = self.hub.owning();
        if Arc::strong_count(&self.hub) > 1 {
            return;
        }
        let keys = std::mem::take(&mut owning.keys);
        let owner = owning.owner.as_ref().map(|(_, owner)| *owner);
        for key in keys.into_keys() {
            // What fails here is found dead by others.
            let _ = self.block(self.change(&key, None, |old: Option<Live<'_>>| {
                Ok(match old {
                    Some((_, term)) if term.owner == owner => Wish::Remove(()),
                    _ => Wish::Leave(()),
                })
            }));
        }
    }
}

impl Hub {
    /// The owner with which pairs of this store end. This key is to have one.
    fn owner(&self, key: &[u8]) -> Result<Owner, KvError> {
        let mut owning = self.owning();
        let owner = match &owning.owner {
            Some((_, owner)) => *owner,
            None => {
                let lane = self.attach()?;
                let owner = Owner { id: lane.id(), since: lane.now() };
                lane.publish(Slot(0), 0, owner.since);
                owning.owner = Some((lane, owner));
                owner
            }
        };
        owning.is_to_have(key);
        Ok(owner)
    }
}

impl Owning {
    /// This key is given a value that ends with the owner.
    fn is_to_have(&mut self, key: &[u8]) {
        match self.keys.get_mut(key) {
            Some(times) => *times += 1,
            None => drop(self.keys.insert(key.to_vec(), 1)),
        }
    }

    /// It had another value, and was not.
    fn has_not(&mut self, key: &[u8]) {
        let Some(times) = self.keys.get_mut(key) else { return };
        *times -= 1;
        if *times == 0 {
            self.keys.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that seeks keys that nobody has yet would remember all that others have.
    #[test]
    fn a_key_that_has_another_value_is_not_remembered() {
        let mut owning = Owning::default();
        owning.is_to_have(b"a");
        owning.is_to_have(b"b");
        // Another thread was quicker with the one, another process with the other.
        owning.is_to_have(b"a");
        owning.has_not(b"a");
        owning.has_not(b"b");
        assert!(owning.keys.keys().eq([b"a"]));
        // By the last handle that is dropped they are taken away.
        owning.keys.clear();
        owning.has_not(b"a");
    }
}
