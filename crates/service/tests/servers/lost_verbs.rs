//! Specification: where nobody knows how a verb ended, as when a server is killed in that very
//! instant, a session asks anew by another place, and leaves nothing behind that holds.
//!
//! A proxy stands between, which says of one answer after the other that the verb was lost. So each
//! verb of a cycle is lost once after it was executed. It shares no code with what is tested.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use farlock::{RegionOptions, Session};

use crate::stage::serving::Serving;
use crate::stage::{self, Stage};

/// The kind of the frame that says how verbs ended.
const DONE: u8 = 4;

/// Where in it the ends begin: behind the kind, the lane and the ticket of four bytes each, and the
/// count of links.
const ENDS: usize = 10;

/// The second byte of the end of a read. Behind it come a count of two bytes, and so many words.
const WORDS: u8 = 3;

/// How a verb ends of which nothing is known, and nothing that it read.
const LOST: [u8; 2] = [1, 0];

/// Longer than it takes others to find out about the dead.
const SOON: Duration = Duration::from_secs(10);

/// Stands before a server.
struct Proxy {
    address: String,
    /// How many answers go by before one says that its verb was lost; none where it is negative.
    left: Arc<AtomicI64>,
}

impl Proxy {
    fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (server, left) = (server.to_owned(), Arc::new(AtomicI64::new(-1)));
        let counter = Arc::clone(&left);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let (up, down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || pass_on(up, server));
                let counter = Arc::clone(&counter);
                std::thread::spawn(move || falsify(down, client, &counter));
            }
        });
        Self { address, left }
    }

    fn session(&self) -> Session {
        Session::open(&RegionOptions::of_server(&self.address)).unwrap()
    }

    /// The verb of the answer after so many is lost.
    fn lose_after(&self, answers: i64) {
        self.left.store(answers, Ordering::SeqCst);
    }

    /// Whether that verb was lost.
    fn has_lost(&self) -> bool {
        self.left.swap(-1, Ordering::SeqCst) < 0
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

fn falsify(mut from: TcpStream, mut to: TcpStream, left: &AtomicI64) {
    while let Some(mut frame) = next_frame(&mut from) {
        let changes = frame[0] == DONE && !only_reads(&frame[ENDS..]);
        if changes && left.fetch_sub(1, Ordering::SeqCst) == 0 {
            let links = frame[ENDS - 1].max(1).into();
            frame.truncate(ENDS);
            frame.extend(LOST.repeat(links));
        }
        let length = (frame.len() as u32).to_le_bytes();
        if to.write_all(&[&length[..], &frame].concat()).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Whether nothing but reads ended so: those are done again where a server was killed.
fn only_reads(mut ends: &[u8]) -> bool {
    while let [_, shape, rest @ ..] = ends {
        if *shape != WORDS {
            return false;
        }
        ends = &rest[2 + 8 * usize::from(u16::from_le_bytes([rest[0], rest[1]]))..];
    }
    true
}

fn next_frame(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length).ok()?;
    let mut body = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut body).ok()?;
    Some(body)
}

/// Runs something in new sessions by a server until none of its verbs is left to be lost, then
/// looks whether others get in. It runs in a session that has done it once.
fn with_each_verb_lost(stage: &Stage, run: impl Fn(&Session), is_free: impl Fn(&Session)) {
    let server = Serving::on(stage);
    let proxy = Proxy::before(&server.address);
    let here = stage.session();
    for answers in 0.. {
        let session = proxy.session();
        run(&session);
        proxy.lose_after(answers);
        run(&session);
        let has_lost = proxy.has_lost();
        // By the same session, and by others while it lives.
        run(&session);
        is_free(&here);
        if !has_lost {
            println!("{answers} verbs, each lost once");
            assert!(answers > 1, "something was lost");
            return;
        }
    }
}

#[test]
fn a_lock_is_acquired_and_released_whichever_verb_is_lost() {
    let stage = Stage::new();
    let cycle = |session: &Session| {
        let lock = session.lock("a");
        let guard = lock.exclusive().blocking().unwrap();
        let token = guard.token();
        guard.release().blocking().unwrap();
        let guard = lock.shared().within(SOON).blocking().unwrap();
        assert!(guard.token() >= token, "tokens increase");
        drop(guard);
        stage::block_on(async {
            let guard = lock.exclusive().await.unwrap();
            assert!(guard.token() > token, "tokens increase");
            guard.release().await.unwrap();
        });
    };
    with_each_verb_lost(&stage, cycle, |here| {
        drop(here.lock("a").exclusive().within(SOON).blocking().unwrap());
    });
}

#[test]
fn a_waiter_is_granted_the_lock_whichever_verb_is_lost() {
    let stage = Stage::new();
    let holder = stage.session();
    let wait = |session: &Session| {
        let guard = holder.lock("a").exclusive().within(SOON).blocking().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                drop(session.lock("a").exclusive().within(SOON).blocking().unwrap());
            });
            stage.until_waiting(1);
            guard.release().blocking().unwrap();
            waiter.join().unwrap();
        });
    };
    with_each_verb_lost(&stage, wait, |here| {
        drop(here.lock("a").exclusive().within(SOON).blocking().unwrap());
    });
}

#[test]
fn a_range_is_acquired_and_released_whichever_chain_is_lost() {
    let stage = Stage::new();
    let cycle = |session: &Session| {
        let table = session.range("t");
        let guard = table.exclusive(10..20).blocking().unwrap();
        guard.release().blocking().unwrap();
        let guard = table.shared(0..1000).within(SOON).blocking().unwrap();
        guard.release().blocking().unwrap();
        stage::block_on(async {
            drop(table.exclusive(5..15).await.unwrap());
        });
    };
    with_each_verb_lost(&stage, cycle, |here| {
        drop(here.range("t").exclusive(..).within(SOON).blocking().unwrap());
    });
}
