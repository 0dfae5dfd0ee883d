//! What a client remembers of keys, in a table that grows to a bound: one key at each place.

use farlock_fabric::{Addr, Nanos};

use crate::word::SlotWord;

/// Keys that are remembered at most; there is room for a few first.
const PLACES_MAX: usize = 1 << 16;
const PLACES_FIRST: usize = 256;

/// Keys by their hashes, one at each place.
#[derive(Debug, Default)]
pub(crate) struct Recall {
    places: Vec<Option<Remembered>>,
    taken: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    pub(crate) hash: u64,
    /// Its bytes: keys can be made to have the same hash.
    pub(crate) key: Box<[u8]>,
    pub(crate) slot: Addr,
    /// What the slot said.
    pub(crate) word: SlotWord,
    /// That of the block.
    pub(crate) generation: u32,
    /// When it was read.
    pub(crate) read_at: Nanos,
    /// If it is short.
    pub(crate) value: Option<Box<[u8]>>,
}

impl Recall {
    fn place(&self, hash: u64) -> Option<usize> {
        let mask = self.places.len().checked_sub(1)?;
        Some(hash as usize & mask)
    }

    /// What is remembered of this key, which has this hash.
    pub(crate) fn of(&self, hash: u64, key: &[u8]) -> Option<&Remembered> {
        self.at(hash).filter(|known| *known.key == *key)
    }

    fn at(&self, hash: u64) -> Option<&Remembered> {
        let known = self.places[self.place(hash)?].as_ref();
        known.filter(|known| known.hash == hash)
    }

    /// Nothing is remembered of the key with this hash.
    pub(crate) fn forget(&mut self, hash: u64) {
        if self.at(hash).is_some() {
            self.taken -= 1;
            self.place(hash).into_iter().for_each(|place| self.places[place] = None);
        }
    }

    /// What its value was is remembered no more.
    pub(crate) fn forget_value(&mut self, hash: u64) {
        let Some(place) = self.place(hash) else { return };
        if let Some(known) = self.places[place].as_mut().filter(|known| known.hash == hash) {
            known.value = None;
        }
    }

    /// This is remembered, perhaps in place of another key.
    pub(crate) fn put(&mut self, new: Remembered) {
        if 2 * self.taken >= self.places.len() && self.places.len() < PLACES_MAX {
            self.grow();
        }
        let Some(place) = self.place(new.hash) else { return };
        self.taken += usize::from(self.places[place].is_none());
        self.places[place] = Some(new);
    }

    fn grow(&mut self) {
        let places = PLACES_FIRST.max(2 * self.places.len());
        let before = std::mem::replace(&mut self.places, vec![None; places]);
        self.taken = 0;
        for known in before.into_iter().flatten() {
            let Some(place) = self.place(known.hash) else { return };
            self.taken += usize::from(self.places[place].is_none());
            self.places[place] = Some(known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"a key";

    fn known(hash: u64) -> Remembered {
        let (slot, word) = (Addr::from_bits(hash * 8), SlotWord(hash + 1));
        let (key, value) = (KEY.into(), Some([7].into()));
        Remembered { hash, key, slot, word, generation: 1, read_at: 0, value }
    }

    #[test]
    fn the_last_keys_are_remembered_and_no_more_than_there_are_places() {
        let mut recall = Recall::default();
        assert!(recall.of(5, KEY).is_none());
        recall.forget(5);
        (0..PLACES_MAX as u64 * 3).for_each(|hash| recall.put(known(hash)));
        assert_eq!((recall.places.len(), recall.taken), (PLACES_MAX, PLACES_MAX));
        let last = PLACES_MAX as u64 * 3 - 1;
        assert_eq!(recall.of(last, KEY).map(|known| known.word), Some(SlotWord(last + 1)));
        assert!(recall.of(last - PLACES_MAX as u64, KEY).is_none(), "another key has its place");
        recall.forget_value(last);
        assert!(recall.of(last, KEY).is_some_and(|known| known.value.is_none()));
        recall.forget(last);
        recall.forget(last);
        assert_eq!((recall.of(last, KEY).is_none(), recall.taken), (true, PLACES_MAX - 1));
    }

    #[test]
    fn a_key_is_not_taken_for_another_one_with_its_hash() {
        let mut recall = Recall::default();
        recall.put(known(5));
        assert!(recall.of(5, KEY).is_some() && recall.of(5, b"another").is_none());
        recall.put(Remembered { key: (*b"another").into(), ..known(5) });
        assert!(recall.of(5, KEY).is_none() && recall.of(5, b"another").is_some());
    }

    #[test]
    fn keys_stay_where_there_is_room() {
        let mut recall = Recall::default();
        (0..100).for_each(|hash| recall.put(known(hash)));
        assert!((0..100).all(|hash| recall.of(hash, KEY).is_some()));
    }
}
