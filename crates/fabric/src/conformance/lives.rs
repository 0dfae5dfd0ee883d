//! Who exists: identity, death, and the incarnation of the memory node.

use super::{Stage, bury, load, receive, store};
use crate::addr::{Addr, EndpointId, Mailbox, Slot};
use crate::endpoint::Endpoint;
use crate::error::Fault;
use crate::verb::{Link, Verb};

/// Every narrow verb that touches memory.
pub(super) fn verbs(addr: Addr) -> [Verb<'static>; 4] {
    [
        Verb::Read { addr, words: 1 },
        Verb::Write { addr, data: &[5] },
        Verb::Cas64 { addr, compare: 0, swap: 6 },
        Verb::Faa64 { addr, add: 7 },
    ]
}

pub fn an_endpoint_knows_itself<S: Stage>(stage: &mut S) {
    let e = stage.endpoint();
    assert!(e.id().is_somebody());
    assert!(e.id().index <= e.endpoints(), "its index is in the table");
    assert_eq!(e.occupant(e.id().index), Some(e.id()));
    assert_eq!(e.id(), e.id());
}

pub fn identities_differ<S: Stage>(stage: &mut S) {
    let endpoints: Vec<_> = (0..6).map(|_| stage.endpoint()).collect();
    for (number, e) in endpoints.iter().enumerate() {
        for other in &endpoints[..number] {
            assert_ne!(e.id().index, other.id().index, "an index has one living user");
        }
    }
}

pub fn an_identity_never_comes_back<S: Stage>(stage: &mut S) {
    let mut seen = Vec::new();
    for _ in 0..40 {
        let e = stage.endpoint();
        assert!(!seen.contains(&e.id()), "{:?} was somebody else", e.id());
        seen.push(e.id());
        stage.kill(e);
    }
}

pub fn the_living_are_alive<S: Stage>(stage: &mut S) {
    let (e, peer) = (stage.endpoint(), stage.endpoint());
    assert!(e.is_alive(e.id()) && e.is_alive(peer.id()) && peer.is_alive(e.id()));
}

pub fn the_dead_are_not_alive<S: Stage>(stage: &mut S) {
    let (e, peer) = (stage.endpoint(), stage.endpoint());
    let id = peer.id();
    stage.kill(peer);
    stage.run(bury(&e, id));
    assert!(!e.is_alive(id));
    assert_ne!(e.occupant(id.index), Some(id));
}

pub fn the_dead_stay_dead<S: Stage>(stage: &mut S) {
    let (e, peer) = (stage.endpoint(), stage.endpoint());
    let id = peer.id();
    stage.kill(peer);
    stage.run(bury(&e, id));
    let successors: Vec<_> = (0..4).map(|_| stage.endpoint()).collect();
    assert!(!e.is_alive(id), "whoever has its index now is somebody else");
    assert!(successors.iter().all(|other| other.id() != id && !other.is_alive(id)));
}

pub fn nobody_is_not_alive<S: Stage>(stage: &mut S) {
    let e = stage.endpoint();
    assert!(!e.is_alive(EndpointId::NOBODY));
    assert_eq!(e.occupant(0), None);
    let EndpointId { index, incarnation } = e.id();
    let next = EndpointId { index, incarnation: incarnation.wrapping_add(1) };
    assert!(!e.is_alive(next), "the next user of this place is not here yet");
}

pub fn the_table_names_the_living<S: Stage>(stage: &mut S) {
    let endpoints: Vec<_> = (0..5).map(|_| stage.endpoint()).collect();
    let e = &endpoints[0];
    let table: Vec<_> = (1..=e.endpoints()).filter_map(|index| e.occupant(index)).collect();
    for living in &endpoints {
        assert_eq!(table.iter().filter(|&&id| id == living.id()).count(), 1);
        assert_eq!(e.occupied_from(living.id().index), Some(living.id().index));
    }
    assert!(e.occupied().is_sorted() && e.occupied().all(|index| index <= e.endpoints()));
    assert!(table.iter().all(|id| e.occupied().any(|index| index == id.index)));
    assert!(table.iter().all(|&id| e.is_alive(id)));
}

/// It lives and is found, as far as this endpoint knows.
fn knows<E: Endpoint>(e: &E, peer: EndpointId) {
    assert!(e.is_alive(peer), "{peer:?} lives");
    assert_eq!(e.occupant(peer.index), Some(peer));
    assert_eq!(e.occupied_from(peer.index), Some(peer.index));
}

pub fn a_newcomer_knows_itself<S: Stage>(stage: &mut S) {
    let newcomer = stage.newcomer();
    knows(&newcomer, newcomer.id());
}

pub fn a_newcomer_knows_those_who_came_before<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.newcomer(), stage.scratch(64));
    stage.run(store(&e, addr, &[1]));
    let newcomer = stage.newcomer();
    knows(&newcomer, e.id());
}

pub fn a_reader_of_a_newcomers_write_knows_it<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    for turn in 1..=3 {
        let newcomer = stage.newcomer();
        stage.run(async {
            newcomer.faa64(addr, 1).await.expect("it takes effect");
            assert_eq!(load(&e, addr).await, turn);
            knows(&e, newcomer.id());
        });
    }
}

pub fn a_reader_of_a_newcomers_record_knows_it<S: Stage>(stage: &mut S) {
    let (e, newcomer) = (stage.endpoint(), stage.newcomer());
    newcomer.publish(Slot(0), 0, 7);
    stage.run(async {
        if load(&e, e.record(newcomer.id().index, Slot(0))).await == 7 {
            knows(&e, newcomer.id());
        }
    });
}

pub fn a_receiver_of_a_newcomers_message_knows_it<S: Stage>(stage: &mut S) {
    let (e, newcomer) = (stage.endpoint(), stage.newcomer());
    let to = Mailbox { endpoint: e.id(), slot: Slot(0) };
    stage.run(async {
        newcomer.send(to, [1; 4]).await.expect("it reaches the mailbox");
        assert_eq!(receive(&e, 0).await.from, newcomer.id());
        knows(&e, newcomer.id());
    });
}

pub fn a_peer_that_hears_of_a_newcomer_knows_it<S: Stage>(stage: &mut S) {
    let (e, third, addr) = (stage.endpoint(), stage.endpoint(), stage.scratch(64));
    let newcomer = stage.newcomer();
    stage.run(async {
        store(&newcomer, addr, &[newcomer.id().bits()]).await;
        let name = load(&third, addr).await;
        let to = Mailbox { endpoint: e.id(), slot: Slot(0) };
        third.send(to, [name; 4]).await.expect("it reaches the mailbox");
        assert_eq!(receive(&e, 0).await.message, [name; 4]);
        knows(&e, newcomer.id());
    });
}

pub fn a_successor_is_known_by_its_own_name<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    let mut before = Vec::new();
    for turn in 1..=8 {
        let newcomer = stage.newcomer();
        let occupant = e.occupant(newcomer.id().index);
        assert!(occupant.is_none_or(|id| id == newcomer.id()), "its predecessor is dead");
        stage.run(async {
            newcomer.faa64(addr, 1).await.expect("it takes effect");
            assert_eq!(load(&e, addr).await, turn);
        });
        knows(&e, newcomer.id());
        assert!(before.iter().all(|&id| !e.is_alive(id)), "what is dead stays dead");
        before.push(newcomer.id());
        stage.kill(newcomer);
        stage.run(bury(&e, before[before.len() - 1]));
    }
}

pub fn what_the_dead_did_stays<S: Stage>(stage: &mut S) {
    let (e, peer, addr) = (stage.endpoint(), stage.endpoint(), stage.scratch(64));
    let id = peer.id();
    stage.run(store(&peer, addr, &[42]));
    stage.kill(peer);
    stage.run(async {
        bury(&e, id).await;
        assert_eq!(load(&e, addr).await, 42);
    });
}

pub fn the_stale_are_refused<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    if stage.reset() {
        stage.run(async {
            for verb in verbs(addr) {
                assert_eq!(e.verb(verb).await, Err(Fault::Stale), "{verb:?}");
            }
        });
    }
}

pub fn the_stale_change_nothing<S: Stage>(stage: &mut S) {
    let old = stage.endpoint();
    if !stage.reset() {
        return;
    }
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(async {
        store(&e, addr, &[0]).await;
        for verb in verbs(addr) {
            assert_eq!(old.verb(verb).await, Err(Fault::Stale), "{verb:?}");
        }
        assert_eq!(load(&e, addr).await, 0);
    });
}

pub fn the_stale_are_refused_in_every_link<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    if stage.reset() {
        stage.run(async {
            let chain = verbs(addr).map(Link::from);
            assert_eq!(e.chain(&chain).await, Err(Fault::Stale));
            for index in 0..chain.len() {
                assert_eq!(e.link(index).status, Err(Fault::Stale), "link {index}");
            }
        });
    }
}

pub fn the_stale_send_nothing<S: Stage>(stage: &mut S) {
    let old = stage.endpoint();
    if !stage.reset() {
        return;
    }
    let e = stage.endpoint();
    let to = Mailbox { endpoint: e.id(), slot: Slot(0) };
    stage.run(async {
        assert_eq!(old.send(to, [1; 4]).await, Err(Fault::Stale));
        assert_eq!(e.receive(Slot(0)), None);
    });
}

pub fn a_stale_verb_stays_refused_after_another_reset<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    if stage.reset() && stage.reset() {
        stage.run(async { assert_eq!(e.faa64(addr, 1).await, Err(Fault::Stale)) });
    }
}

pub fn an_attacher_after_a_reset_is_served<S: Stage>(stage: &mut S) {
    let old = stage.endpoint();
    if !stage.reset() {
        return;
    }
    let (a, b, addr) = (stage.endpoint(), stage.endpoint(), stage.scratch(64));
    assert_ne!(a.id(), old.id());
    stage.run(async {
        store(&a, addr, &[1]).await;
        b.faa64(addr, 1).await.expect("it takes effect");
        assert_eq!(load(&a, addr).await, 2);
        let to = Mailbox { endpoint: b.id(), slot: Slot(0) };
        a.send(to, [3; 4]).await.expect("it reaches the mailbox");
        receive(&b, 0).await;
    });
}
