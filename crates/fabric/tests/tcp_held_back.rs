//! Verbs that a server holds back for others to change what they compare.
#![cfg(all(feature = "tcp", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

mod tcp_support;

use std::time::{Duration, Instant};

use farlock_fabric::tcp::{Closed, Patience, TcpKeeper, TcpLane};
use farlock_fabric::verb::MaskedCas;
use farlock_fabric::{
    Addr, Connection, Endpoint, HoldBack, Posted, Publication, Slot, Ticket, Verb, block_on,
};
use tcp_support::{Both, limits};

/// A client by a connection of its own: a lane, and another one, by which it is seen how far the
/// server has come with what the connection has brought.
struct Client(TcpLane, TcpLane, #[allow(dead_code, reason = "they keep the lanes")] [TcpKeeper; 2]);

impl std::ops::Deref for Client {
    type Target = TcpLane;

    fn deref(&self) -> &TcpLane {
        &self.0
    }
}

fn client(both: &Both) -> Client {
    let remote = both.connect(&both.address).unwrap();
    let [(lane, keeper), (other, other_keeper)] = [(); 2].map(|()| remote.lane(false).unwrap());
    Client(lane, other, [keeper, other_keeper])
}

/// A patience that ends in a test, and is waited for.
const SHORT: Duration = Duration::from_millis(40);

/// One that does not end in any: a wait that ends before half of it has not ended by it, however
/// long the machine stands still.
const LONG: Duration = Duration::from_secs(20);

/// Takes a free word for this one.
fn taking(addr: Addr, by: u64) -> Verb<'static> {
    let op =
        MaskedCas { compare: 0, compare_mask: u128::MAX, swap: by.into(), swap_mask: u128::MAX };
    Verb::MaskedCas128 { addr, op, hint: None }
}

fn take(e: &Client, addr: Addr, by: u64, time: Duration) -> Ticket {
    take_within(e, addr, by, fixed(time))
}

fn fixed(time: Duration) -> Patience {
    Patience::fixed(time.as_nanos() as u64)
}

fn take_within(e: &Client, addr: Addr, by: u64, patience: Patience) -> Ticket {
    e.be_patient(patience);
    let Posted::Pending(ticket) = e.post_patiently(taking(addr, by), HoldBack::default()) else {
        panic!("it takes a round trip")
    };
    block_on(&e.1, e.1.read64(addr)).unwrap();
    ticket
}

fn hold(e: &Client, addr: Addr) {
    block_on(&e.0, e.completion(e.post(taking(addr, 9)))).unwrap();
    assert_eq!(e.old(), 0);
}

fn leave(e: &Client, addr: Addr) {
    block_on(&e.0, e.verb(Verb::Write { addr, data: &[0, 0] })).unwrap();
}

/// What the word was, and after how long it was known.
fn found(e: &Client, ticket: Ticket) -> (u64, Duration) {
    let begun = Instant::now();
    block_on(&e.0, e.completion(Posted::Pending(ticket))).unwrap();
    (e.old() as u64, begun.elapsed())
}

#[test]
fn a_word_is_handed_from_one_to_the_next_in_the_order_in_which_they_came() {
    let both = Both::new("held-order");
    let (word, holder) = (both.word(3), client(&both));
    let waiters: Vec<_> = (0..5).map(|_| client(&both)).collect();
    hold(&holder, word);
    let tickets: Vec<Ticket> =
        waiters.iter().zip(1..).map(|(waiter, number)| take(waiter, word, number, LONG)).collect();
    let mut last = &holder;
    for (at, ticket) in tickets.into_iter().enumerate() {
        leave(last, word);
        let (old, took) = found(&waiters[at], ticket);
        assert!(old == 0 && took < LONG / 2, "{at}: {old} after {took:?}");
        block_on(&holder.0, holder.read64(word)).unwrap();
        assert_eq!(holder.old() as usize, at + 1);
        last = &waiters[at];
    }
}

/// Takes these bits of a word of 8 bytes, if they are free.
fn take_bits(e: &Client, addr: Addr, mask: u64) -> Ticket {
    e.be_patient(fixed(LONG));
    assert!(e.holds_back());
    let op = MaskedCas { compare: 0, compare_mask: mask, swap: mask, swap_mask: mask };
    let Posted::Pending(ticket) =
        e.post_patiently(Verb::MaskedCas64 { addr, op }, HoldBack::default())
    else {
        panic!("it takes a round trip")
    };
    block_on(&e.1, e.1.read64(addr)).unwrap();
    ticket
}

fn give_bits_back(e: &Client, addr: Addr, mask: u64) {
    let op = MaskedCas { compare: mask, compare_mask: mask, swap: 0, swap_mask: mask };
    block_on(&e.0, e.verb(Verb::MaskedCas64 { addr, op })).unwrap();
}

#[test]
fn one_that_compares_other_bits_is_done_before_one_that_came_before_it() {
    let both = Both::new("held-bits");
    let (word, holder) = (both.word(3), client(&both));
    let [wide, narrow] = [(); 2].map(|()| client(&both));
    assert_eq!(found(&holder, take_bits(&holder, word, 0b111)).0, 0);
    let tickets = [take_bits(&wide, word, 0b11), take_bits(&narrow, word, 0b100)];
    give_bits_back(&holder, word, 0b100);
    let (old, took) = found(&narrow, tickets[1]);
    assert!(old == 0b011 && took < LONG / 2, "{old:b} after {took:?}");
    give_bits_back(&holder, word, 0b011);
    let (old, took) = found(&wide, tickets[0]);
    assert!(old == 0b100 && took < LONG / 2, "{old:b} after {took:?}");
    block_on(&holder.0, holder.read64(word)).unwrap();
    assert_eq!(holder.old(), 0b111);
}

#[test]
fn a_verb_that_was_held_back_for_its_time_fails() {
    let both = Both::new("held-time");
    let (word, holder, waiter) = (both.word(3), client(&both), client(&both));
    let begun = Instant::now();
    let ticket = take(&waiter, word, 1, LONG);
    assert_eq!(found(&waiter, ticket).0, 0);
    assert!(begun.elapsed() < LONG / 2, "a free one is had at once");
    let begun = Instant::now();
    let ticket = take(&holder, word, 2, SHORT);
    assert_eq!(found(&holder, ticket).0, 1);
    assert!(begun.elapsed() >= SHORT, "{:?}", begun.elapsed());
}

#[test]
fn as_long_as_a_word_is_handed_on_patience_begins_anew() {
    let mut still = 4 * SHORT;
    while !begins_anew(still) {
        still *= 2;
    }
}

/// Whether a word that is handed on within such a patience makes it begin anew. False, and nothing
/// is shown, where this machine stood still for longer.
fn begins_anew(still: Duration) -> bool {
    let both = Both::new("held-moving");
    let (word, holder) = (both.word(3), client(&both));
    let [next, patient, impatient] = [(); 3].map(|()| client(&both));
    hold(&holder, word);
    let moving = Patience { still: still.as_nanos() as u64, at_most: LONG.as_nanos() as u64 };
    let begun = Instant::now();
    let of_next = take_within(&next, word, 1, moving);
    let of_impatient = take(&impatient, word, 2, still);
    let of_patient = take_within(&patient, word, 3, moving);
    std::thread::sleep(still / 2);
    let moved = Instant::now();
    leave(&holder, word);
    if begun.elapsed() >= still {
        return false;
    }
    assert_eq!(found(&next, of_next).0, 0);
    assert_eq!(found(&impatient, of_impatient).0, 1, "it has been held back for its time");
    leave(&next, word);
    if moved.elapsed() >= still {
        return false;
    }
    assert_eq!(found(&patient, of_patient).0, 0, "its time began anew");
    true
}

#[test]
fn where_a_word_is_not_handed_on_those_that_came_first_are_held_back_for_less_long() {
    let both = Both::new("held-still");
    let (word, holder) = (both.word(3), client(&both));
    let waiters: Vec<_> = (0..4).map(|_| client(&both)).collect();
    hold(&holder, word);
    let patience = Patience { still: SHORT.as_nanos() as u64, at_most: LONG.as_nanos() as u64 };
    let begun = Instant::now();
    let take = |(waiter, number)| take_within(waiter, word, number, patience);
    let tickets: Vec<Ticket> = waiters.iter().zip(1..).map(take).collect();
    for (at, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(found(&waiters[at], ticket).0, 9);
        // One, then two, then four.
        let stalls = [1, 2, 2, 3][at];
        assert!(begun.elapsed() >= stalls * SHORT, "{at}: {:?}", begun.elapsed());
    }
    assert!(begun.elapsed() < LONG / 2);
}

#[test]
fn what_a_lane_says_later_takes_effect_later() {
    let both = Both::new("held-later");
    let (word, holder, waiter) = (both.word(3), client(&both), client(&both));
    hold(&holder, word);
    let begun = Instant::now();
    let ticket = take(&waiter, word, 1, LONG);
    block_on(&waiter.0, waiter.read64(word)).unwrap();
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
    assert_eq!(found(&waiter, ticket).0, 9);
    leave(&holder, word);
    block_on(&holder.0, holder.read64(word)).unwrap();
    assert_eq!(holder.old(), 0, "it has failed, and is not done later");
    // A word that it publishes too.
    leave(&holder, word);
    hold(&holder, word);
    let ticket = take(&waiter, word, 1, LONG);
    waiter.publish(Slot(0), 2, 7);
    waiter.show();
    let (old, took) = found(&waiter, ticket);
    assert!(old == 9 && took < LONG / 2, "{old} after {took:?}");
}

/// What a client's record is to say if it does not have what it asks for is said by then, whether
/// it looks or not; and not if it has it.
#[test]
fn the_record_of_one_that_asked_in_vain_says_so() {
    let both = Both::new("held-record");
    let (word, holder, waiter) = (both.word(3), client(&both), client(&both));
    let record = waiter.record(waiter.id().index, Slot(1)).plus(8);
    let says = || {
        block_on(&holder.0, holder.read64(record)).unwrap();
        holder.old()
    };
    let otherwise = Some(Publication { slot: Slot(1), word: 1, value: 6 });
    let terms = HoldBack { otherwise, ..HoldBack::default() };
    let ask = |patience| {
        waiter.publish(Slot(1), 1, 5);
        waiter.be_patient(fixed(patience));
        let posted = waiter.post_patiently(taking(word, 1), terms);
        block_on(&waiter.1, waiter.1.read64(word)).unwrap();
        let Posted::Pending(ticket) = posted else { panic!("it takes a round trip") };
        ticket
    };
    hold(&holder, word);
    let ticket = ask(SHORT);
    // Nobody asks for the answer.
    while says() == 5 {}
    assert_eq!((says(), found(&waiter, ticket).0), (6, 9));
    // One that is held back until it has what it asks for, and one that is not held back at all.
    let ticket = ask(LONG);
    assert_eq!(says(), 5);
    leave(&holder, word);
    assert_eq!((found(&waiter, ticket).0, says()), (0, 5));
    leave(&holder, word);
    assert_eq!((found(&waiter, ask(LONG)).0, says()), (0, 5));
    // A word that its record does not have ends the connection, as with any that is published.
    let beyond = Publication { slot: Slot(waiter.slots()), word: 1, value: 6 };
    let hold = HoldBack { otherwise: Some(beyond), ..HoldBack::default() };
    let posted = waiter.post_patiently(taking(word, 1), hold);
    assert!(block_on(&waiter.0, waiter.completion(posted)).is_err());
}

#[test]
fn nothing_is_done_for_a_client_that_is_gone() {
    let both = Both::within("held-gone", limits(Duration::from_secs(10), Closed::Death));
    let (word, holder, waiter) = (both.word(3), client(&both), client(&both));
    hold(&holder, word);
    let id = waiter.id();
    take(&waiter, word, 1, LONG);
    drop(waiter);
    while holder.is_alive(id) {
        block_on(&holder.0, holder.read64(word)).unwrap();
    }
    leave(&holder, word);
    block_on(&holder.0, holder.read64(word)).unwrap();
    assert_eq!(holder.old(), 0);
}

/// Of what these do the server knows nothing.
#[test]
fn beside_processes_of_its_own_host_a_server_holds_nothing_back() {
    let both = Both::new("held-locals");
    let (word, holder, waiter) = (both.word(3), client(&both), client(&both));
    hold(&holder, word);
    let here = both.here();
    let begun = Instant::now();
    let ticket = take(&waiter, word, 1, LONG);
    assert_eq!(found(&waiter, ticket).0, 9);
    assert!(begun.elapsed() < LONG / 2);
    drop(here);
    let begun = Instant::now();
    let ticket = take(&waiter, word, 1, SHORT);
    assert_eq!(found(&waiter, ticket).0, 9);
    assert!(begun.elapsed() >= SHORT, "it is gone");
    // One that comes meanwhile ends it.
    let begun = Instant::now();
    let ticket = take(&waiter, word, 1, LONG);
    let _here = both.here();
    block_on(&holder.0, holder.read64(word)).unwrap();
    assert_eq!(found(&waiter, ticket).0, 9);
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
}

#[test]
fn the_next_server_does_what_the_last_one_held_back() {
    let mut both = Both::new("held-restart");
    let (word, holder, waiter) = (both.word(3), client(&both), client(&both));
    hold(&holder, word);
    let ticket = take(&waiter, word, 1, LONG);
    both.restart(|_| {});
    leave(&holder, word);
    // Whichever of them came back first.
    let (old, _) = found(&waiter, ticket);
    block_on(&holder.0, holder.read64(word)).unwrap();
    assert_eq!(holder.old(), if old == 0 { 1 } else { 0 });
}
