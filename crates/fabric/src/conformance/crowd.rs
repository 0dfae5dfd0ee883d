//! Many endpoints at once: what is atomic, what may tear, and what follows from both.

use std::sync::Mutex;

use super::{Stage, load, load_all, store};
use crate::addr::{Addr, Mailbox, Slot};
use crate::endpoint::{Endpoint, Nanos, Patience, Wait};
use crate::error::Fault;
use crate::verb::Verb;

const CROWD: usize = 4;
const TURNS: u64 = 200;
/// How long a member waits before it looks again.
const PAUSE: Nanos = 20_000;

pub fn additions_of_many_add_up<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.crowd(CROWD, async |e, number| {
        for _ in 0..TURNS {
            e.faa64(addr, 1 + number as u64).await.expect("it takes effect");
        }
    });
    let sum = (1..=CROWD as u64).sum::<u64>() * TURNS;
    stage.run(async { assert_eq!(load(&e, addr).await, sum) });
}

pub fn tickets_of_many_are_unique<S: Stage>(stage: &mut S) {
    let addr = stage.scratch(64);
    let tickets = Mutex::new(Vec::new());
    stage.crowd(CROWD, async |e, _| {
        for _ in 0..TURNS {
            e.faa64(addr, 1).await.expect("it takes effect");
            tickets.lock().expect("nobody panicked").push(e.old() as u64);
        }
    });
    let mut tickets = tickets.into_inner().expect("nobody panicked");
    tickets.sort_unstable();
    assert!(tickets.into_iter().eq(0..CROWD as u64 * TURNS));
}

pub fn compares_of_many_lose_no_update<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.crowd(CROWD, async |e, _| {
        for _ in 0..TURNS {
            let mut seen = load(e, addr).await;
            loop {
                e.cas64(addr, seen, seen + 1).await.expect("it takes effect");
                if e.old() as u64 == seen {
                    break;
                }
                seen = e.old() as u64;
            }
        }
    });
    stage.run(async { assert_eq!(load(&e, addr).await, CROWD as u64 * TURNS) });
}

pub fn a_crowd_swaps_for_one_winner<S: Stage>(stage: &mut S) {
    let addr = stage.scratch(8 * TURNS);
    let winners = Mutex::new(Vec::new());
    stage.crowd(CROWD, async |e, number| {
        for turn in 0..TURNS {
            e.cas64(addr.plus(8 * turn), 0, 1 + number as u64).await.expect("it takes effect");
            if e.old() == 0 {
                winners.lock().expect("nobody panicked").push(turn);
            }
        }
    });
    let mut winners = winners.into_inner().expect("nobody panicked");
    winners.sort_unstable();
    assert!(winners.into_iter().eq(0..TURNS), "each word was won once");
}

/// A word that some member may have written at `index`: a torn word is none.
fn pattern(number: usize, index: usize) -> u64 {
    let half = (number as u64 + 1) << 16 | index as u64;
    half << 32 | half
}

pub fn words_do_not_tear<S: Stage>(stage: &mut S) {
    const WORDS: usize = 64;
    let addr = stage.scratch(8 * WORDS as u64);
    stage.crowd(CROWD, async |e, number| {
        let data: Vec<_> = (0..WORDS).map(|index| pattern(number, index)).collect();
        for _ in 0..TURNS / 4 {
            store(e, addr, &data).await;
            for (index, word) in load_all(e, addr, WORDS).await.into_iter().enumerate() {
                let whole = (0..CROWD).any(|number| word == pattern(number, index));
                assert!(whole, "word {index} is {word:#x}, which nobody wrote");
            }
        }
    });
}

pub fn atomics_and_reads_of_a_word_do_not_tear<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    // Both halves count together: a torn word shows them apart.
    let step = 1 << 32 | 1;
    stage.crowd(CROWD, async |e, number| {
        for _ in 0..TURNS {
            if number % 2 == 0 {
                e.faa64(addr, step).await.expect("it takes effect");
            } else {
                let word = load(e, addr).await;
                assert_eq!(word >> 32, word & 0xffff_ffff);
            }
        }
    });
    let counted = (CROWD as u64).div_ceil(2) * TURNS;
    stage.run(async { assert_eq!(load(&e, addr).await, counted * step) });
}

/// Sends, and again while the mailbox is full.
async fn insist<E: Endpoint>(e: &E, to: Mailbox, message: [u64; 4]) {
    loop {
        match e.send(to, message).await {
            Ok(()) => return,
            Err(Fault::MailboxFull) => e.sleep(PAUSE).await,
            Err(fault) => panic!("{fault}"),
        };
    }
}

/// Waits for a message and takes it.
async fn next<E: Endpoint>(e: &E) -> [u64; 4] {
    loop {
        if let Some(envelope) = e.receive(Slot(0)) {
            return envelope.message;
        }
        let wait = Wait { mail: Some(Slot(0)), patience: Patience::PARK, ..Wait::default() };
        e.wait(wait).await;
    }
}

/// A member's mailbox, as it told the others in a word of its own.
async fn mailbox_of<E: Endpoint>(e: &E, addr: Addr, number: usize) -> Mailbox {
    loop {
        let bits = load(e, addr.plus(8 * number as u64)).await;
        if bits != 0 {
            return Mailbox::from_bits(bits);
        }
        e.sleep(PAUSE).await;
    }
}

async fn tell_mailbox<E: Endpoint>(e: &E, addr: Addr, number: usize) {
    let own = Mailbox { endpoint: e.id(), slot: Slot(0) };
    store(e, addr.plus(8 * number as u64), &[own.bits()]).await;
}

pub fn messages_of_many_arrive_once_and_in_order<S: Stage>(stage: &mut S) {
    let addr = stage.scratch(64);
    stage.crowd(CROWD, async |e, number| {
        tell_mailbox(e, addr, number).await;
        if number > 0 {
            let to = mailbox_of(e, addr, 0).await;
            for turn in 0..TURNS {
                insist(e, to, [number as u64, turn, 0, 0]).await;
            }
            next(e).await; // stays alive until everything was received
            return;
        }
        let mut expected = [0; CROWD];
        for _ in 0..(CROWD as u64 - 1) * TURNS {
            let [from, turn, ..] = next(e).await;
            assert_eq!(turn, expected[from as usize], "once, and in order, from {from}");
            expected[from as usize] += 1;
        }
        assert_eq!(e.receive(Slot(0)), None);
        for other in 1..CROWD {
            insist(e, mailbox_of(e, addr, other).await, [0; 4]).await;
        }
    });
}

pub fn a_lock_of_one_word_excludes<S: Stage>(stage: &mut S) {
    let (e, lock, shared) = (stage.endpoint(), stage.scratch(64), stage.scratch(64));
    stage.crowd(CROWD, async |e, _| {
        for _ in 0..TURNS / 4 {
            loop {
                e.cas64(lock, 0, 1).await.expect("it takes effect");
                if e.old() == 0 {
                    break;
                }
                let held = Wait { word: Some((lock, 1)), interval: Some(PAUSE), ..Wait::default() };
                e.wait(held).await;
            }
            let count = load(e, shared).await;
            store(e, shared, &[count + 1]).await;
            store(e, lock, &[0]).await;
        }
    });
    let total = CROWD as u64 * (TURNS / 4);
    stage.run(async { assert_eq!(load(&e, shared).await, total, "no update was lost") });
}

pub fn a_handover_by_message_carries_the_memory<S: Stage>(stage: &mut S) {
    let (e, addr, shared) = (stage.endpoint(), stage.scratch(64), stage.scratch(4096));
    stage.crowd(CROWD, async |e, number| {
        tell_mailbox(e, addr, number).await;
        let to = mailbox_of(e, addr, (number + 1) % CROWD).await;
        for turn in 0..TURNS / 4 {
            if number > 0 || turn > 0 {
                next(e).await;
            }
            let step = turn * CROWD as u64 + number as u64;
            let words = load_all(e, shared, 32).await;
            assert_eq!(words, [step; 32], "all that the one before wrote");
            let write = Verb::Write { addr: shared, data: &[step + 1; 32] };
            e.verb(write).await.expect("it takes effect");
            insist(e, to, [step; 4]).await;
        }
        if number == 0 {
            next(e).await; // the last handover ends here
            for other in 1..CROWD {
                insist(e, mailbox_of(e, addr, other).await, [0; 4]).await;
            }
        } else {
            next(e).await; // stays alive until the last handover has ended
        }
    });
    stage.run(async { assert_eq!(load(&e, shared).await, TURNS / 4 * CROWD as u64) });
}
