//! A relay between clients and a server, which counts round trips: how often the server's bytes
//! came after a client's. All clients are counted alike, whatever the protocol.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes that go on at a time.
const AT_ONCE: usize = 64 << 10;

/// Where clients may connect in place of the server. It relays until its program ends.
pub(super) struct Relay {
    port: u16,
    trips: Arc<AtomicU64>,
}

impl Relay {
    /// Relays to the server at this port.
    pub(super) fn to(server: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let relay = Self { port: listener.local_addr()?.port(), trips: Arc::default() };
        let trips = Arc::clone(&relay.trips);
        std::thread::Builder::new().name("relay".to_owned()).spawn(move || {
            for client in listener.incoming().flatten() {
                // A client that cannot be relayed finds its connection ended.
                let _ = relay_one(client, server, &trips);
            }
        })?;
        Ok(relay)
    }

    /// Where it listens.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// How many round trips there were.
    pub(super) fn trips(&self) -> u64 {
        self.trips.load(Ordering::SeqCst)
    }
}

fn relay_one(client: TcpStream, server: u16, trips: &Arc<AtomicU64>) -> anyhow::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", server))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    // The client has said something since the server did.
    let asked = Arc::new(AtomicBool::new(false));
    let (answered, trips) = (Arc::clone(&asked), Arc::clone(trips));
    let (from, to) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || pass_on(from, to, || asked.store(true, Ordering::SeqCst)));
    std::thread::spawn(move || {
        pass_on(server, client, || {
            if answered.swap(false, Ordering::SeqCst) {
                trips.fetch_add(1, Ordering::SeqCst);
            }
        });
    });
    Ok(())
}

/// Passes on what comes until either end is gone, and counts it before that.
fn pass_on(mut from: TcpStream, mut to: TcpStream, count: impl Fn()) {
    let mut bytes = vec![0; AT_ONCE];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        count();
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    // It is gone already where that fails.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
