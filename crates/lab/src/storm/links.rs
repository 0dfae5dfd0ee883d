//! What lies between the clients of a storm and its server: a thread that passes on what they say,
//! and breaks their connections as networks do.
//!
//! A client is a host here: it reaches the server at a port of loopback of its own
//! ([`Links::address_of`]), so what befalls it befalls all of its connections, and those that it
//! begins meanwhile. What is held back arrives when the silence is over, as it does where packets
//! are sent again; it is never lost in the middle of a connection that goes on.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use rand::{Rng, RngExt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_linger;

/// Bytes that are held back for one way of a connection, before its sender must wait.
const HELD_MAX: usize = 1 << 20;
/// Bytes taken at once.
const READ_BYTES: usize = 64 << 10;
/// Clients that can come at the same time: the last ones, of which all that live are some.
const HOSTS_MAX: usize = 256;
/// How soon an order is looked at.
const TICK: Duration = Duration::from_millis(1);

/// What befalls a client's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cut {
    /// They end by a reset, on both sides.
    Reset,
    /// They end in the middle of what is said next, to the server or by it.
    Within {
        /// Whether of what is said to the server.
        to_server: bool,
    },
    /// Nothing arrives for so long, of one way or of both.
    Silence {
        /// What is said to the server does not.
        to_server: bool,
        /// What the server says does not.
        to_client: bool,
        /// How long.
        time: Duration,
    },
}

impl Cut {
    /// One of chance's choice, by which a client that has this lease may lose it.
    pub(super) fn draw(lease: Duration, chance: &mut impl Rng) -> Self {
        let to_server = chance.random();
        match chance.random_range(0..4) {
            0 => Self::Reset,
            1 => Self::Within { to_server },
            _ => {
                let to_client = !to_server || chance.random();
                let millis = lease.as_millis() as u64;
                let range = match chance.random_range(0..8) {
                    0 => millis / 2..millis * 5 / 4,
                    1 => millis / 8..millis / 2,
                    _ => 1..millis / 8,
                };
                let time = Duration::from_millis(chance.random_range(range));
                Self::Silence { to_server, to_client, time }
            }
        }
    }

    /// How long it lasts.
    pub(super) fn time(self) -> Duration {
        match self {
            Self::Reset | Self::Within { .. } => Duration::ZERO,
            Self::Silence { time, .. } => time,
        }
    }
}

/// The thread, and how to tell it what to do. It ends with this.
pub(super) struct Links {
    orders: Arc<Mutex<Orders>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread was told since it looked.
#[derive(Default)]
struct Orders {
    cuts: Vec<(u64, Cut)>,
    /// Where a client will come.
    hosts: Vec<Host>,
}

/// Where one client comes.
struct Host {
    who: u64,
    listener: TcpListener,
}

impl Links {
    /// Passes on what comes to this server.
    pub(super) fn to(server: &str) -> anyhow::Result<Self> {
        let server = server.parse().context("a server has an address")?;
        let (orders, is_over) = (Arc::default(), Arc::default());
        let mut passing = Passing {
            hosts: VecDeque::new(),
            server,
            orders: Arc::clone(&orders),
            links: Vec::new(),
            silences: Vec::new(),
            bytes: vec![0; READ_BYTES].into(),
        };
        let is_ended = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || passing.run(&is_ended));
        Ok(Self { orders, is_over, thread: Some(thread) })
    }

    /// Where this client finds the server.
    pub(super) fn address_of(&self, who: u64) -> anyhow::Result<String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.context("cannot listen before the server")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        self.orders().hosts.push(Host { who, listener });
        Ok(address)
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has this befall a client.
    pub(super) fn cut(&self, who: u64, cut: Cut) {
        self.orders().cuts.push((who, cut));
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic of it was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// All that the thread has.
struct Passing {
    hosts: VecDeque<Host>,
    server: SocketAddr,
    orders: Arc<Mutex<Orders>>,
    links: Vec<Link>,
    silences: Vec<Silence>,
    /// Where what comes is read to.
    bytes: Box<[u8]>,
}

struct Silence {
    who: u64,
    /// Whether what is said to the server is held back, and what it says.
    ways: [bool; 2],
    until: Instant,
}

/// A connection: its two ends, the client's first, and what came from each.
struct Link {
    who: u64,
    ends: [TcpStream; 2],
    ways: [Way; 2],
    is_over: bool,
}

/// What is passed on one way.
#[derive(Default)]
struct Way {
    held: Vec<u8>,
    is_at_end: bool,
    /// It ends in the middle of what comes next.
    ends_within: bool,
    is_silent: bool,
}

impl Way {
    fn takes_more(&self) -> bool {
        !self.is_at_end && self.held.len() < HELD_MAX
    }

    fn gives(&self) -> bool {
        !self.is_silent && !self.held.is_empty()
    }

    /// Takes what has come. Returns whether the connection is to go on.
    fn take(&mut self, mut from: &TcpStream, bytes: &mut [u8]) -> bool {
        match from.read(bytes) {
            Ok(0) => self.is_at_end = true,
            Ok(count) => self.held.extend_from_slice(&bytes[..count]),
            Err(error) if is_for_later(&error) => {}
            Err(_) => return false,
        }
        true
    }

    /// Passes on what it may. Returns whether the connection is to go on.
    fn give(&mut self, mut to: &TcpStream) -> bool {
        if !self.gives() {
            return self.is_silent || !self.is_at_end;
        }
        let count = self.held.len().div_ceil(if self.ends_within { 2 } else { 1 });
        match to.write(&self.held[..count]) {
            Ok(count) => drop(self.held.drain(..count)),
            Err(error) if is_for_later(&error) => return true,
            Err(_) => return false,
        }
        !(self.ends_within || self.is_at_end && self.held.is_empty())
    }
}

impl Link {
    /// From a client that has come, if the server is there.
    fn between(who: u64, client: TcpStream, server: SocketAddr) -> Option<Self> {
        let onward = TcpStream::connect(server).ok()?;
        for end in [&client, &onward] {
            end.set_nonblocking(true).ok()?;
            end.set_nodelay(true).ok()?;
        }
        Some(Self { who, ends: [client, onward], ways: Default::default(), is_over: false })
    }

    fn pass_on(&mut self, bytes: &mut [u8]) {
        for (way, (from, to)) in self.ways.iter_mut().zip([(0, 1), (1, 0)]) {
            if way.takes_more() && !way.take(&self.ends[from], bytes) || !way.give(&self.ends[to]) {
                self.is_over = true;
            }
        }
    }

    /// Both ends see a reset.
    fn reset(&mut self) {
        for end in &self.ends {
            // One that is over has nothing to reset.
            let _ = set_socket_linger(end, Some(Duration::ZERO));
        }
        self.is_over = true;
    }
}

impl Passing {
    fn run(&mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::SeqCst) {
            let came = self.sleep();
            self.accept(&came);
            self.obey();
            self.fall_silent();
            self.links.iter_mut().for_each(|link| link.pass_on(&mut self.bytes));
            self.links.retain(|link| !link.is_over);
        }
    }

    /// Until something can be passed on, or for a moment. Returns the hosts that have newcomers: to
    /// ask all each time would take a processor from the clients that wait for one.
    fn sleep(&self) -> Vec<usize> {
        let hosts = self.hosts.iter();
        let mut fds: Vec<_> =
            hosts.map(|host| PollFd::new(&host.listener, PollFlags::IN)).collect();
        for link in &self.links {
            for (own, other) in [(0, 1), (1, 0)] {
                let mut wants = PollFlags::empty();
                wants.set(PollFlags::IN, link.ways[own].takes_more());
                wants.set(PollFlags::OUT, link.ways[other].gives());
                // What is not asked for says that it is over all the same, again and again.
                if !wants.is_empty() {
                    fds.push(PollFd::new(&link.ends[own], wants));
                }
            }
        }
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as _ };
        // Where it is interrupted all are looked at.
        let _ = poll(&mut fds, Some(&tick));
        (0..self.hosts.len()).filter(|host| !fds[*host].revents().is_empty()).collect()
    }

    fn accept(&mut self, came: &[usize]) {
        for Host { who, listener } in came.iter().map(|host| &self.hosts[*host]) {
            while let Ok((client, _)) = listener.accept() {
                // Where there is no server the client is hung up on, and comes again.
                self.links.extend(Link::between(*who, client, self.server));
            }
        }
    }

    /// Does what was ordered since.
    fn obey(&mut self) {
        let orders =
            std::mem::take(&mut *self.orders.lock().unwrap_or_else(PoisonError::into_inner));
        self.hosts.extend(orders.hosts);
        self.hosts.drain(..self.hosts.len().saturating_sub(HOSTS_MAX));
        for (who, cut) in orders.cuts {
            let own = self.links.iter_mut().filter(|link| link.who == who);
            match cut {
                Cut::Reset => own.for_each(Link::reset),
                Cut::Within { to_server } => {
                    own.for_each(|link| link.ways[usize::from(!to_server)].ends_within = true);
                }
                Cut::Silence { to_server, to_client, time } => {
                    let (ways, until) = ([to_server, to_client], Instant::now() + time);
                    self.silences.push(Silence { who, ways, until });
                }
            }
        }
    }

    /// Which ways are silent now.
    fn fall_silent(&mut self) {
        let now = Instant::now();
        self.silences.retain(|silence| silence.until > now);
        for link in &mut self.links {
            let own = self.silences.iter().filter(|silence| silence.who == link.who);
            let none = [false; 2];
            let ways = own.fold(none, |all, silence| [0, 1].map(|at| all[at] | silence.ways[at]));
            for (way, is_silent) in link.ways.iter_mut().zip(ways) {
                way.is_silent = is_silent;
            }
        }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that says what it hears, and a client of it behind links.
    fn pair(who: u64) -> (Links, TcpStream, TcpStream) {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let links = Links::to(&server.local_addr().unwrap().to_string()).unwrap();
        let client = TcpStream::connect(links.address_of(who).unwrap()).unwrap();
        let (there, _) = server.accept().unwrap();
        (links, client, there)
    }

    fn hears(mut stream: &TcpStream, within: Duration) -> Option<u8> {
        stream.set_read_timeout(Some(within)).unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).ok().map(|()| byte[0])
    }

    #[test]
    fn what_is_said_arrives_and_is_held_back_while_it_is_silent() {
        const LONG: Duration = Duration::from_secs(10);
        const SHORT: Duration = Duration::from_millis(50);
        let (links, mut client, mut server) = pair(700);
        client.write_all(&[1]).unwrap();
        assert_eq!(hears(&server, LONG), Some(1));
        let time = Duration::from_millis(600);
        links.cut(701, Cut::Silence { to_server: true, to_client: true, time: LONG });
        links.cut(700, Cut::Silence { to_server: true, to_client: false, time });
        std::thread::sleep(SHORT);
        client.write_all(&[2]).unwrap();
        server.write_all(&[3]).unwrap();
        assert_eq!(hears(&client, LONG), Some(3), "the other way is not silent");
        assert_eq!(hears(&server, SHORT), None);
        assert_eq!(hears(&server, LONG), Some(2));
    }

    #[test]
    fn connections_end_by_a_reset_and_in_the_middle() {
        let (links, client, server) = pair(3);
        links.cut(3, Cut::Reset);
        for end in [&client, &server] {
            end.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let ended = (&*end).read(&mut [0]);
            assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
        let (links, mut client, mut server) = pair(4);
        links.cut(4, Cut::Within { to_server: true });
        std::thread::sleep(Duration::from_millis(50));
        client.write_all(&[7; 100]).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut all = Vec::new();
        server.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 50);
    }
}
