//! What endpoints over TCP do beside those of the server's own host, and what becomes of
//! connections that are cut, crowded or full of noise.
#![cfg(all(feature = "tcp", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

#[path = "shm_support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farlock_fabric::shm::{Host, Options, Region, ShmEndpoint};
use farlock_fabric::tcp::{AtOnce, Limits, Remote, Server, Stopper, TcpEndpoint};
use farlock_fabric::{
    Addr, ConnectError, Connection, Endpoint, Fault, Mailbox, Park, Patience, Posted, Slot, Verb,
    Wait, Woken, block_on,
};
use support::TestDir;

/// Less than the longest sleep, by which a waiter would find out that it was not woken.
const SOON: Duration = Duration::from_millis(1500);

/// A served region, and the region itself.
struct Both {
    region: Region,
    address: String,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
    _dir: TestDir,
}

impl Both {
    fn new(name: &str) -> Self {
        let dir = TestDir::new(name);
        let options = Options { endpoints: 300, ..dir.options() };
        let region = Region::open(&options).unwrap();
        let open = move |_: &str| Host::open(&options);
        let server = Server::bind("127.0.0.1:0", open, Limits::default()).unwrap();
        let (address, stopper) = (server.address().unwrap().to_string(), server.stopper());
        let thread = Some(std::thread::spawn(move || server.run().unwrap()));
        Self { region, address, stopper, thread, _dir: dir }
    }

    fn here(&self) -> ShmEndpoint {
        self.region.endpoint().unwrap()
    }

    fn there(&self) -> TcpEndpoint {
        Remote::connect(&self.address, "any", "test").unwrap().endpoint().unwrap()
    }

    fn word(&self, number: u64) -> Addr {
        self.region.heap().0.plus(number * 64)
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        self.stopper.stop();
        let thread = self.thread.take().unwrap();
        if thread.join().is_err() && !std::thread::panicking() {
            panic!("the server panicked");
        }
    }
}

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

/// Of the threads of a connection one reads for all: none overlooks what another has read for it.
#[test]
fn threads_that_block_on_one_connection_find_what_others_read() {
    let both = Both::new("tcp-threads");
    let remote = Remote::connect(&both.address, "any", "test").unwrap();
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

#[test]
fn a_connection_that_is_cut_at_any_byte_does_a_verb_whole_or_not() {
    let both = Both::new("tcp-cuts");
    let (here, word) = (both.here(), both.word(3));
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap().to_string();
    let (mut before, mut done, mut most) = (0, 0, 0);
    loop {
        let passed = std::thread::scope(|scope| {
            let passing = scope.spawn(|| cut(&proxy, &both.address, most));
            let ended = Remote::connect(&address, "any", "test")
                .and_then(|remote| remote.endpoint())
                .map(|e| block_on(&e, e.faa64(word, 1)));
            match ended {
                Ok(Ok(())) => done += 1,
                Ok(Err(Fault::Lost | Fault::Revoked)) | Err(_) => {}
                Ok(Err(fault)) => panic!("{fault}"),
            }
            passing.join().unwrap()
        });
        block_on(&here, here.read64(word)).unwrap();
        let now = here.old() as u64;
        assert!(now == before || now == before + 1, "{before} became {now}");
        assert!(now >= done, "what was acknowledged is there");
        before = now;
        if passed < most {
            break;
        }
        most += 1;
    }
    assert!(most > 60 && done > 0, "it was cut at {most} bytes");
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
