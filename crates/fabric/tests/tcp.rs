//! What endpoints over TCP do beside those of the server's own host, and what becomes of
//! connections that are cut, crowded or full of noise.
#![cfg(all(feature = "tcp", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

mod frames;
mod tcp_support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farlock_fabric::shm::{Host, Region};
use farlock_fabric::tcp::{AtOnce, Closed, Limits, Remote, Server};
use farlock_fabric::{
    Addr, ConnectError, Connection, Endpoint, Fault, Mailbox, Park, Patience, Posted, Slot, Verb,
    Wait, Woken, block_on,
};
use frames::{
    attach, attach_as, attached, framed, hello, hello_by, hello_from, own_home, read_frame,
};
use tcp_support::support::TestDir;
#[cfg(feature = "tls")]
use tcp_support::tls_support;
use tcp_support::{Both, limits, serve};

/// Less than the longest sleep, by which a waiter would find out that it was not woken.
const SOON: Duration = Duration::from_millis(1500);

fn add<E: Park>(e: &E, addr: Addr) -> u64 {
    block_on(e, e.faa64(addr, 1)).unwrap();
    e.old() as u64
}

/// How a wait ends that another thread's act ends.
fn wait_beside<E: Park>(e: &E, wait: Wait<'_>, act: impl FnOnce() + Send) -> Woken {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            act();
        });
        let begun = Instant::now();
        let woken = loop {
            match block_on(e, e.wait(wait)) {
                Woken::Changed if begun.elapsed() < Duration::from_millis(20) => {}
                woken => break woken,
            }
        };
        assert!(begun.elapsed() < SOON, "it was woken, not only over");
        woken
    })
}

#[test]
fn both_sides_see_the_same_words() {
    let both = Both::new("tcp-words");
    let (here, there) = (both.here(), both.there());
    for turn in 0..50 {
        assert_eq!(add(&here, both.word(1)), 2 * turn);
        assert_eq!(add(&there, both.word(1)), 2 * turn + 1);
    }
}

/// All of them in one frame would be more than a frame may have, and end the connection.
#[test]
fn a_client_is_shown_more_peers_than_a_frame_holds() {
    let both = Both::with_places("tcp-peers", 2200);
    let local: Vec<_> = (0..1950).map(|_| both.here()).collect();
    let remote = Remote::connect(&both.address, "any", &"y".repeat(40)).unwrap();
    let lanes: Vec<_> = (0..200).map(|_| remote.endpoint().unwrap()).collect();
    let peers = remote.peers();
    assert!(peers.iter().map(|peer| peer.id.index).is_sorted_by(|a, b| a < b));
    assert_eq!(peers.len(), local.len() + lanes.len());
    assert!(!remote.is_over());
}

/// Of the threads of a connection one reads for all: none overlooks what another has read for it.
#[test]
fn threads_that_block_on_one_connection_find_what_others_read() {
    block_beside_each_other(&Both::new("tcp-threads"));
}

/// What one read has opened for several of them is found by all.
#[cfg(feature = "tls")]
#[test]
fn threads_that_block_on_one_secured_connection_find_what_others_read() {
    block_beside_each_other(&Both::secured("tls-threads", Limits::default()));
}

fn block_beside_each_other(both: &Both) {
    let remote = both.connect(&both.address).unwrap();
    let (threads, each, word) = (3, 10_000, both.word(1));
    // After a round nothing comes that would wake one that overlooked its own.
    let round = std::sync::Barrier::new(threads);
    let slowest = std::thread::scope(|scope| {
        let add_often = || {
            let (lane, _keeper) = remote.lane(false).unwrap();
            let lane = AtOnce::new(lane);
            let add_timed = |_| {
                round.wait();
                let begun = Instant::now();
                assert!(matches!(
                    lane.post(Verb::Faa64 { addr: word, add: 1 }),
                    Posted::Done(Ok(()))
                ));
                begun.elapsed()
            };
            (0..each).map(add_timed).max().unwrap()
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(add_often)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    });
    assert!(slowest < SOON, "{slowest:?}");
    assert_eq!(add(&both.here(), word), threads as u64 * each);
}

#[test]
fn a_change_on_one_side_ends_a_wait_on_the_other() {
    let both = Both::new("tcp-waits");
    let (word, there) = (both.word(1), both.there());
    let wait = Wait { word: Some((word, 0)), patience: Patience::PARK, ..Wait::default() };
    let woken = wait_beside(&there, wait, || {
        add(&both.here(), word);
    });
    assert_eq!(woken, Woken::Changed);
    let here = both.here();
    let wait = Wait { word: Some((word, 1)), ..wait };
    let woken = wait_beside(&here, wait, || {
        add(&both.there(), word);
    });
    assert_eq!(woken, Woken::Changed);
}

#[test]
fn a_message_ends_a_wait_on_the_other_side() {
    let both = Both::new("tcp-mail");
    let send = |from: &dyn Fn(Mailbox), to| from(Mailbox { endpoint: to, slot: Slot(0) });
    let there = both.there();
    let wait = Wait { mail: Some(Slot(0)), patience: Patience::PARK, ..Wait::default() };
    let id = there.id();
    let woken = wait_beside(&there, wait, || {
        let here = both.here();
        send(&|to| block_on(&here, here.send(to, [7; 4])).unwrap(), id);
    });
    assert_eq!((woken, there.receive(Slot(0)).unwrap().message), (Woken::Mail, [7; 4]));
    let here = both.here();
    let id = here.id();
    let woken = wait_beside(&here, wait, || {
        let there = both.there();
        send(&|to| block_on(&there, there.send(to, [8; 4])).unwrap(), id);
    });
    assert_eq!((woken, here.receive(Slot(0)).unwrap().message), (Woken::Mail, [8; 4]));
}

#[test]
fn a_death_on_one_side_ends_a_wait_on_the_other() {
    let both = Both::new("tcp-deaths");
    let there = both.there();
    let (said, heard) = std::sync::mpsc::channel();
    let (go, going) = std::sync::mpsc::channel::<()>();
    let region = both.region.clone();
    let dying = std::thread::spawn(move || {
        let endpoint = region.endpoint().unwrap();
        said.send(endpoint.id()).unwrap();
        going.recv().unwrap();
    });
    let id = heard.recv().unwrap();
    // It is told of the newcomer before it sees an effect of it.
    add(&there, both.word(2));
    assert!(there.is_alive(id));
    let peers = [id];
    let wait = Wait { peers: &peers, patience: Patience::PARK, ..Wait::default() };
    assert_eq!(wait_beside(&there, wait, || go.send(()).unwrap()), Woken::PeerGone(id));
    assert!(!there.is_alive(id));
    dying.join().unwrap();
    let (here, dying) = (both.here(), both.there());
    let peers = [dying.id()];
    let wait = Wait { peers: &peers, patience: Patience::PARK, ..Wait::default() };
    std::thread::scope(|scope| {
        // The connection goes with its last endpoint.
        let address = &both.address;
        let killed = scope.spawn(move || {
            let remote = Remote::connect(address, "any", "test").unwrap();
            drop(remote.endpoint().unwrap());
        });
        killed.join().unwrap();
    });
    let id = dying.id();
    drop(dying);
    assert_eq!(block_on(&here, here.wait(wait)), Woken::PeerGone(id));
}

#[test]
fn hundreds_wait_at_once_and_each_is_woken() {
    const WAITERS: u64 = 200;
    let both = Both::new("tcp-many");
    let remote = Remote::connect(&both.address, "any", "test").unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..WAITERS {
            let (remote, word) = (remote.clone(), both.word(number));
            scope.spawn(move || {
                let e = remote.endpoint().unwrap();
                let wait =
                    Wait { word: Some((word, 0)), patience: Patience::PARK, ..Wait::default() };
                while block_on(&e, async {
                    e.read64(word).await.unwrap();
                    e.old() == 0
                }) {
                    block_on(&e, e.wait(wait));
                }
            });
        }
        let here = both.here();
        std::thread::sleep(Duration::from_millis(300));
        for number in 0..WAITERS {
            add(&here, both.word(number));
        }
    });
    assert!(begun.elapsed() < Duration::from_millis(300) + SOON);
}

/// Passes so many bytes on to the server, then hangs up on both. Returns what it passed.
fn cut(proxy: &TcpListener, server: &str, most: usize) -> usize {
    let (mut client, _) = proxy.accept().unwrap();
    let mut onward = TcpStream::connect(server).unwrap();
    let (mut back, mut answers) = (onward.try_clone().unwrap(), client.try_clone().unwrap());
    let answering = std::thread::spawn(move || {
        let _ = std::io::copy(&mut back, &mut answers);
    });
    let mut passed = 0;
    let mut byte = [0; 512];
    while passed < most {
        let room = byte.len().min(most - passed);
        match client.read(&mut byte[..room]) {
            Ok(count) if count > 0 => {
                onward.write_all(&byte[..count]).unwrap();
                passed += count;
            }
            _ => break,
        }
    }
    let _ = onward.shutdown(Shutdown::Both);
    let _ = client.shutdown(Shutdown::Both);
    answering.join().unwrap();
    passed
}

/// What was cut, and what it came to.
#[derive(Default)]
struct Cuts {
    added: u64,
    done: u64,
    gone_on: u64,
    tried: u64,
    /// Verbs that were unsignalled, and known to be executed.
    told: u64,
}

impl Cuts {
    /// One client adds twice by a connection that is cut after so many bytes, and by further ones
    /// that are not. Returns whether all of the first went through.
    fn cut_at(&mut self, both: &Both, most: usize) -> bool {
        self.tried += 1;
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = proxy.local_addr().unwrap().to_string();
        let is_over = AtomicBool::new(false);
        let word = both.word(3);
        let (passed, ended) = std::thread::scope(|scope| {
            let passing = scope.spawn(|| {
                let passed = cut(&proxy, &both.address, most);
                while !is_over.load(Ordering::SeqCst) {
                    cut(&proxy, &both.address, usize::MAX);
                }
                passed
            });
            let ended = both.connect(&address).and_then(|r| r.endpoint()).map(|e| {
                let adds = [0, 1].map(|_| block_on(&e, e.faa64(word, 1)));
                e.post_unsignalled(
                    Verb::Faa64 { addr: both.word(4), add: 1 },
                    most.is_multiple_of(2),
                );
                // What comes behind it says that it was executed.
                let told = block_on(&e, e.read64(word)).is_ok();
                (adds, told)
            });
            is_over.store(true, Ordering::SeqCst);
            // The last one is for it.
            drop(TcpStream::connect(&address));
            (passing.join().unwrap(), ended)
        });
        if let Ok(([first, second], told)) = ended {
            self.told += u64::from(told);
            self.done += u64::from(first.is_ok()) + u64::from(second.is_ok());
            self.gone_on += u64::from(first.is_ok() && second.is_ok() && told);
        }
        // What was passed on is executed before what comes to the server now.
        let (here, there) = (both.here(), both.there());
        block_on(&there, there.read64(word)).unwrap();
        block_on(&here, here.read64(word)).unwrap();
        let now = here.old() as u64;
        assert!((self.added..=self.added + 2).contains(&now), "{} became {now}", self.added);
        assert!(now >= self.done, "what was acknowledged is there");
        self.added = now;
        block_on(&here, here.read64(both.word(4))).unwrap();
        let unsignalled = here.old() as u64;
        assert!((self.told..=self.tried).contains(&unsignalled), "{unsignalled} of {}", self.told);
        passed < most
    }
}

/// Where the end of a connection says that the client is dead it finds itself dead; where it says
/// nothing the client goes on by another one. Either way a verb is done whole or not.
#[test]
fn a_connection_that_is_cut_at_any_byte_does_a_verb_whole_or_not() {
    for closed in [Closed::Death, Closed::Doubt] {
        let both = Both::within("tcp-cuts", limits(Duration::from_secs(10), closed));
        cut_at_many_bytes(&both, closed, 1);
    }
}

/// Also while the two shake hands.
#[cfg(feature = "tls")]
#[test]
fn a_secured_connection_that_is_cut_does_a_verb_whole_or_not() {
    for closed in [Closed::Death, Closed::Doubt] {
        let both = Both::secured("tls-cuts", limits(Duration::from_secs(10), closed));
        cut_at_many_bytes(&both, closed, 13);
    }
}

fn cut_at_many_bytes(both: &Both, closed: Closed, step: usize) {
    let mut cuts = Cuts::default();
    let most = (0..).step_by(step).find(|most| cuts.cut_at(both, *most)).unwrap();
    assert!(most > 60 && cuts.done > 0, "it was cut at {most} bytes");
    // Where it goes on it does all that it was told to, once. Also where it does not, a cut behind
    // the last verb costs nothing.
    let (gone_on, tried) = (cuts.gone_on as usize, most / step);
    assert!(gone_on > tried / 16 || closed == Closed::Death, "{gone_on} of {tried}");
    assert!(gone_on < tried / 4 || closed == Closed::Doubt, "{gone_on} of {tried}");
    assert!(closed == Closed::Death || cuts.added == cuts.done);
}

/// Passes all on to the server, and so many bytes back; then hangs up on both. Returns whether that
/// was all that the server has said.
fn cut_answers(proxy: &TcpListener, server: &str, most: usize) -> bool {
    let (mut client, _) = proxy.accept().unwrap();
    let mut onward = TcpStream::connect(server).unwrap();
    let (back, mut answers) = (onward.try_clone().unwrap(), client.try_clone().unwrap());
    let asking = std::thread::spawn(move || {
        let _ = std::io::copy(&mut client, &mut onward);
        let _ = onward.shutdown(Shutdown::Both);
    });
    let passed = std::io::copy(&mut back.take(most as u64), &mut answers).unwrap_or(0);
    let _ = answers.shutdown(Shutdown::Both);
    asking.join().unwrap();
    passed < most as u64
}

/// Each is executed once, whichever byte of the answer was the last to arrive. How its links ended
/// does not lie in the region.
#[test]
fn a_chain_whose_answer_is_cut_off_is_answered_again() {
    let both = Both::within("tcp-cut-chains", limits(Duration::from_secs(10), Closed::Doubt));
    let (here, at) = (both.here(), both.word(3));
    for most in 0.. {
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = proxy.local_addr().unwrap().to_string();
        let is_over = AtomicBool::new(false);
        let (done, was_all) = std::thread::scope(|scope| {
            let passing = scope.spawn(|| {
                let was_all = cut_answers(&proxy, &both.address, most);
                while !is_over.load(Ordering::SeqCst) {
                    cut_answers(&proxy, &both.address, usize::MAX);
                }
                was_all
            });
            let endpoint = both.connect(&address).and_then(|region| region.endpoint());
            let done = endpoint.ok().map(|e| {
                let data = [most as u64];
                let links = [
                    Verb::Faa64 { addr: at, add: 1 }.into(),
                    Verb::Write { addr: at.plus(8), data: &data }.into(),
                    Verb::Faa64 { addr: at, add: 1 }.into(),
                ];
                [0, 1].map(|_| (block_on(&e, e.chain(&links)), e.link(0).old, e.link(2).old))
            });
            is_over.store(true, Ordering::SeqCst);
            drop(TcpStream::connect(&address));
            (done, passing.join().unwrap())
        });
        let Some(chains) = done else { continue };
        for (ended, first, last) in chains {
            assert_eq!((ended, last), (Ok(()), first + 1), "{most} bytes came");
        }
        block_on(&here, here.read64(at)).unwrap();
        assert_eq!(here.old(), chains[1].2 + 1, "{most} bytes came");
        if was_all {
            assert!(most > 200, "{most}");
            break;
        }
    }
}

/// What a client has lies in the region: its life, its record, its mail, what it waits for.
#[test]
fn a_server_that_is_restarted_goes_on_where_it_was() {
    for closed in [Closed::Death, Closed::Doubt] {
        let mut both = Both::within("tcp-restart", limits(Duration::from_secs(10), closed));
        let (here, there) = (both.here(), both.there());
        let (word, id) = (both.word(4), there.id());
        let send = |number: u64| {
            let to = Mailbox { endpoint: id, slot: Slot(1) };
            block_on(&here, here.send(to, [number; 4])).unwrap();
        };
        for turn in 0..20 {
            block_on(&there, there.faa64(word, 1)).unwrap();
            there.post_unsignalled(Verb::Faa64 { addr: both.word(6), add: 1 }, turn % 2 == 0);
            there.publish(Slot(1), 2, turn);
            send(turn * 3);
            // Half of the times it is taken before, and the next server is to know that.
            let early = if turn % 2 == 0 { there.receive(Slot(1)) } else { None };
            both.restart(|both| {
                assert!(here.is_alive(id), "its lease lasts");
                send(turn * 3 + 1);
                add(&both.here(), both.word(5));
            });
            assert_eq!(block_on(&there, there.faa64(word, 1)), Ok(()), "it goes on");
            assert_eq!(there.old() as u64, turn * 2 + 1);
            block_on(&there, there.read64(both.word(6))).unwrap();
            assert_eq!(there.old() as u64, turn + 1, "once, and told or not");
            send(turn * 3 + 2);
            there.show();
            let record = there.record(id.index, Slot(1));
            block_on(&here, here.read64(record.plus(16))).unwrap();
            assert_eq!(here.old() as u64, turn);
            block_on(&there, there.read64(word)).unwrap();
            let mail: Vec<_> = early
                .into_iter()
                .chain(std::iter::from_fn(|| there.receive(Slot(1))))
                .map(|envelope| (envelope.from, envelope.message[0]))
                .collect();
            let all = [0, 1, 2].map(|number| (here.id(), turn * 3 + number));
            assert_eq!(mail, all, "each once, in order");
        }
        drop(there);
        let gone = Wait { peers: &[id], patience: Patience::PARK, ..Wait::default() };
        assert_eq!(block_on(&here, here.wait(gone)), Woken::PeerGone(id));
    }
}

#[test]
fn a_wait_goes_on_where_the_server_is_restarted() {
    let mut both = Both::new("tcp-restart-waits");
    let (word, there) = (both.word(1), both.there());
    let watch = Wait { word: Some((word, 0)), patience: Patience::PARK, ..Wait::default() };
    let here = both.here();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let (remote, begun) = (&both.address, Instant::now());
            let there = Remote::connect(remote, "any", "test").unwrap().endpoint().unwrap();
            loop {
                block_on(&there, there.wait(watch));
                if block_on(&there, there.read64(word)).is_ok() && there.old() != 0 {
                    return begun.elapsed();
                }
            }
        });
        std::thread::sleep(Duration::from_millis(50));
        both.stopper.stop();
        std::thread::sleep(Duration::from_millis(50));
        let (_, stopper, thread) = serve(&both.options, &both.address, both.limits, None);
        std::thread::sleep(Duration::from_millis(50));
        add(&here, word);
        assert!(waits.join().unwrap() < SOON);
        stopper.stop();
        thread.join().unwrap();
    });
    both.restart(|_| {});
    assert!(block_on(&there, there.read64(word)).is_ok() || there.is_alive(there.id()));
}

#[test]
fn an_endpoint_that_is_attached_while_there_is_no_server_comes_with_the_next() {
    let mut both = Both::new("tcp-restart-attach");
    let remote = Remote::connect(&both.address, "any", "test").unwrap();
    let (word, first) = (both.word(1), remote.endpoint().unwrap());
    for turn in 0..20 {
        let attaching = std::thread::scope(|scope| {
            let attaching = scope.spawn(|| {
                let there = remote.endpoint().unwrap();
                block_on(&there, there.faa64(word, 1)).unwrap();
            });
            both.restart(|_| std::thread::sleep(Duration::from_millis(turn / 4)));
            attaching.join()
        });
        attaching.unwrap();
        block_on(&first, first.read64(word)).unwrap();
        assert_eq!(first.old() as u64, turn + 1);
    }
}

/// A client that publishes all the time asks for its lease all the same.
#[test]
fn a_client_that_is_busy_renews_its_lease_and_sends_what_it_publishes() {
    // Several leases, and one that is asked for again soon before what is published last.
    busy_for(Duration::from_millis(300), Duration::from_millis(1500));
    busy_for(Duration::from_secs(8), Duration::from_millis(2200));
}

fn busy_for(lease: Duration, time: Duration) {
    let both = Both::within("tcp-busy-lease", limits(lease, Closed::Doubt));
    let remote = Remote::connect(&both.address, "any", "test").unwrap();
    let begun = Instant::now();
    let busy = || {
        let there = remote.endpoint().unwrap();
        for turn in 0.. {
            if begun.elapsed() > time {
                break;
            }
            // As often as it can, so that there is something to send whenever it is looked for.
            there.publish(Slot(0), 1, turn);
            if turn % 1024 == 0 {
                let ended = block_on(&there, there.faa64(both.word(1), 1));
                assert_eq!(ended, Ok(()), "{:?}", begun.elapsed());
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(busy)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert!(!remote.is_over());
    // And what is published alone is sent still.
    let (here, there) = (both.here(), remote.endpoint().unwrap());
    let record = there.record(there.id().index, Slot(0)).plus(8);
    there.publish(Slot(0), 1, u64::MAX);
    let begun = Instant::now();
    while here.old() as u64 != u64::MAX {
        assert!(begun.elapsed() < SOON, "it lies unsent");
        block_on(&here, here.read64(record)).unwrap();
    }
}

/// The lease is that of the server that there is now.
#[test]
fn a_client_reckons_with_the_lease_of_the_next_server() {
    let mut both = Both::within("tcp-shorter", limits(Duration::from_secs(60), Closed::Doubt));
    let remote = Remote::connect(&both.address, "any", "test").unwrap();
    let (there, short) = (remote.endpoint().unwrap(), Duration::from_millis(500));
    both.limits.lease = short;
    both.restart(|_| {});
    block_on(&there, there.faa64(both.word(1), 1)).unwrap();
    assert!(remote.valid_for() <= short, "{:?}", remote.valid_for());
    std::thread::sleep(short * 3);
    assert!(!remote.is_over() && both.here().is_alive(there.id()), "it renews as often as it must");
}

/// The clients of a server that fails live on as those of one that is killed.
#[test]
fn a_server_that_panics_leaves_its_clients_their_leases() {
    let dir = TestDir::new("tcp-panics");
    let options = dir.options();
    let region = Region::open(&options).unwrap();
    let open = move |name: &str| {
        assert_eq!(name, "any", "this test's server fails here");
        Host::open(&options)
    };
    let server = Server::bind("127.0.0.1:0", open, Limits::default()).unwrap();
    let address = server.address().unwrap().to_string();
    let serving = std::thread::spawn(move || server.run());
    let there = Remote::connect(&address, "any", "test").unwrap().endpoint().unwrap();
    let _ = Remote::connect(&address, "another", "test");
    assert!(serving.join().is_err(), "it failed");
    assert!(region.endpoint().unwrap().is_alive(there.id()), "others must not go on yet");
}

/// What comes by the loopback interface from another kernel, or from a container, came through
/// something that has an end of its own. So it may have where it comes from a process that lives.
#[test]
fn the_end_of_a_tunnel_is_not_that_of_its_client() {
    let lease = Duration::from_millis(600);
    let both = Both::within("tcp-tunnel", limits(lease, Closed::Auto));
    let (own, nobody) = (std::process::id(), i32::MAX as u32);
    let homes = [(own_home(), nobody), (own_home(), own), (own_home() ^ 1, nobody), (0, nobody)];
    for ((home, pid), lives) in homes.into_iter().zip([false, true, true, true]) {
        let mut stream = TcpStream::connect(&both.address).unwrap();
        stream.write_all(&[hello_from("any", home), attach_as(pid, 0)].concat()).unwrap();
        let id = attached(&mut stream);
        assert!(both.region.is_alive(id));
        let begun = Instant::now();
        drop(stream);
        // One that comes behind it is served after it.
        drop(both.there());
        assert_eq!(both.region.is_alive(id), lives, "process {pid} of {home:x}");
        while both.region.is_alive(id) {
            assert!(begun.elapsed() < SOON, "its lease ends");
            std::thread::yield_now();
        }
    }
}

/// A client of this host gave its connection up, as one does that was stopped for long, and ended
/// instead of coming back. It was listed, and in the way, until its lease ended.
#[test]
fn a_process_that_ends_after_its_connection_is_dead_at_once() {
    let both = Both::within("tcp-ends-later", limits(Duration::from_secs(60), Closed::Auto));
    let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let mut stream = TcpStream::connect(&both.address).unwrap();
    let hello = hello_by("any", own_home(), stream.local_addr().unwrap().port());
    stream.write_all(&[hello, attach_as(process.id(), 0)].concat()).unwrap();
    let id = attached(&mut stream);
    drop(stream);
    // One that comes behind it is served after it.
    drop(both.there());
    assert!(both.region.is_alive(id), "it may come back");
    process.kill().unwrap();
    let killed = Instant::now();
    while both.region.is_alive(id) {
        assert!(killed.elapsed() < SOON, "its lease keeps it");
        std::thread::yield_now();
    }
    process.wait().unwrap();
}

/// A client that finds a server slow gives its connection up and comes by another one: the end of
/// the first is not that of the client.
#[test]
fn a_way_back_that_is_given_up_is_not_the_end_of_its_client() {
    let both = Both::within("tcp-given-up", limits(Duration::from_secs(60), Closed::Auto));
    let say = |frames: &[u8]| {
        let mut stream = TcpStream::connect(&both.address).unwrap();
        stream.write_all(frames).unwrap();
        stream
    };
    // It is gone already, so the end of its connection is believed.
    let nobody = i32::MAX as u32;
    let mut first = say(&[hello_from("any", own_home()), attach_as(nobody, 0)].concat());
    let welcome = read_frame(&mut first);
    let id = attached(&mut first);
    // The same again, but of one that comes back, and its secret.
    let mut back = hello_from("any", own_home());
    back[4] = 12;
    let back = framed(&[&back[4..], &welcome[74..90]].concat());
    let lives_behind = |stream: TcpStream| {
        drop(stream);
        // One that comes behind it is served after it.
        drop(both.there());
        both.region.is_alive(id)
    };
    for _ in 0..3 {
        assert!(lives_behind(say(&back)), "it was not heard to be back");
    }
    let lane = [&[13][..], &[0; 4], &[0]].concat();
    let mut last = say(&back);
    assert_eq!(read_frame(&mut last)[0], 1, "it is back");
    last.write_all(&[framed(&lane), framed(&[14, 0, 0, 0, 0]), attach_as(nobody, 1)].concat())
        .unwrap();
    assert!(attached(&mut last) != id && both.region.is_alive(id));
    assert!(!lives_behind(last), "it was, and its connection is its life again");
}

/// The client knows it before those of the server's host, however long it is paused.
#[test]
fn a_lease_ends_where_no_server_comes_back() {
    const LEASE: Duration = Duration::from_millis(400);
    for closed in [Closed::Death, Closed::Doubt] {
        let mut both = Both::within("tcp-leases", limits(LEASE, closed));
        let here = both.here();
        let remote = Remote::connect(&both.address, "any", "test").unwrap();
        let there = remote.endpoint().unwrap();
        std::thread::sleep(LEASE * 2);
        assert!(here.is_alive(there.id()) && !remote.is_over(), "it is renewed");
        both.stop();
        let (stopped, id) = (Instant::now(), there.id());
        let peers = [id];
        let gone = Wait { peers: &peers, patience: Patience::PARK, ..Wait::default() };
        while !matches!(block_on(&here, here.wait(gone)), Woken::PeerGone(_)) {}
        assert!(remote.is_over(), "it knew before");
        let lasted = stopped.elapsed();
        assert!(lasted >= LEASE / 2 && lasted <= LEASE + Duration::from_millis(100), "{lasted:?}");
        assert_eq!(block_on(&there, there.faa64(both.word(1), 1)), Err(Fault::Revoked));
        let chain = [1, 2].map(|word| Verb::Faa64 { addr: both.word(word), add: 1 }.into());
        assert_eq!(block_on(&there, there.chain(&chain)), Err(Fault::Revoked));
        assert_eq!([0, 1].map(|link| there.link(link).status), [Err(Fault::Revoked); 2]);
        both.restart(|_| {});
        assert_eq!(block_on(&there, there.faa64(both.word(1), 1)), Err(Fault::Revoked), "for good");
    }
}

/// Passes everything on to the server, and what comes back as long as `is_deaf` is not set: from
/// then on nothing does, of new connections neither.
fn deafen(proxy: &TcpListener, server: &str, is_deaf: &'static AtomicBool) {
    while let Ok((client, _)) = proxy.accept() {
        let onward = TcpStream::connect(server).unwrap();
        let pairs = [(&client, &onward, false), (&onward, &client, true)];
        for (from, to, may_be_lost) in pairs {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    if !(may_be_lost && is_deaf.load(Ordering::SeqCst)) {
                        let _ = to.write_all(&bytes[..count]);
                    }
                }
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    }
}

/// A client that hears nothing more of the server once `is_deaf` is set.
fn behind_what_deafens(both: &Both, is_deaf: &'static AtomicBool) -> Remote {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, server) = (proxy.local_addr().unwrap().to_string(), both.address.clone());
    std::thread::spawn(move || deafen(&proxy, &server, is_deaf));
    Remote::connect(&address, "any", "test").unwrap()
}

/// The server hears it all the time: it asks for its lease, and comes back by new connections. Its
/// lease ends all the same, and it knows that before others.
#[test]
fn a_client_that_hears_nothing_does_not_outlive_its_lease() {
    const LEASE: Duration = Duration::from_millis(800);
    static IS_DEAF: AtomicBool = AtomicBool::new(false);
    let both = Both::within("tcp-deaf", limits(LEASE, Closed::Doubt));
    let here = both.here();
    let remote = behind_what_deafens(&both, &IS_DEAF);
    let there = remote.endpoint().unwrap();
    let peers = [there.id()];
    // Not when it has just asked.
    std::thread::sleep(LEASE / 12);
    IS_DEAF.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    let gone = Wait { peers: &peers, patience: Patience::PARK, ..Wait::default() };
    while !matches!(block_on(&here, here.wait(gone)), Woken::PeerGone(_)) {}
    assert!(remote.is_over(), "it knew before");
    assert!(begun.elapsed() < LEASE * 3 / 2, "{:?}", begun.elapsed());
}

/// Its server is silent, as one that is stopped: the client has not slept, however long it waits
/// for an answer about its lease.
#[test]
fn a_client_of_a_silent_server_does_not_say_that_it_slept() {
    const LEASE: Duration = Duration::from_millis(800);
    static IS_DEAF: AtomicBool = AtomicBool::new(false);
    let both = Both::within("tcp-silent", limits(LEASE, Closed::Death));
    let remote = behind_what_deafens(&both, &IS_DEAF);
    let there = remote.endpoint().unwrap();
    block_on(&there, there.faa64(both.word(1), 1)).unwrap();
    IS_DEAF.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    while remote.valid_for() > Duration::ZERO {
        assert!(begun.elapsed() < 3 * LEASE);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!remote.has_slept_through());
}

#[test]
fn what_a_client_may_not_have_it_is_told() {
    let both = Both::new("tcp-limits");
    let address = "127.0.0.1:1";
    let refused = Remote::connect(address, "any", "test");
    assert!(matches!(refused, Err(ConnectError::Unreachable { .. })), "{refused:?}");
    let remote = Remote::connect(&both.address, "any", "test").unwrap();
    let places = usize::from(remote.places());
    let taken: Vec<_> = (0..places).map(|_| remote.lane(false)).take_while(Result::is_ok).collect();
    let refused = remote.lane(false);
    assert!(matches!(refused, Err(ConnectError::Declined { .. })), "{refused:?}");
    drop(taken);
    let mut again = None;
    let begun = Instant::now();
    while again.is_none() && begun.elapsed() < SOON {
        again = remote.lane(false).ok();
    }
    assert!(again.is_some(), "what is left is there for others");
}

#[test]
fn half_open_connections_cost_those_that_work_nothing_but_time() {
    let both = Both::new("tcp-idle");
    let there = both.there();
    let mut idle: Vec<_> = (0..300).map(|_| TcpStream::connect(&both.address).unwrap()).collect();
    // A byte at a time, and never a whole frame.
    for stream in &mut idle {
        stream.write_all(&[60]).unwrap();
    }
    for turn in 0..200 {
        assert_eq!(add(&there, both.word(4)), turn);
    }
    drop(idle);
    assert_eq!(add(&both.there(), both.word(4)), 200);
}

/// The time for a greeting is that of shaking hands too.
#[cfg(feature = "tls")]
#[test]
fn a_handshake_that_stalls_is_hung_up_on() {
    let dir = TestDir::new("tls-stalls");
    let (tls, _) = tls_support::both_sides(dir.path());
    let (options, mut limits) = (dir.options(), Limits::default());
    limits.greeting = Duration::from_millis(200);
    let server = Server::bind("127.0.0.1:0", move |_: &str| Host::open(&options), limits);
    let server = server.unwrap().secured(tls);
    let (address, stopper) = (server.address().unwrap(), server.stopper());
    let thread = std::thread::spawn(move || server.run().unwrap());
    let mut stalled = TcpStream::connect(address).unwrap();
    stalled.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
    stalled.set_read_timeout(Some(SOON)).unwrap();
    assert_eq!(stalled.read(&mut [0; 8]).unwrap(), 0, "it is hung up on");
    stopper.stop();
    thread.join().unwrap();
}

/// Many short frames that each ask for much: what lies for a client is bounded, and none of its
/// answers is lost.
#[test]
fn a_client_that_asks_for_much_at_once_has_all_of_it() {
    const ASKED: u32 = 3000;
    const WORDS: u16 = 512;
    let both = Both::new("tcp-much");
    let mut stream = TcpStream::connect(&both.address).unwrap();
    let mut frames = vec![hello("any"), attach(0)];
    let addr = both.word(0).bits().to_le_bytes();
    for ticket in 0..ASKED {
        let read = [&[4][..], &[0; 4], &ticket.to_le_bytes(), &[0, 1], &addr, &WORDS.to_le_bytes()];
        frames.push(framed(&read.concat()));
    }
    let mut writer = stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || writer.write_all(&frames.concat()).unwrap());
    // All of it is on its way before the first answer is taken.
    std::thread::sleep(Duration::from_millis(200));
    let mut answered = 0;
    while answered < ASKED {
        let frame = read_frame(&mut stream);
        if frame[0] == 4 {
            assert_eq!(frame[5..9], answered.to_le_bytes(), "in order");
            assert_eq!(frame.len(), 1 + 4 + 4 + 1 + 1 + 1 + 2 + usize::from(WORDS) * 8);
            answered += 1;
        }
    }
    sending.join().unwrap();
}

/// Waits begin and end all the time, so there is no time to sleep on what one of them waits for;
/// and it ends all the same by what a process of the server's host does.
#[test]
fn a_wait_ends_by_a_local_change_while_the_server_has_no_rest() {
    let both = Both::new("tcp-busy");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let begun = Instant::now();
    let is_late = || begun.elapsed() > Duration::from_secs(20);
    let over = || is_over.load(std::sync::atomic::Ordering::Relaxed) || is_late();
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (both, over) = (&both, &over);
            scope.spawn(move || {
                let busy = both.there();
                let word = Some((both.word(10 + number), u64::MAX));
                while !over() {
                    add(&busy, both.word(20 + number));
                    // It ends at once: the word is another one.
                    block_on(&busy, busy.wait(Wait { word, ..Wait::default() }));
                }
            });
        }
        let waiter = both.there();
        for turn in 0..10 {
            let wait = Wait { word: Some((both.word(1), turn)), ..Wait::default() };
            let local = both.region.clone();
            let word = both.word(1);
            let woken = wait_beside(&waiter, wait, move || {
                assert_eq!(add(&local.endpoint().unwrap(), word), turn);
            });
            assert_eq!(woken, Woken::Changed);
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
