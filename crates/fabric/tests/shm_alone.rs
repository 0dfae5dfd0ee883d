//! What one endpoint of shared memory sees of itself and its place, in one process.
#![cfg(all(feature = "shm", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

#[path = "shm_support/mod.rs"]
mod support;

use farlock_fabric::shm::{Options, Region};
use farlock_fabric::{Endpoint, Mailbox, Slot, Verb, block_on};
use support::TestDir;

/// A reader takes no place of an endpoint that acts, and needs none of those to be free.
#[test]
fn a_reader_has_places_of_its_own() {
    let dir = TestDir::new("reader-places");
    let options = || Options { endpoints: 2, ..dir.options() };
    let region = Region::open(&options()).unwrap();
    let reading = Region::open(&Options { read_only: true, ..options() }).unwrap();
    let looks = reading.endpoint().unwrap();
    assert!(looks.id().index > 2, "{:?}", looks.id());
    let acting = [region.endpoint().unwrap(), region.endpoint().unwrap()];
    assert!(acting.iter().all(|e| e.id().index <= 2));
    assert!(reading.endpoint().unwrap().id().index > looks.id().index);
}

/// What a read brought stays with the endpoint, and is copied from there.
#[test]
fn words_that_were_read_are_copied() {
    let dir = TestDir::new("copied");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let at = region.heap().0;
    block_on(&e, e.verb(Verb::Write { addr: at, data: &[1, 2, 3] })).unwrap();
    for words in 1..=3_usize {
        block_on(&e, e.verb(Verb::Read { addr: at, words: words as u16 })).unwrap();
        let mut into = [0; 4];
        assert_eq!(e.copy_read(0, &mut into), words);
        assert_eq!(into[..words], [1, 2, 3][..words], "{words} words");
        assert_eq!(e.copy_read(0, &mut into[..1]), 1, "no more than there is room for");
    }
}

/// Mail is unread from when its sender begins to write it until it was received.
#[test]
fn an_empty_mailbox_has_nothing_unread() {
    let dir = TestDir::new("unread");
    let region = dir.region();
    let (a, b) = (region.endpoint().unwrap(), region.endpoint().unwrap());
    assert!(!b.has_unread(Slot(0)));
    let to = Mailbox { endpoint: b.id(), slot: Slot(0) };
    block_on(&a, a.send(to, [1; 4])).unwrap();
    assert!(b.has_unread(Slot(0)) && !b.has_unread(Slot(1)));
    assert!(b.receive(Slot(0)).is_some() && !b.has_unread(Slot(0)));
}
