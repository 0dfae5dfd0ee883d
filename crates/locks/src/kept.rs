//! What the slots of one endpoint keep for later: mail that is not the lock's business, and the
//! words that travel with it. See [`errand`](crate::record::errand).

use std::cell::{Cell, RefCell};

use farlock_fabric::{Addr, Message, Slot};

/// Messages that were put by, and words with which holders will hand on. At most a message of a
/// kind and a word for each slot.
#[derive(Debug)]
pub(crate) struct Kept {
    messages: RefCell<Vec<(Slot, u8, Message)>>,
    words: RefCell<Vec<Loaded>>,
    numbers: Cell<u64>,
}

/// The word with which a slot hands on a lock that it has by a grant.
#[derive(Debug)]
struct Loaded {
    slot: Slot,
    lock: Addr,
    grant: u64,
    word: u64,
}

impl Kept {
    pub(crate) const fn new() -> Self {
        Self {
            messages: RefCell::new(Vec::new()),
            words: RefCell::new(Vec::new()),
            numbers: Cell::new(0),
        }
    }

    /// Keeps a message until it is taken or another of its kind comes.
    #[cold]
    pub(crate) fn keep(&self, slot: Slot, kind: u8, message: Message) {
        let mut messages = self.messages.borrow_mut();
        messages.retain(|(at, other, _)| (*at, *other) != (slot, kind));
        messages.push((slot, kind, message));
    }

    /// Takes a slot's message that is like that.
    pub(crate) fn take(&self, slot: Slot, like: impl Fn(&Message) -> bool) -> Option<Message> {
        let mut messages = self.messages.borrow_mut();
        let at = messages.iter().position(|(at, _, message)| *at == slot && like(message))?;
        Some(messages.swap_remove(at).2)
    }

    /// The slot will hand this lock on with this word, if it still has it by this grant.
    pub(crate) fn load(&self, slot: Slot, lock: Addr, grant: u64, word: u64) {
        let mut words = self.words.borrow_mut();
        words.retain(|of| of.slot != slot);
        words.push(Loaded { slot, lock, grant, word });
    }

    /// The word with which this slot hands on a lock that it has by this grant, once.
    pub(crate) fn unload(&self, slot: Slot, lock: Addr, grant: u64) -> Option<u64> {
        let mut words = self.words.borrow_mut();
        let is_it = |of: &Loaded| (of.slot, of.lock, of.grant) == (slot, lock, grant);
        let at = words.iter().position(is_it)?;
        Some(words.swap_remove(at).word)
    }

    /// A number that was not given for long; wraps.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.set(self.numbers.get().wrapping_add(1));
        self.numbers.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: Addr = Addr::from_bits(64);

    #[test]
    fn a_word_goes_with_one_grant_once() {
        let kept = Kept::new();
        kept.load(Slot(1), LOCK, 7, 99);
        assert_eq!(kept.unload(Slot(1), LOCK, 8), None, "another grant");
        assert_eq!(kept.unload(Slot(0), LOCK, 7), None, "another slot");
        assert_eq!(kept.unload(Slot(1), LOCK.plus(64), 7), None, "another lock");
        assert_eq!(kept.unload(Slot(1), LOCK, 7), Some(99));
        assert_eq!(kept.unload(Slot(1), LOCK, 7), None);
    }

    #[test]
    fn of_each_kind_the_last_message_is_kept() {
        let kept = Kept::new();
        kept.keep(Slot(1), 7, [1; 4]);
        kept.keep(Slot(1), 7, [2; 4]);
        kept.keep(Slot(1), 8, [3; 4]);
        kept.keep(Slot(2), 7, [4; 4]);
        assert_eq!(kept.take(Slot(1), |message| message[0] < 3), Some([2; 4]));
        assert_eq!(kept.take(Slot(1), |message| message[0] < 3), None);
        assert_eq!(kept.take(Slot(1), |_| true), Some([3; 4]));
        assert_eq!(kept.take(Slot(2), |_| true), Some([4; 4]));
    }
}
