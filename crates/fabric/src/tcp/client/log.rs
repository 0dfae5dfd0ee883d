//! What a lane said and must say again where the connection broke before it was answered.

use std::collections::VecDeque;

use super::ticket::is_unsignalled;
use crate::addr::Slot;
use crate::endpoint::RECORD_WORDS;
use crate::tcp::wire::{Framing, request};

/// What a lane published, and the verbs that were not answered, in their order. A server does
/// again only what it has not done: it knows verbs by their tickets.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// What was published before the first of `said`, by slot.
    records: Vec<[u64; RECORD_WORDS]>,
    /// Behind it; the first is a verb.
    said: VecDeque<Said>,
    /// Room for frames.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Said {
    frame: Vec<u8>,
    what: What,
}

impl Said {
    fn is_unsignalled(&self) -> bool {
        matches!(self.what, What::Verbs { ticket } if is_unsignalled(ticket))
    }
}

#[derive(Debug)]
enum What {
    Verbs { ticket: u32 },
    Published { slot: usize, word: usize, value: u64 },
}

impl Log {
    pub(super) fn of(slots: usize) -> Self {
        Self { records: vec![[0; RECORD_WORDS]; slots], ..Self::default() }
    }

    pub(super) fn post(&mut self, ticket: u32, frame: &Framing<'_>) {
        self.say(What::Verbs { ticket }, frame);
    }

    pub(super) fn publish(&mut self, (slot, word): (Slot, usize), value: u64, frame: &Framing<'_>) {
        let slot = usize::from(slot.0);
        if self.said.is_empty() {
            self.records[slot][word] = value;
        } else {
            self.say(What::Published { slot, word, value }, frame);
        }
    }

    fn say(&mut self, what: What, frame: &Framing<'_>) {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        frame.copy_to(&mut copy);
        self.said.push_back(Said { frame: copy, what });
    }

    /// A verb was answered, and so all unsignalled ones were executed that were posted before.
    pub(super) fn answered(&mut self, ticket: u32) {
        let is_it = |said: &Said| matches!(said.what, What::Verbs { ticket: t } if t == ticket);
        let Some(at) = self.said.iter().position(is_it) else { return };
        for place in (0..=at).rev() {
            let is_over = |said: &Said| said.is_unsignalled() || place == at;
            if self.said.get(place).is_some_and(is_over) {
                self.spare.extend(self.said.remove(place).map(|said| said.frame));
            }
        }
        while let Some(What::Published { slot, word, value }) = self.said.front().map(|s| &s.what) {
            self.records[*slot][*word] = *value;
            self.spare.extend(self.said.pop_front().map(|said| said.frame));
        }
    }

    /// Writes all that is to be said again.
    pub(super) fn put_all(&self, lane: u32, out: &mut Vec<u8>) {
        for (slot, record) in self.records.iter().enumerate() {
            for (word, value) in record.iter().enumerate() {
                let mut frame = Framing::new(out, request::PUBLISH);
                frame.u32(lane).u8(slot as u8).u8(word as u8).u64(*value).end();
            }
        }
        self.said.iter().for_each(|said| out.extend_from_slice(&said.frame));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::client::ticket;

    #[test]
    fn what_is_said_again_is_what_was_not_answered_in_its_order() {
        let mut log = Log::of(1);
        let say = |log: &mut Log, kind: u8, ticket: Option<u32>, value: u64| {
            let mut bytes = Vec::new();
            let mut frame = Framing::new(&mut bytes, kind);
            frame.u64(value);
            match ticket {
                Some(ticket) => log.post(ticket, &frame),
                None => log.publish((Slot(0), 3), value, &frame),
            }
        };
        say(&mut log, request::PUBLISH, None, 1);
        say(&mut log, request::VERBS, Some(7), 2);
        say(&mut log, request::PUBLISH, None, 3);
        say(&mut log, request::VERBS, Some(8), 4);
        let last_words = |log: &Log| {
            let mut out = Vec::new();
            log.put_all(5, &mut out);
            out[out.len() - 13 * log.said.len()..].chunks(13).map(|f| f[5]).collect::<Vec<_>>()
        };
        assert_eq!((log.records[0][3], last_words(&log)), (1, vec![2, 3, 4]));
        log.answered(7);
        assert_eq!((log.records[0][3], last_words(&log)), (3, vec![4]));
        log.answered(9);
        log.answered(8);
        say(&mut log, request::PUBLISH, None, 6);
        assert_eq!((log.records[0][3], last_words(&log)), (6, vec![]));
        say(&mut log, request::VERBS, Some(64 + ticket::UNSIGNALLED), 7);
        say(&mut log, request::PUBLISH, None, 8);
        say(&mut log, request::VERBS, Some(128), 9);
        assert_eq!((log.records[0][3], last_words(&log)), (6, vec![7, 8, 9]));
        log.answered(128);
        assert_eq!((log.records[0][3], last_words(&log)), (8, vec![]));
    }
}
