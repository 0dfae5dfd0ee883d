//! A worker that goes on when its server was away for longer than a lease.
//!
//! While a server is away for less than that, a session sees a pause and has all it had. After it
//! the session has ended, for others may have what it held: each guard says so, and everything that
//! is asked of it ends in `Lost`. A worker opens another session then, and its token is a higher
//! one; what it did under the old one and was not done yet is to be looked at anew.
//!
//! Run it with `cargo run --package farlock --example reopened`. It serves a region itself, takes
//! the server away for two leases, and ends.

use std::error::Error;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use farlock::{
    AcquireError, ConnectError, RegionOptions, Server, ServerLimits, Session, SessionError,
    Stopper, Token,
};

/// How long a client lives that the server hears nothing of; ten seconds, if nothing is said.
const LEASE: Duration = Duration::from_secs(1);
/// Between two pieces of work, and two attempts to reach the server.
const PIECE: Duration = Duration::from_millis(100);
/// How long the server may be away before the worker gives up.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("farlock-example-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let result = run(&RegionOptions::new(dir.join("regions"), dir.join("state")));
    std::fs::remove_dir_all(dir)?;
    result
}

fn run(region: &RegionOptions) -> Result<(), Box<dyn Error>> {
    let (address, served) = serve("127.0.0.1:0", region)?;
    let options = RegionOptions::of_server(&address).labelled("worker");
    let (begins, begun) = channel();
    let (over, is_over) = channel::<()>();
    let worker =
        spawn(move || work(&options, &begins, &is_over).map_err(|error| error.to_string()));

    let first = begun.recv_timeout(PATIENCE)?;
    println!("the server is away");
    served.stop()?;
    sleep(2 * LEASE);
    let (_, served) = serve(&address, region)?;
    let second: Token = begun.recv_timeout(PATIENCE)?;
    assert!(first < second, "tokens increase");

    drop(over);
    worker.join().map_err(|_| "the worker panicked")??;
    served.stop()
}

/// Works by one session after another, until it is told to end.
fn work(
    options: &RegionOptions,
    begins: &Sender<Token>,
    is_over: &Receiver<()>,
) -> Result<(), Box<dyn Error>> {
    loop {
        let session = open(options)?;
        let guard = match session.lock("shift").exclusive().blocking() {
            Err(AcquireError::Lost { .. }) => continue,
            acquired => acquired?,
        };
        println!("works, with token {}", guard.token());
        begins.send(guard.token())?;
        // Piece by piece, each with the token, for a store that refuses lower ones.
        while let Err(TryRecvError::Empty) = is_over.try_recv() {
            if let Some(why) = guard.lost_reason() {
                println!("lost: {why}");
                break;
            }
            sleep(PIECE);
        }
        if guard.lost_reason().is_none() {
            return Ok(guard.release().blocking()?);
        }
    }
}

/// A session, as soon as there is a server.
fn open(options: &RegionOptions) -> Result<Session, SessionError> {
    let begun = Instant::now();
    loop {
        match Session::open(options) {
            Err(SessionError::Connect(
                ConnectError::Unreachable { .. } | ConnectError::HungUp { .. },
            )) if begun.elapsed() < PATIENCE => sleep(PIECE),
            opened => return opened,
        }
    }
}

/// A server, on a thread of its own.
struct Served {
    stopper: Stopper,
    thread: JoinHandle<std::io::Result<()>>,
}

fn serve(address: &str, region: &RegionOptions) -> Result<(String, Served), Box<dyn Error>> {
    let mut limits = ServerLimits::default();
    limits.lease = LEASE;
    let server = Server::bind_within(address, region, limits, None)?;
    let (address, stopper) = (server.address()?.to_string(), server.stopper());
    Ok((address, Served { stopper, thread: spawn(move || server.run()) }))
}

impl Served {
    fn stop(self) -> Result<(), Box<dyn Error>> {
        self.stopper.stop();
        Ok(self.thread.join().map_err(|_| "the server panicked")??)
    }
}
