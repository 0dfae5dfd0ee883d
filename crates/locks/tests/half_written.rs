//! A message that its sender has not written to the end, in the mailbox of one that is granted: as
//! long as it is there nobody knows whether it is a doubt.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use farlock_fabric::hook::Hook;
use farlock_fabric::shm::{Options, Region, ShmEndpoint};
use farlock_fabric::{Slot, block_on};
use farlock_locks::record::claim::Claim;
use farlock_locks::slot::{self, Phase, SlotWord};
use farlock_locks::{Closed, Mode, Opened, Seat};

use Mode::{Exclusive, Shared};

/// An endpoint whose mailbox has a message that is half written, for so many looks, and which notes
/// what its slot says of itself.
struct HalfRead {
    inner: ShmEndpoint,
    looks: Cell<u32>,
    said: RefCell<Vec<SlotWord>>,
}

impl Hook for HalfRead {
    type Inner = ShmEndpoint;

    fn inner(&self) -> &ShmEndpoint {
        &self.inner
    }

    fn has_unread(&self, slot: Slot) -> bool {
        let left = self.looks.get();
        self.looks.set(left.saturating_sub(1));
        left > 0 || farlock_fabric::Endpoint::has_unread(&self.inner, slot)
    }

    fn publish(&self, slot: Slot, word: usize, value: u64) {
        if word == slot::STATE {
            self.said.borrow_mut().push(SlotWord(value));
        }
        farlock_fabric::Endpoint::publish(&self.inner, slot, word, value);
    }
}

impl HalfRead {
    fn new(inner: ShmEndpoint) -> Self {
        Self { inner, looks: Cell::new(0), said: RefCell::default() }
    }

    /// Who holds has not said before that it leaves by that acquisition: others may have taken it
    /// off the word since.
    fn judge_holder(&self) {
        let said = self.said.borrow();
        let last = said.last().expect("a holder has said so");
        let is_left = |word: &&SlotWord| Phase::from_bits(word.phase()) == Some(Phase::Leaving);
        let mut left = said.iter().filter(is_left);
        assert!(left.all(|left| left.ticket() != last.ticket()), "left, and holds: {said:?}");
    }
}

/// A region of its own, which goes with it.
struct Room {
    region: Region,
    dir: PathBuf,
}

impl Room {
    fn new() -> Self {
        static ROOMS: AtomicU32 = AtomicU32::new(0);
        let number = ROOMS.fetch_add(1, Ordering::Relaxed);
        let dir = PathBuf::from(format!("/dev/shm/farlock-half-{}-{number}", std::process::id()));
        let options = Options::new(dir.join("region"), dir.join("state"), "test");
        Self { region: Region::open(&options).expect("a region of its own"), dir }
    }

    fn seat(&self) -> Seat<HalfRead, Claim> {
        let endpoint = HalfRead::new(self.region.endpoint().expect("a place"));
        Seat::new(endpoint, Claim::default(), farlock_locks::Options::new(1))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.dir).expect("the region's files");
    }
}

fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A writer that others wait for becomes a reader while it cannot read all of its mail: it is
/// certain that it holds.
#[test]
fn a_hold_that_becomes_shared_is_never_said_to_be_over() {
    for looks in [1, 2, u32::MAX] {
        let room = Room::new();
        let word = room.region.heap().0;
        let (mut writer, mut next) = (room.seat(), room.seat());
        assert_eq!(writer.open(word, Exclusive), Ok(Opened::Held));
        assert_eq!(next.open(word, Exclusive), Ok(Opened::InLine));
        assert!(poll(next.wait()).is_pending());
        writer.endpoint().looks.set(looks);
        assert_eq!(writer.downgrade(), Ok(true));
        writer.endpoint().judge_holder();
        assert!(poll(next.wait()).is_pending(), "a reader is inside");
        assert_eq!(writer.close(), Ok(Closed::Free));
        assert_eq!(block_on(next.endpoint(), next.wait()), Ok(true));
    }
}

/// The first in line that shares passes the line on before it holds.
#[test]
fn a_reader_that_leaves_one_behind_does_not_hold_by_it() {
    for looks in [1, 2, 3] {
        let room = Room::new();
        let word = room.region.heap().0;
        let (mut writer, mut reader, mut next) = (room.seat(), room.seat(), room.seat());
        assert_eq!(writer.open(word, Exclusive), Ok(Opened::Held));
        assert_eq!(reader.open(word, Shared), Ok(Opened::InLine));
        assert!(poll(reader.wait()).is_pending());
        assert_eq!(next.open(word, Exclusive), Ok(Opened::InLine));
        assert!(poll(next.wait()).is_pending());
        assert_eq!(writer.close(), Ok(Closed::InHand));
        assert_eq!(block_on(writer.endpoint(), writer.hand_over()), Ok(true));
        reader.endpoint().looks.set(looks);
        let is_granted = poll(reader.wait()).is_ready();
        if is_granted {
            reader.endpoint().judge_holder();
            assert_eq!(reader.close(), Ok(Closed::Free));
        }
        // What it left behind otherwise the next one takes off.
        let mut left = vec![&mut next];
        left.extend((!is_granted).then_some(&mut reader));
        for seat in left {
            assert_eq!(block_on(seat.endpoint(), seat.wait()), Ok(true));
            if seat.close() == Ok(Closed::InHand) {
                assert_eq!(block_on(seat.endpoint(), seat.hand_over()), Ok(true));
            }
        }
    }
}
