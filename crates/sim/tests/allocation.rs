//! Specification: once a world is warm, nothing that happens in it allocates.
//!
//! Speed is reach, and an allocation costs as much as an event. Every kind of verb, messages, waits
//! and timers are asked for here; tasks reuse what they have, as protocols do.

use allocation_counter::measure;
use farlock_fabric::{
    Addr, Endpoint, EndpointId, Link, Mailbox, MaskedAtomics, MaskedCas, MaskedFaa, Slot, Verb,
    Wait, WideAtomics,
};
use farlock_sim::{Config, Ended, SimEndpoint, Weakness, World};

const CLIENTS: u16 = 16;
/// Until every buffer has the size that it will keep, in nanoseconds.
const WARM_NS: u64 = 5_000_000;
const MEASURED_NS: u64 = 5_000_000;

/// Does everything there is, for ever.
async fn exercise(endpoint: SimEndpoint, peer: EndpointId, base: Addr) {
    let mut buffer = [0; 8];
    let to = Mailbox { endpoint: peer, slot: Slot(0) };
    for turn in 0.. {
        let word = base.plus(endpoint.random() % 64 * 16);
        let swap = MaskedCas { swap: turn, swap_mask: 0xff00, ..MaskedCas::default() };
        let wide = MaskedFaa { add: 3 << 64, boundary: 0 };
        let chain = [
            Link::from(Verb::Read { addr: base, words: 8 }),
            Verb::Faa64 { addr: word, add: 1 }.into(),
            Link::fenced(Verb::Read { addr: word, words: 2 }),
        ];
        endpoint.masked_cas64(word, swap).await.expect("the word exists");
        endpoint.masked_faa128(word, wide, None).await.expect("the word exists");
        endpoint.chain(&chain).await.expect("the words exist");
        endpoint.copy_read(0, &mut buffer);
        let write = Verb::Write { addr: base, data: &buffer };
        endpoint.verb(write).await.expect("the words exist");
        // A full mailbox refuses, which is as well here.
        let _ = endpoint.send(to, [turn, 0, 0, 0]).await;
        endpoint.publish(Slot(1), 0, turn);
        let word = Some((word, endpoint.old() as u64));
        let peers = &[peer];
        let (mail, interval) = (Some(Slot(0)), Some(3_000));
        endpoint.wait(Wait { mail, interval, peers, ..Wait::default() }).await;
        endpoint.wait(Wait { word, mail, peers, ..Wait::default() }).await;
        endpoint.receive(Slot(0));
        endpoint.sleep(50).await;
        // Longer than the queue of near events reaches.
        endpoint.sleep(20_000).await;
    }
}

#[test]
fn a_warm_world_allocates_nothing() {
    for weakness in [Weakness::NONE, Weakness::FULL] {
        let world = World::new(Config { seed: 5, weakness, ..Config::default() });
        let base = world.region(world.node(), 64 * 16);
        let clients: Vec<_> = (0..CLIENTS).map(|_| world.endpoint()).collect();
        for (place, client) in clients.iter().enumerate() {
            let peer = clients[(place + 1) % clients.len()].id();
            world.spawn(client.id(), exercise(client.clone(), peer, base));
        }
        let cold = measure(|| assert!(matches!(world.run_until(WARM_NS), Ended::TimeUp(_))));
        assert!(cold.count_total > 100, "what grows is counted: {cold:?}");
        let before = world.stats().events;
        let mut ended = None;
        let allocated = measure(|| ended = Some(world.run_until(WARM_NS + MEASURED_NS)));
        let events = world.stats().events - before;
        assert!(events > 10_000, "{events} events");
        // What the run ended in names the tasks that are left: a list, which takes a few.
        let Some(Ended::TimeUp(left)) = ended else { panic!("tasks go on for ever: {ended:?}") };
        assert_eq!(left.len(), usize::from(CLIENTS));
        assert!(allocated.count_total <= 8, "{allocated:?} in {events} events");
    }
}
