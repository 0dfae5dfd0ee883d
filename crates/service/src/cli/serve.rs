//! `farlock serve`: a memory server.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{self as unix, UnixDatagram};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farlock::text::{shown, shown_whole};
use farlock::{
    Closed, DEFAULT_REGION, Server, ServerEvent, ServerLimits, SessionError, TlsFiles,
    check_address,
};
use farlock_fabric::tcp::ServerTls;
use farlock_fabric::{ConnectError, chain};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::inherited::is_ignored;
use super::places::Places;
use super::report::{Exit, Failure, say};

/// Serve a region of this host to clients on others, over TCP.
///
/// `farlock lock --server HOST:PORT`, `farlock kv --server`, `farlock ls --server`, and sessions of
/// programs use it; commands and programs of this host go on to use the region directly, and all
/// exclude each other. A client of this host that dies loses what it held at once; one elsewhere
/// when its lease ends, unless it is back by then. When the server ends, or is killed, its clients
/// hold on to what they have until their leases end; a server that is started by then goes on where
/// the last one stopped. It waits up to 2 seconds for the last one to be gone.
///
/// With --tls all is encrypted, and a client can use the region if its certificate names it.
/// Without, every client that can connect, other users of this host among them, can use and damage
/// the region: so it listens on this host alone, unless --plaintext says that the network is
/// trusted.
///
/// It ends at SIGINT, SIGTERM and SIGHUP, but for those that its caller ignores. Exit status: 0
/// then; 64 for wrong usage, 69 if the region or the address cannot be used, 71 if the system
/// refuses.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to listen; port 0 is any that is free.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4747")]
    listen: String,
    /// The region, which is created where it is missing.
    #[arg(long, value_name = "REGION", default_value = DEFAULT_REGION)]
    region: String,
    /// Speak TLS 1.3 alone, by authority.pem, server.pem and server.key in this directory, with
    /// clients that this authority has certified; `farlock tls init` makes them.
    // A client's is another argument, and looked at by its name.
    #[arg(long = "tls", id = "certificates", value_name = "DIR")]
    tls: Option<PathBuf>,
    /// Also listen where other hosts can connect without TLS: everything is sent in the clear.
    #[arg(long, conflicts_with = "certificates")]
    plaintext: bool,
    /// How long others wait for a client at most whose host falls silent, and a restart may take
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = lease,
        allow_negative_numbers = true)]
    lease: Duration,
    /// What the end of a connection says of the client: that it is dead, or, since what lies
    /// between the hosts can end it too, nothing. By itself it says so of clients of this host.
    #[arg(long, value_name = "SAYS", default_value = "auto")]
    closed: ClosedSays,
    /// Where a service manager waits to be told that clients are served.
    #[arg(long, env = "NOTIFY_SOCKET", hide = true)]
    notify: Option<OsString>,
}

/// What the end of a connection says.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ClosedSays {
    /// Of a client of this host that it is dead, of others nothing.
    Auto,
    /// That the client is dead.
    Death,
    /// Nothing.
    Doubt,
}

/// A number of seconds that a lease may last.
fn lease(text: &str) -> Result<Duration, String> {
    const RANGE: std::ops::RangeInclusive<f64> = 0.1..=3600.0;
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds is expected".to_owned())?;
    if !RANGE.contains(&seconds) {
        return Err("0.1 to 3600 seconds are possible".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

pub(super) fn run(args: &Args, places: &Places) -> Result<Exit, Failure> {
    check_address(&args.listen, true)?;
    if !args.plaintext && args.tls.is_none() {
        check_loopback(&args.listen)?;
    }
    let failed = |error| Failure::system("signals cannot be awaited", error);
    // What its caller ignores, as nohup(1) does, does not end it either.
    let ends_by = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
    let mut signals = Signals::new(ends_by).map_err(failed)?;
    take_all_descriptors();
    let options = places.options.clone().named(&args.region).labelled("farlock serve");
    places.heed_state_dir(&args.region);
    let mut limits = ServerLimits::default();
    limits.lease = args.lease;
    limits.closed = match args.closed {
        ClosedSays::Auto => Closed::Auto,
        ClosedSays::Death => Closed::Death,
        ClosedSays::Doubt => Closed::Doubt,
    };
    let files = args.tls.as_ref().map(TlsFiles::of_server);
    let server =
        after_the_last(|| Server::bind_within(&args.listen, &options, limits, files.as_ref()))?;
    let address = server.address().map_err(|error| Failure::system("the address", error))?;
    let (stopper, closer) = (server.stopper(), signals.handle());
    let waiting = std::thread::Builder::new().name("farlock-signals".to_owned()).spawn(move || {
        let signal = signals.forever().next();
        signal.inspect(|_| stopper.stop())
    });
    let waiting = waiting.map_err(SessionError::Thread)?;
    let how = if args.tls.is_some() { "over TLS " } else { "" };
    say(format_args!("farlock: region '{}' is served {how}at {address}", shown(&args.region)));
    files.as_ref().and_then(ends_soon).into_iter().for_each(say);
    tell_manager(args, "READY=1");
    let log = Log::default();
    server.on_event(move |event| log.tell(event));
    let served = server.run();
    tell_manager(args, "STOPPING=1");
    closer.close();
    // It does nothing that could panic.
    let signal = waiting.join().ok().flatten();
    served.map_err(|error| Failure::system("cannot serve any more", error))?;
    if let Some(name) = signal.and_then(signal_hook::low_level::signal_name) {
        say(format_args!("farlock: {name}: region '{}' is served no more", shown(&args.region)));
    }
    Ok(Exit::OK)
}

/// Tells a service manager how it is with this server, if one wants to know (`sd_notify(3)`).
fn tell_manager(args: &Args, state: &str) {
    let Some(place) = args.notify.as_deref().filter(|place| !place.is_empty()) else { return };
    if let Err(error) = tell(place, state) {
        say(format_args!(
            "farlock: the service manager cannot be told {state} at '{}': {error}\n   hint: \
             NOTIFY_SOCKET names where it listens",
            shown_whole(&place.to_string_lossy())
        ));
    }
}

fn tell(place: &OsStr, state: &str) -> io::Result<()> {
    let address = match place.as_bytes() {
        [b'@', name @ ..] => unix::SocketAddr::from_abstract_name(name)?,
        _ => unix::SocketAddr::from_pathname(place)?,
    };
    let socket = UnixDatagram::unbound()?;
    // One that takes nothing does not keep clients waiting.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address).map(|_| ())
}

/// As many descriptors as the system lets it have: the usual limit is that of a program that is not
/// written for more.
fn take_all_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused the limit stays as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// What is to be said of a certificate that will be over soon.
fn ends_soon(files: &TlsFiles) -> Option<String> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    const DAYS: u32 = 14;
    // It was read a moment ago; what is wrong with it by now is said to clients.
    let certificate = ServerTls::load(files).ok()?;
    let days = (1..=DAYS).find(|days| certificate.expires_within(DAY * *days))?;
    Some(format!(
        "farlock: the certificate {} expires within {days} {}\n   hint: move server.pem and \
         server.key away and make new ones: `farlock tls server --host ..`; this server uses them \
         a second later",
        shown_whole(&files.certificate.to_string_lossy()),
        if days == 1 { "day" } else { "days" }
    ))
}

/// What the server says of what happens: of what clients can cause again and again a line a second,
/// and how many it left out.
#[derive(Default)]
struct Log(Mutex<(Option<Instant>, u64)>);

impl Log {
    fn tell(&self, event: ServerEvent<'_>) {
        const PAUSE: Duration = Duration::from_secs(1);
        // Nothing that can panic runs under this mutex.
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, left_out) = &mut *said;
        let is_often = matches!(event, ServerEvent::Refused { .. } | ServerEvent::Short { .. });
        if is_often && last.is_some_and(|last| last.elapsed() < PAUSE) {
            *left_out += 1;
            return;
        }
        let before = match std::mem::take(left_out) {
            0 => String::new(),
            count => format!(" ({count} lines before this were left out)"),
        };
        *last = Some(Instant::now());
        match event {
            ServerEvent::Refused { region, why } => say(format_args!(
                "farlock: a client asked for '{}' and was refused: {}{before}",
                shown(region),
                chain(why)
            )),
            ServerEvent::Short { why } => say(format_args!(
                "farlock: there is no room for one more client, and those that come wait: \
                 {why}{before}\n   hint: each connection takes a descriptor, and the tether of a \
                 command another: raise the limit (`ulimit -Hn`; systemd: LimitNOFILE)"
            )),
            ServerEvent::Certificate { why } => say(format_args!(
                "farlock: the certificate's files are others now, and no good: {}{before}\n   \
                 hint: mend them, or make new ones: `farlock tls server --host ..`; this server \
                 uses them a second later",
                chain(why)
            )),
            ServerEvent::Anew { region } => say(format_args!(
                "farlock: the region '{}' was removed, and a new one is served now{before}",
                shown(region)
            )),
            _ => {}
        }
    }
}

/// The server, also where the last one is on its way out: until that is gone it has the address and
/// the right to serve the region.
fn after_the_last(bind: impl Fn() -> Result<Server, SessionError>) -> Result<Server, SessionError> {
    const PATIENCE: Duration = Duration::from_secs(2);
    const PAUSE: Duration = Duration::from_millis(20);
    let begun = Instant::now();
    loop {
        match bind() {
            Err(error) if is_another_there(&error) && begun.elapsed() < PATIENCE => {
                std::thread::sleep(PAUSE);
            }
            bound => return bound,
        }
    }
}

fn is_another_there(error: &SessionError) -> bool {
    match error {
        SessionError::Listen { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
        SessionError::Connect(error) => matches!(error, ConnectError::Served { .. }),
        _ => false,
    }
}

/// Refuses addresses that other hosts can reach.
fn check_loopback(listen: &str) -> Result<(), Failure> {
    let unusable = |source| {
        let address = shown_whole(listen);
        Failure::from(SessionError::Listen { address, source })
    };
    let addresses: Vec<SocketAddr> = listen.to_socket_addrs().map_err(unusable)?.collect();
    let is_open = |ip: IpAddr| !ip.to_canonical().is_loopback();
    match addresses.iter().find(|address| is_open(address.ip())) {
        None => Ok(()),
        Some(open) => Err(Failure::usage(
            format_args!("other hosts can reach {open}, and nothing is encrypted"),
            "say --tls and where the certificates are, or --plaintext where the network is trusted",
        )),
    }
}
