//! Waits: each reason ends one, at once where it already holds, and nothing is left behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;

use super::{LONG, SHORT, Stage, begin, bury, join, load, receive, wait_for};
use crate::addr::{Addr, Mailbox, Slot};
use crate::endpoint::{Endpoint, Nanos, Patience, Wait, Woken};

fn within(interval: Nanos) -> Wait<'static> {
    Wait { interval: Some(interval), ..Wait::default() }
}

fn for_mail(slot: u8, interval: Nanos) -> Wait<'static> {
    Wait { mail: Some(Slot(slot)), ..within(interval) }
}

async fn send<E: Endpoint>(from: &E, to: &E, slot: u8) {
    let to = Mailbox { endpoint: to.id(), slot: Slot(slot) };
    from.send(to, [7; 4]).await.expect("it reaches the mailbox");
}

/// Waits once for so long; whether the whole interval passed.
async fn elapses<E: Endpoint>(e: &E, wait: Wait<'_>) {
    for _ in 0..1000 {
        let before = e.now();
        let woken = e.wait(wait).await;
        if woken == Woken::Elapsed {
            let (took, interval) = (e.now() - before, wait.interval.expect("it has one"));
            assert!(took >= interval, "{took} ns are less than {interval} ns");
            return;
        }
        assert_eq!(woken, Woken::Changed, "nothing else can end it");
    }
    panic!("a wait keeps ending for no reason");
}

pub fn a_wait_does_not_end_early<S: Stage>(stage: &mut S) {
    let e = stage.endpoint();
    stage.run(async {
        for interval in [1, 1000, 50_000, SHORT] {
            elapses(&e, within(interval)).await;
            elapses(&e, Wait { patience: Patience::PARK, ..within(interval) }).await;
        }
        assert_eq!(wait_for(&e, within(0)).await, Woken::Elapsed);
    });
}

pub fn a_wait_of_no_time_ends<S: Stage>(stage: &mut S) {
    let e = stage.endpoint();
    stage.run(async {
        for patience in [Patience::PARK, Patience { spins: 0, yields: 1 }, Patience::DEFAULT] {
            elapses(&e, Wait { patience, ..within(0) }).await;
            elapses(&e, Wait { patience, ..for_mail(0, 0) }).await;
        }
    });
}

pub async fn a_long_wait_outlasts_a_short_one<E: Endpoint>(a: E, b: E) {
    let long = async {
        elapses(&a, within(20 * SHORT)).await;
        a.now()
    };
    let short = async {
        elapses(&b, within(SHORT)).await;
        a.now()
    };
    let (long, short) = join(long, short).await;
    assert!(short < long);
}

pub async fn a_message_that_is_there_ends_a_wait_at_once<E: Endpoint>(e: E, peer: E) {
    send(&peer, &e, 0).await;
    let before = e.now();
    assert_eq!(wait_for(&e, for_mail(0, LONG)).await, Woken::Mail);
    assert_eq!(wait_for(&e, for_mail(0, LONG)).await, Woken::Mail, "a wait takes nothing out");
    assert!(e.now() - before < LONG && e.receive(Slot(0)).is_some());
}

pub async fn a_message_ends_a_wait<E: Endpoint>(e: E, peer: E) {
    for _ in 0..5 {
        let late = async {
            peer.sleep(SHORT).await;
            send(&peer, &e, 0).await;
        };
        let (woken, ()) = join(wait_for(&e, for_mail(0, LONG)), late).await;
        assert_eq!(woken, Woken::Mail);
        assert!(e.receive(Slot(0)).is_some());
    }
}

pub async fn a_message_in_another_slot_ends_no_wait<E: Endpoint>(e: E, peer: E) {
    if e.slots() >= 2 {
        send(&peer, &e, 1).await;
        elapses(&e, for_mail(0, SHORT)).await;
        assert_eq!(wait_for(&e, for_mail(1, LONG)).await, Woken::Mail);
    }
}

pub fn a_dead_peer_ends_a_wait_at_once<S: Stage>(stage: &mut S) {
    let (e, peer) = (stage.endpoint(), stage.endpoint());
    let id = peer.id();
    stage.kill(peer);
    stage.run(async {
        bury(&e, id).await;
        let before = e.now();
        let wait = Wait { peers: &[id], ..within(LONG) };
        assert_eq!(wait_for(&e, wait).await, Woken::PeerGone(id));
        assert!(e.now() - before < LONG);
    });
}

pub fn a_death_ends_a_wait<S: Stage>(stage: &mut S) {
    let (e, peer) = (stage.endpoint(), stage.endpoint());
    let peers = [peer.id()];
    let wait = Wait { peers: &peers, ..within(4 * LONG) };
    let mut waiting = pin!(wait_for(&e, wait));
    assert_eq!(stage.run(begin(waiting.as_mut())), None, "the peer lives");
    stage.kill(peer);
    assert_eq!(stage.run(waiting), Woken::PeerGone(peers[0]));
}

pub fn one_death_of_several_ends_a_wait<S: Stage>(stage: &mut S) {
    let e = stage.endpoint();
    let mut others: Vec<_> = (0..3).map(|_| stage.endpoint()).collect();
    let peers: Vec<_> = others.iter().map(Endpoint::id).collect();
    let wait = Wait { peers: &peers, mail: Some(Slot(0)), ..within(4 * LONG) };
    let mut waiting = pin!(wait_for(&e, wait));
    assert_eq!(stage.run(begin(waiting.as_mut())), None, "all of them live");
    stage.kill(others.remove(1));
    assert_eq!(stage.run(waiting), Woken::PeerGone(peers[1]));
    assert!(e.is_alive(peers[0]) && e.is_alive(peers[2]));
}

pub fn a_living_peer_ends_no_wait<S: Stage>(stage: &mut S) {
    let (e, peer) = (stage.endpoint(), stage.endpoint());
    let peers = [peer.id()];
    stage.run(elapses(&e, Wait { peers: &peers, ..within(SHORT) }));
}

pub async fn a_word_that_differs_already_ends_a_wait<E: Endpoint>(e: E, addr: Addr) {
    let woken = e.wait(Wait { word: Some((addr, 1)), ..within(SHORT) }).await;
    assert!(matches!(woken, Woken::Changed | Woken::Elapsed), "{woken:?}");
}

pub fn a_word_that_stays_ends_no_wait_but_in_time<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(elapses(&e, Wait { word: Some((addr, 0)), ..within(SHORT) }));
}

pub async fn a_watched_word_is_seen_to_change<E: Endpoint>(e: E, peer: E, addr: Addr) {
    for turn in 0..5 {
        let watch = async {
            while load(&e, addr).await == turn {
                e.wait(Wait { word: Some((addr, turn)), ..within(SHORT) }).await;
            }
        };
        let change = async {
            peer.sleep(SHORT / 4).await;
            peer.faa64(addr, 1).await.expect("it takes effect");
        };
        join(watch, change).await;
    }
}

pub fn a_change_ends_a_wait_where_memory_is_watched<S: Stage>(stage: &mut S) {
    let (e, peer, addr) = (stage.endpoint(), stage.endpoint(), stage.scratch(64));
    stage.run(async {
        if S::Endpoint::WATCHES_MEMORY {
            let watch = async {
                while load(&e, addr).await == 0 {
                    let woken = e.wait(Wait { word: Some((addr, 0)), ..within(LONG) }).await;
                    assert_eq!(woken, Woken::Changed, "nothing else can end it");
                }
            };
            let change = async {
                peer.sleep(SHORT).await;
                peer.faa64(addr, 1).await.expect("it takes effect");
            };
            join(watch, change).await;
        }
    });
}

pub fn a_change_of_bits_that_count_ends_a_wait_where_memory_is_watched<S: Stage>(stage: &mut S) {
    const COUNTS: u64 = 1 << 40;
    let (e, peer, addr) = (stage.endpoint(), stage.endpoint(), stage.scratch(64));
    let wait = Wait { word: Some((addr, 0)), ignoring: COUNTS - 1, ..within(LONG) };
    stage.run(async {
        if S::Endpoint::WATCHES_MEMORY {
            let watch = async {
                while load(&e, addr).await & COUNTS == 0 {
                    let woken = e.wait(wait).await;
                    assert_eq!(woken, Woken::Changed, "nothing else can end it");
                }
            };
            let change = async {
                for add in [1, 2, COUNTS] {
                    peer.sleep(SHORT).await;
                    peer.faa64(addr, add).await.expect("it takes effect");
                }
            };
            join(watch, change).await;
            peer.faa64(addr, 1).await.expect("it takes effect");
            assert_eq!(e.wait(wait).await, Woken::Changed, "it has changed before");
        }
    });
}

pub fn whichever_comes_first_ends_a_wait<S: Stage>(stage: &mut S) {
    let (e, peer, addr) = (stage.endpoint(), stage.endpoint(), stage.scratch(64));
    let peers = [peer.id()];
    let all = Wait { word: Some((addr, 0)), peers: &peers, ..for_mail(0, LONG) };
    stage.run(async {
        let late = async {
            peer.sleep(SHORT).await;
            send(&peer, &e, 0).await;
        };
        let any = async {
            while e.receive(Slot(0)).is_none() {
                let woken = e.wait(all).await;
                assert!(matches!(woken, Woken::Mail | Woken::Changed), "{woken:?}");
            }
        };
        join(any, late).await;
    });
    stage.kill(peer);
    stage.run(async { while e.wait(all).await != Woken::PeerGone(peers[0]) {} });
}

pub async fn a_dropped_wait_leaves_nothing_behind<E: Endpoint>(e: E, peer: E) {
    {
        let mut dropped = pin!(wait_for(&e, for_mail(0, SHORT)));
        assert_eq!(begin(dropped.as_mut()).await, None);
    }
    elapses(&e, within(4 * SHORT)).await;
    send(&peer, &e, 0).await;
    // Its message is still there for another.
    receive(&e, 0).await;
    elapses(&e, for_mail(0, SHORT)).await;
}

pub async fn many_dropped_waits_leave_nothing_behind<E: Endpoint>(e: E, peer: E, addr: Addr) {
    let peers = [peer.id()];
    for turn in 0..2000 {
        let word = (turn % 2 == 0).then_some((addr, 0));
        let wait = Wait { word, peers: &peers, ..for_mail(0, LONG) };
        let mut dropped = pin!(e.wait(wait));
        let _ = begin(dropped.as_mut()).await;
    }
    let woken = join(wait_for(&e, for_mail(0, LONG)), send(&peer, &e, 0)).await.0;
    assert_eq!(woken, Woken::Mail);
}

pub async fn waits_of_several_slots_do_not_mix<E: Endpoint>(e: E, peer: E) {
    if e.slots() < 2 {
        return;
    }
    let first = async {
        assert_eq!(wait_for(&e, for_mail(0, LONG)).await, Woken::Mail);
        assert!(e.receive(Slot(0)).is_some());
        send(&e, &peer, 0).await;
    };
    let second = async {
        assert_eq!(wait_for(&e, for_mail(1, LONG)).await, Woken::Mail);
        assert!(e.receive(Slot(1)).is_some());
    };
    let sender = async {
        send(&peer, &e, 0).await;
        assert_eq!(wait_for(&peer, for_mail(0, LONG)).await, Woken::Mail);
        send(&peer, &e, 1).await;
    };
    join(join(first, second), sender).await;
}

pub fn a_wait_that_could_never_end_is_a_bug<S: Stage>(stage: &mut S) {
    let e = stage.endpoint();
    let endless = catch_unwind(AssertUnwindSafe(|| drop(e.wait(Wait::default()))));
    assert!(endless.is_err(), "nothing can end it: it must panic");
}
