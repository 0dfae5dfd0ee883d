//! Revocation: a peer that lives changes nothing any more.

use std::pin::pin;

use super::lives::verbs;
use super::{SHORT, Stage, begin, bury, load, load_all, widths};
use crate::addr::{Addr, Mailbox, Slot};
use crate::endpoint::{Endpoint, Revoke};
use crate::error::Fault;
use crate::verb::Link;

pub async fn the_revoked_are_refused<E: Revoke>(e: E, peer: E, addr: Addr) {
    e.revoke(peer.id()).expect("it can be revoked");
    for verb in verbs(addr) {
        assert_eq!(peer.verb(verb).await, Err(Fault::Revoked), "{verb:?}");
    }
    for verb in verbs(addr) {
        assert_eq!(peer.verb(verb).await, Err(Fault::Revoked), "still: {verb:?}");
    }
}

pub async fn the_revoked_change_nothing<E: Revoke>(e: E, peer: E, addr: Addr) {
    e.revoke(peer.id()).expect("it can be revoked");
    for verb in verbs(addr) {
        let _ = peer.verb(verb).await;
        drop(peer.verb(verb));
    }
    e.sleep(SHORT).await;
    assert_eq!(load(&e, addr).await, 0);
}

pub async fn the_revoked_change_nothing_by_chain<E: Revoke>(e: E, peer: E, addr: Addr) {
    e.revoke(peer.id()).expect("it can be revoked");
    let chain = verbs(addr).map(Link::from);
    assert_eq!(peer.chain(&chain).await, Err(Fault::Revoked));
    assert_eq!(load(&e, addr).await, 0);
}

pub async fn the_revoked_send_nothing<E: Revoke>(e: E, peer: E) {
    let to = Mailbox { endpoint: e.id(), slot: Slot(0) };
    e.revoke(peer.id()).expect("it can be revoked");
    assert_eq!(peer.send(to, [1; 4]).await, Err(Fault::Revoked));
    assert_eq!(e.receive(Slot(0)), None);
}

pub async fn a_verb_in_flight_does_not_outlive_a_revocation<E: Revoke>(e: E, peer: E, addr: Addr) {
    let mut flying = pin!(peer.faa64(addr, 1));
    let _ = begin(flying.as_mut()).await;
    e.revoke(peer.id()).expect("it can be revoked");
    let after = load(&e, addr).await;
    e.sleep(SHORT).await;
    assert_eq!(load(&e, addr).await, after, "nothing takes effect after the revocation");
}

pub fn a_revocation_hits_nobody_else<S: Stage<Endpoint: Revoke>>(stage: &mut S) {
    let (e, peer, third) = (stage.endpoint(), stage.endpoint(), stage.endpoint());
    let addr = stage.scratch(64);
    stage.run(async {
        e.revoke(peer.id()).expect("it can be revoked");
        e.faa64(addr, 1).await.expect("the revoker goes on");
        third.faa64(addr, 1).await.expect("so does everybody else");
        let to = Mailbox { endpoint: e.id(), slot: Slot(0) };
        third.send(to, [1; 4]).await.expect("so do their messages");
        assert_eq!(load(&e, addr).await, 2);
    });
}

pub fn the_dead_can_be_revoked<S: Stage<Endpoint: Revoke>>(stage: &mut S) {
    let (e, peer, addr) = (stage.endpoint(), stage.endpoint(), stage.scratch(64));
    let id = peer.id();
    stage.kill(peer);
    stage.run(bury(&e, id));
    assert_eq!(e.revoke(id), Ok(()));
    let successor = stage.endpoint();
    stage.run(async {
        assert_eq!(e.revoke(id), Ok(()));
        successor.faa64(addr, 1).await.expect("its successor was not meant");
    });
}

pub fn one_can_be_revoked_twice<S: Stage<Endpoint: Revoke>>(stage: &mut S) {
    let (a, b, peer) = (stage.endpoint(), stage.endpoint(), stage.endpoint());
    let addr = stage.scratch(64);
    for revoker in [&a, &a, &b] {
        assert_eq!(revoker.revoke(peer.id()), Ok(()));
    }
    stage.run(async { assert_eq!(peer.faa64(addr, 1).await, Err(Fault::Revoked)) });
}

pub fn a_successor_of_the_revoked_is_free<S: Stage<Endpoint: Revoke>>(stage: &mut S) {
    let (e, peer, addr) = (stage.endpoint(), stage.endpoint(), stage.scratch(64));
    e.revoke(peer.id()).expect("it can be revoked");
    let id = peer.id();
    stage.kill(peer);
    stage.run(bury(&e, id));
    for _ in 0..3 {
        let successor = stage.endpoint();
        stage.run(async { successor.faa64(addr, 1).await.expect("it attached anew") });
    }
}

pub async fn the_revoked_change_nothing_by_masked_verbs<E: Revoke>(e: E, peer: E, addr: Addr) {
    e.revoke(peer.id()).expect("it can be revoked");
    for verb in [widths::verbs(addr, 64), widths::verbs(addr, 128)].into_iter().flatten() {
        let refused = peer.verb(verb).await;
        assert!(matches!(refused, Err(Fault::Revoked | Fault::Unsupported)), "{verb:?}");
    }
    assert_eq!(load_all(&e, addr, 2).await, [0, 0]);
}
