//! Messages: delivered at most once, in order, or refused with the reason.

use super::{SHORT, Stage, bury, load, receive, store};
use crate::addr::{Addr, EndpointId, Mailbox, Slot};
use crate::endpoint::Endpoint;
use crate::error::Fault;

/// More than any mailbox holds; one that holds this many is never said to be full.
const MANY: u64 = 4096;

fn mailbox<E: Endpoint>(e: &E, slot: u8) -> Mailbox {
    Mailbox { endpoint: e.id(), slot: Slot(slot) }
}

async fn send<E: Endpoint>(from: &E, to: Mailbox, number: u64) {
    from.send(to, [number, 0, 0, 0]).await.expect("it reaches the mailbox");
}

/// Sends until the mailbox is full; how many messages it holds, or `None` if there is no end.
async fn fill<E: Endpoint>(from: &E, to: Mailbox) -> Option<u64> {
    for number in 0..MANY {
        match from.send(to, [number, 0, 0, 0]).await {
            Ok(()) => {}
            Err(Fault::MailboxFull) => return Some(number),
            Err(fault) => panic!("{fault}"),
        }
    }
    None
}

pub async fn a_message_arrives_whole<E: Endpoint>(e: E, peer: E) {
    let message = [u64::MAX, 0x0123_4567_89ab_cdef, 0, 1 << 63];
    e.send(mailbox(&peer, 0), message).await.expect("it reaches the mailbox");
    assert_eq!(receive(&peer, 0).await.message, message);
}

pub async fn a_message_is_delivered_once<E: Endpoint>(e: E, peer: E) {
    for number in 0..50 {
        send(&e, mailbox(&peer, 0), number).await;
        assert_eq!(receive(&peer, 0).await.message[0], number);
        assert_eq!(peer.receive(Slot(0)), None);
    }
    peer.sleep(SHORT).await;
    assert_eq!(peer.receive(Slot(0)), None, "nor does it come again later");
}

pub fn an_empty_mailbox_gives_nothing<S: Stage>(stage: &mut S) {
    let e = stage.endpoint();
    for slot in 0..e.slots() {
        assert_eq!(e.receive(Slot(slot)), None);
    }
    assert!(e.slots() >= 1);
}

pub async fn messages_arrive_in_order<E: Endpoint>(e: E, peer: E) {
    for turn in 0..50 {
        for number in 0..4 {
            send(&e, mailbox(&peer, 0), turn * 4 + number).await;
        }
        for number in 0..4 {
            assert_eq!(receive(&peer, 0).await.message[0], turn * 4 + number);
        }
    }
}

pub fn messages_of_two_senders_stay_in_order_each<S: Stage>(stage: &mut S) {
    let (a, b, peer) = (stage.endpoint(), stage.endpoint(), stage.endpoint());
    stage.run(async {
        for turn in 0..20 {
            for number in [turn * 2, turn * 2 + 1] {
                send(&a, mailbox(&peer, 0), number).await;
                send(&b, mailbox(&peer, 0), number).await;
            }
            let mut all = Vec::new();
            for _ in 0..4 {
                all.push(receive(&peer, 0).await);
            }
            for sender in [a.id(), b.id()] {
                let own = all.iter().filter(|envelope| envelope.from == sender);
                let numbers: Vec<_> = own.map(|envelope| envelope.message[0]).collect();
                assert_eq!(numbers, [turn * 2, turn * 2 + 1]);
            }
        }
    });
}

pub fn a_message_names_its_sender<S: Stage>(stage: &mut S) {
    let (a, b, peer) = (stage.endpoint(), stage.endpoint(), stage.endpoint());
    stage.run(async {
        for from in [&a, &b] {
            send(from, mailbox(&peer, 0), 1).await;
            assert_eq!(receive(&peer, 0).await.from, from.id());
        }
    });
}

pub async fn a_message_tells_its_arrival<E: Endpoint>(e: E, peer: E) {
    peer.sleep(1000).await;
    let before = peer.now();
    send(&e, mailbox(&peer, 0), 1).await;
    let after = peer.now();
    peer.sleep(SHORT).await;
    let arrived = receive(&peer, 0).await.arrived;
    assert!((before..=after).contains(&arrived), "{arrived} is in {before}..={after}");
}

pub async fn arrivals_do_not_go_back<E: Endpoint>(e: E, peer: E) {
    let mut last = 0;
    for number in 0..20 {
        send(&e, mailbox(&peer, 0), number).await;
        send(&e, mailbox(&peer, 0), number).await;
        for _ in 0..2 {
            let arrived = receive(&peer, 0).await.arrived;
            assert!(arrived >= last && arrived <= peer.now());
            last = arrived;
        }
    }
}

pub fn a_message_to_oneself_arrives<S: Stage>(stage: &mut S) {
    let e = stage.endpoint();
    stage.run(async {
        send(&e, mailbox(&e, 0), 5).await;
        let envelope = receive(&e, 0).await;
        assert_eq!((envelope.message[0], envelope.from), (5, e.id()));
        assert_eq!(e.receive(Slot(0)), None);
    });
}

pub async fn slots_do_not_mix<E: Endpoint>(e: E, peer: E) {
    for slot in (0..peer.slots()).rev() {
        send(&e, mailbox(&peer, slot), slot.into()).await;
    }
    for slot in 0..peer.slots() {
        assert_eq!(receive(&peer, slot).await.message[0], u64::from(slot));
        assert_eq!(peer.receive(Slot(slot)), None);
    }
}

pub fn endpoints_do_not_mix<S: Stage>(stage: &mut S) {
    let endpoints: Vec<_> = (0..4).map(|_| stage.endpoint()).collect();
    stage.run(async {
        for (number, peer) in (0..).zip(&endpoints) {
            send(&endpoints[0], mailbox(peer, 0), number).await;
        }
        for (number, peer) in (0..).zip(&endpoints) {
            assert_eq!(receive(peer, 0).await.message[0], number);
            assert_eq!(peer.receive(Slot(0)), None);
        }
    });
}

pub async fn a_mailbox_holds_four<E: Endpoint>(e: E, peer: E) {
    for slot in 0..peer.slots() {
        for number in 0..4 {
            send(&e, mailbox(&peer, slot), number).await;
        }
    }
}

pub async fn a_full_mailbox_refuses_and_keeps_what_it_has<E: Endpoint>(e: E, peer: E) {
    let Some(room) = fill(&e, mailbox(&peer, 0)).await else { return };
    let again = e.send(mailbox(&peer, 0), [MANY; 4]).await;
    assert_eq!(again, Err(Fault::MailboxFull), "it stays full");
    for number in 0..room {
        assert_eq!(receive(&peer, 0).await.message[0], number);
    }
    assert_eq!(peer.receive(Slot(0)), None, "what was refused is not delivered");
}

pub async fn a_full_mailbox_has_room_again_after_a_receipt<E: Endpoint>(e: E, peer: E) {
    let to = mailbox(&peer, 0);
    let Some(room) = fill(&e, to).await else { return };
    for number in room..room * 4 {
        assert_eq!(receive(&peer, 0).await.message[0], number - room);
        if e.send(to, [number, 0, 0, 0]).await.is_err() {
            load(&peer, peer.record(peer.id().index, Slot(0))).await;
            send(&e, to, number).await;
        }
        assert_eq!(e.send(to, [0; 4]).await, Err(Fault::MailboxFull));
    }
}

pub async fn a_full_slot_leaves_the_others_open<E: Endpoint>(e: E, peer: E) {
    if fill(&e, mailbox(&peer, 0)).await.is_none() {
        return;
    }
    for slot in 1..peer.slots() {
        send(&e, mailbox(&peer, slot), 8).await;
        assert_eq!(receive(&peer, slot).await.message[0], 8);
    }
    send(&e, mailbox(&e, 0), 9).await;
}

pub fn a_message_to_the_dead_is_refused<S: Stage>(stage: &mut S) {
    let (e, peer) = (stage.endpoint(), stage.endpoint());
    let to = mailbox(&peer, 0);
    stage.kill(peer);
    stage.run(async {
        bury(&e, to.endpoint).await;
        assert_eq!(e.send(to, [1; 4]).await, Err(Fault::PeerGone));
    });
}

pub async fn a_message_to_another_incarnation_is_refused<E: Endpoint>(e: E, peer: E) {
    let EndpointId { index, incarnation } = peer.id();
    for other in [incarnation.wrapping_add(1), incarnation.wrapping_sub(1)] {
        let endpoint = EndpointId { index, incarnation: other };
        let sent = e.send(Mailbox { endpoint, slot: Slot(0) }, [1; 4]).await;
        assert_eq!(sent, Err(Fault::PeerGone));
    }
    assert_eq!(peer.receive(Slot(0)), None);
}

pub fn a_message_to_the_successor_alone_arrives<S: Stage>(stage: &mut S) {
    let (e, first) = (stage.endpoint(), stage.endpoint());
    let gone = mailbox(&first, 0);
    stage.run(send(&e, gone, 1));
    stage.kill(first);
    stage.run(bury(&e, gone.endpoint));
    let second = stage.endpoint();
    stage.run(async {
        assert_eq!(second.receive(Slot(0)), None, "mail is not inherited");
        assert_eq!(e.send(gone, [2; 4]).await, Err(Fault::PeerGone));
        send(&e, mailbox(&second, 0), 3).await;
        assert_eq!(receive(&second, 0).await.message[0], 3);
    });
}

pub fn a_message_to_nobody_is_refused<S: Stage>(stage: &mut S) {
    let e = stage.endpoint();
    stage.run(async { assert_eq!(e.send(Mailbox::NOBODY, [1; 4]).await, Err(Fault::PeerGone)) });
}

pub fn a_message_beyond_the_table_is_refused<S: Stage>(stage: &mut S) {
    let e = stage.endpoint();
    stage.run(async {
        for index in [e.endpoints().saturating_add(1), u16::MAX] {
            let endpoint = EndpointId { index, incarnation: 1 };
            let sent = e.send(Mailbox { endpoint, slot: Slot(0) }, [1; 4]).await;
            assert!(index <= e.endpoints() || sent == Err(Fault::PeerGone), "{sent:?}");
        }
    });
}

pub async fn a_message_to_a_slot_that_is_not_there_is_refused<E: Endpoint>(e: E, peer: E) {
    for slot in [peer.slots(), u8::MAX].into_iter().filter(|&slot| slot >= peer.slots()) {
        let sent = e.send(mailbox(&peer, slot), [1; 4]).await;
        assert_eq!(sent, Err(Fault::OutOfBounds), "slot {slot}");
    }
    for slot in 0..peer.slots() {
        assert_eq!(peer.receive(Slot(slot)), None);
    }
}

pub fn a_message_outlives_its_sender<S: Stage>(stage: &mut S) {
    let (e, peer) = (stage.endpoint(), stage.endpoint());
    let from = e.id();
    stage.run(send(&e, mailbox(&peer, 0), 4));
    stage.kill(e);
    stage.run(async {
        bury(&peer, from).await;
        let envelope = receive(&peer, 0).await;
        assert_eq!((envelope.from, envelope.message[0]), (from, 4));
    });
}

pub fn a_message_is_there_when_its_send_completes<S: Stage>(stage: &mut S) {
    let (e, peer) = (stage.endpoint(), stage.endpoint());
    stage.run(async {
        for number in 0..100 {
            let sent = e.send(mailbox(&peer, 0), [number; 4]);
            sent.await.expect("it reaches the mailbox");
            if !S::RECEIVES_AT_ONCE {
                load(&peer, peer.record(peer.id().index, Slot(0))).await;
            }
            let envelope = peer.receive(Slot(0)).expect("no wait is needed");
            assert_eq!(envelope.message, [number; 4]);
        }
    });
}

pub async fn a_message_follows_the_writes_before_it<E: Endpoint>(e: E, peer: E, addr: Addr) {
    for number in 1..50 {
        store(&e, addr, &[number]).await;
        send(&e, mailbox(&peer, 0), number).await;
        let told = receive(&peer, 0).await.message[0];
        assert_eq!(load(&peer, addr).await, told);
    }
}
