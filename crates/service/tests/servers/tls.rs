//! Specification: servers and clients that trust each other by certificates. What is right is had,
//! and what is wrong is said, through the command and the library alike.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use farlock::{
    ConnectError, Kv, LostReason, RegionOptions, Server, Session, SessionError, TlsFault,
    TlsFileFault, TlsFiles,
};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use rustix::process::{Pid, Signal};
use rustls::crypto::ring;

use crate::stage::serving::{Serving, kill_holder, parent_of};
use crate::stage::{self, Stage, is_actor, is_running, kill, number, pid};

/// A directory of certificates, as `farlock tls init` makes it.
fn init(stage: &Stage, name: &str) -> PathBuf {
    let dir = stage.file(name);
    let (status, _, said) = stage.run(&["tls", "init", dir.to_str().unwrap()]);
    assert_eq!(status, 0, "{said}");
    dir
}

fn serving(stage: &Stage, dir: &Path) -> Serving {
    Serving::started(stage, &["--listen", "127.0.0.1:0", "--tls", dir.to_str().unwrap()])
}

/// A stage with certificates, and its server.
fn secured() -> (Stage, PathBuf, Serving) {
    let stage = Stage::new();
    let dir = init(&stage, "tls");
    let server = serving(&stage, &dir);
    (stage, dir, server)
}

fn by(server: &Serving, dir: &Path) -> RegionOptions {
    server.options().over_tls(TlsFiles::of_client(dir))
}

/// Each adds to a number that a lock alone protects.
#[test]
fn a_lock_is_handed_over_between_both_sides_without_loss() {
    const EACH: u64 = 60;
    const THREADS: u64 = 16;
    let (stage, dir, server) = secured();
    // Threads of one session share its connection.
    let shared = Session::open(&by(&server, &dir)).unwrap();
    let total = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let session = match number % 4 {
                0 | 1 => stage.session(),
                2 => Session::open(&by(&server, &dir)).unwrap(),
                _ => shared.clone(),
            };
            let total = &total;
            scope.spawn(move || {
                let lock = session.lock("sum");
                for _ in 0..EACH {
                    let guard = lock.exclusive().blocking().unwrap();
                    stage::add_one(total);
                    guard.release().blocking().unwrap();
                }
            });
        }
    });
    assert_eq!(total.into_inner(), EACH * THREADS);
}

#[test]
fn a_store_is_the_same_from_both_sides() {
    let (stage, dir, server) = secured();
    let here = Kv::open(&stage.options(), "default").unwrap();
    let there = Kv::open(&by(&server, &dir), "default").unwrap();
    for number in 0..60_usize {
        let (key, value) = (format!("key {number}"), vec![number as u8; number * 997 + 1]);
        let (writer, reader) = if number % 2 == 0 { (&here, &there) } else { (&there, &here) };
        writer.put(key.as_bytes(), &value).unwrap();
        assert_eq!(reader.get(key.as_bytes()).unwrap(), Some(value));
    }
    let at = format!("tls://{}", server.address);
    let (at, tls) = (["--server", &at], ["--tls", dir.to_str().unwrap()]);
    assert_eq!(stage.run(&["kv", "put", at[0], at[1], tls[0], tls[1], "k", "v"]).0, 0);
    assert_eq!(stage.run(&["kv", "get", "k"]).1, "v\n");
    let mut get = stage.farlock(&["kv", "get", "k"]);
    let said = get.env("FARLOCK_SERVER", &server.address).env("FARLOCK_TLS", &dir).output();
    assert_eq!(stage::ended(said.unwrap()).1, "v\n");
    let (_, listed, _) = stage.run(&["ls", at[0], at[1], tls[0], tls[1], "--all"]);
    assert!(!listed.is_empty());
}

/// Holds a lock of the server that the environment names until it is killed.
#[test]
fn actor_holds_and_waits() {
    if !is_actor() {
        return;
    }
    let variable = |name| std::env::var(name).unwrap();
    let server = RegionOptions::of_server(variable("FARLOCK_TEST_SERVER"));
    let files = TlsFiles::of_client(variable("FARLOCK_TEST_TLS"));
    let session = Session::open(&server.over_tls(files)).unwrap();
    let _guard = session.lock("a").exclusive().blocking().unwrap();
    println!("\nholds");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn what_a_killed_client_held_is_granted_at_once() {
    let (stage, dir, server) = secured();
    let (here, there) = (stage.session(), Session::open(&by(&server, &dir)).unwrap());
    for waiter in [&here, &there, &here] {
        let mut actor = stage.actor("tls::actor_holds_and_waits");
        actor.env("FARLOCK_TEST_SERVER", &server.address).env("FARLOCK_TEST_TLS", &dir);
        kill_holder(&mut actor, waiter);
    }
}

/// What TLS knows of the tether dies with `farlock`; its connection lives on in the command.
#[test]
fn a_command_keeps_its_lock_where_its_farlock_is_killed_with_its_guardian() {
    let (stage, dir, server) = secured();
    let file = stage.file("pid");
    // The kernel kills the shell with the guardian, but not what the shell has started.
    let shell = format!("sleep 60 & echo $! > {}; wait", file.display());
    let options = ["--server", &server.address, "--tls", dir.to_str().unwrap()];
    let mut lock = stage.farlock(&["lock"]);
    let mut child = lock.args(options).args(["a", "--", "sh", "-c", &shell]).spawn().unwrap();
    let command = number(&stage, &file) as i32;
    let guardian = Pid::from_raw(parent_of(parent_of(command))).unwrap();
    // Neither sees the other's end: a guardian that is stopped is continued with that of `farlock`,
    // as the kernel does with a process group that nobody is left for.
    stage.stop(guardian);
    stage.stop(pid(&child));
    kill(guardian, Signal::KILL);
    kill(pid(&child), Signal::KILL);
    child.wait().unwrap();
    let here = stage.session();
    let there = Session::open(&by(&server, &dir)).unwrap();
    for session in [&here, &there] {
        let tried = session.lock("a").exclusive().within(Duration::from_millis(300)).blocking();
        assert!(tried.is_err(), "the command still runs");
    }
    assert!(is_running(command));
    kill(Pid::from_raw(command).unwrap(), Signal::KILL);
    drop(here.lock("a").exclusive().within(Duration::from_secs(5)).blocking().unwrap());
}

#[test]
fn a_certificate_is_for_the_regions_that_it_names() {
    let stage = Stage::new();
    let dir = init(&stage, "tls");
    let of = |name: &str, region: &str| {
        let made = ["tls", "client", name, "--region", region, "--dir", dir.to_str().unwrap()];
        let (status, _, said) = stage.run(&made);
        assert_eq!(status, 0, "{said}");
        dir.join(name)
    };
    let (one, other, odd) = (of("one", "default"), of("other", "jobs"), of("odd", "a b"));
    let server = serving(&stage, &dir);
    drop(Session::open(&by(&server, &one)).unwrap().lock("a").exclusive().blocking().unwrap());
    Kv::open(&by(&server, &one), "s").unwrap().put(b"k", b"v").unwrap();
    for (dir, region) in [(&other, "default"), (&odd, "default"), (&one, "jobs"), (&odd, "a")] {
        let refused = Session::open(&by(&server, dir).named(region));
        let Err(SessionError::Connect(ConnectError::Declined { why, .. })) = refused else {
            panic!("{region}: {refused:?}")
        };
        assert_eq!(why, format!("this certificate may not use the region {region:?}"));
        let (dir, at) = (dir.to_str().unwrap(), server.address.as_str());
        let arguments = ["lock", "--server", at, "--tls", dir, "--region", region, "a", "true"];
        let (status, _, said) = stage.run(&arguments);
        assert_eq!((status, said.contains("[server-declined]")), (69, true), "{said}");
        let arguments = ["kv", "get", "--server", at, "--tls", dir, "--region", region, "k"];
        let (status, _, said) = stage.run(&arguments);
        assert_eq!((status, said.contains("[server-declined]")), (69, true), "{said}");
        assert!(said.contains(&format!("may not use the region {region:?} [")), "{said}");
    }
    assert!(Kv::open(&by(&server, &other), "s").is_err(), "a store is of a region");
    // Of a region with that name it is right.
    let options = stage.options().named("a b");
    let odd_server = Server::bind_tls("127.0.0.1:0", &options, &TlsFiles::of_server(&dir)).unwrap();
    let (at, stopper) = (odd_server.address().unwrap().to_string(), odd_server.stopper());
    let runs = std::thread::spawn(move || odd_server.run());
    let options = RegionOptions::of_server(at).over_tls(TlsFiles::of_client(&odd)).named("a b");
    drop(Session::open(&options).unwrap());
    stopper.stop();
    runs.join().unwrap().unwrap();
}

/// What a certificate is to be like.
#[derive(Clone)]
struct Like {
    /// Days from now when it begins and ends.
    days: (i64, i64),
    host: &'static str,
    usage: ExtendedKeyUsagePurpose,
}

const SERVER: Like =
    Like { days: (-1, 1), host: "127.0.0.1", usage: ExtendedKeyUsagePurpose::ServerAuth };
const CLIENT: Like = Like { usage: ExtendedKeyUsagePurpose::ClientAuth, ..SERVER };

/// An authority of the test's own.
struct Maker(Issuer<'static, KeyPair>, String);

impl Maker {
    fn new() -> Self {
        let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "the test's own");
        let pem = params.self_signed(&key).unwrap().pem();
        Self(Issuer::new(params, key), pem)
    }

    /// A directory with a server's certificate and a client's.
    fn make(&self, stage: &Stage, name: &str, server: Like, client: Like) -> PathBuf {
        let dir = stage.file(name);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("authority.pem"), &self.1).unwrap();
        for (side, like) in [("server", server), ("client", client)] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec![like.host.to_owned()]).unwrap();
            let uri = "farlock:region/*".try_into().unwrap();
            params.subject_alt_names.push(SanType::URI(uri));
            params.extended_key_usages = vec![like.usage];
            set_days(&mut params, like.days);
            let pem = params.signed_by(&key, &self.0).unwrap().pem();
            std::fs::write(dir.join(format!("{side}.pem")), pem).unwrap();
            let path = dir.join(format!("{side}.key"));
            std::fs::write(&path, key.serialize_pem()).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        }
        dir
    }
}

/// When it begins and ends, in days from now.
fn set_days(params: &mut CertificateParams, (begin, end): (i64, i64)) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let after = |days: i64| now.as_secs().checked_add_signed(days * 24 * 60 * 60).unwrap();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(after(begin));
    params.not_after = epoch + Duration::from_secs(after(end));
}

/// A server's certificate takes the place of another.
fn replace(from: &Path, to: &Path) {
    for name in ["server.key", "server.pem"] {
        std::fs::rename(from.join(name), to.join(name)).unwrap();
    }
}

fn fault(server: &Serving, dir: &Path) -> TlsFault {
    match Session::open(&by(server, dir)) {
        Err(SessionError::Connect(ConnectError::Tls { why, .. })) => why,
        other => panic!("{other:?}"),
    }
}

fn said(stage: &Stage, address: &str, dir: Option<&Path>) -> String {
    let mut lock = stage.farlock(&["lock", "--server", address]);
    if let Some(dir) = dir {
        lock.arg("--tls").arg(dir);
    }
    let (status, _, said) = stage::ended(lock.args(["a", "--", "true"]).output().unwrap());
    assert_eq!((status, said.contains("hint: ")), (69, true), "{said}");
    said
}

#[test]
fn certificates_that_are_not_right_are_refused() {
    let stage = Stage::new();
    let (maker, foreign) = (Maker::new(), Maker::new());
    let make = |name, server, client| maker.make(&stage, name, server, client);
    let right = make("right", SERVER, CLIENT);
    let (past, future) = ((-3, -1), (1, 3));
    let unknown = foreign.make(&stage, "foreign", SERVER, CLIENT);
    let cases = [
        (make("a", Like { days: past, ..SERVER }, CLIENT), TlsFault::Expired, "server-time"),
        (make("b", Like { days: future, ..SERVER }, CLIENT), TlsFault::NotYetValid, "server-time"),
        (make("c", Like { host: "db1", ..SERVER }, CLIENT), TlsFault::OtherName, "server-name"),
        (unknown.clone(), TlsFault::Foreign, "server-authority"),
        (make("d", CLIENT, CLIENT), TlsFault::NoServer, ""),
    ];
    for (dir, fault_of, code) in cases {
        // One that is not valid now can only have replaced another.
        let server = match &fault_of {
            TlsFault::Expired | TlsFault::NotYetValid => {
                let name = format!("served-{fault_of:?}");
                let served = maker.make(&stage, &name, SERVER, CLIENT);
                let server = serving(&stage, &served);
                replace(&dir, &served);
                stage.until(|| Session::open(&by(&server, &right)).is_err());
                server
            }
            _ => serving(&stage, &dir),
        };
        assert_eq!(fault(&server, &right), fault_of);
        let said = said(&stage, &server.address, Some(&right));
        assert!(said.contains(&format!("[tls{}{code}]", if code.is_empty() { "" } else { "-" })));
    }
    let server = serving(&stage, &right);
    // A client of another authority, that knows the server's.
    std::fs::copy(right.join("authority.pem"), unknown.join("authority.pem")).unwrap();
    for (dir, fault_of, code) in [
        (make("e", SERVER, Like { days: past, ..CLIENT }), TlsFault::ClientNotCurrent, "-time"),
        (make("f", SERVER, Like { days: future, ..CLIENT }), TlsFault::ClientNotCurrent, "-time"),
        (unknown, TlsFault::ClientForeign, "-authority"),
    ] {
        assert_eq!(fault(&server, &dir), fault_of);
        let said = said(&stage, &server.address, Some(&dir));
        assert!(said.contains(&format!("[tls-client{code}]")), "{said}");
    }
    assert_eq!(fault(&server, &make("g", SERVER, SERVER)), TlsFault::NoClient);
    drop(Session::open(&by(&server, &right)).unwrap().lock("a").exclusive().blocking().unwrap());
}

/// It started, and each of its clients was told that it cannot be used.
#[test]
fn a_server_whose_own_certificate_is_not_valid_says_so_and_does_not_start() {
    let (stage, maker) = (Stage::new(), Maker::new());
    for (name, days, says) in
        [("past", (-3, -1), "it has expired"), ("future", (1, 3), "it is not valid yet")]
    {
        let dir = maker.make(&stage, name, Like { days, ..SERVER }, CLIENT);
        let mut serve = stage.farlock(&["serve", "--listen", "127.0.0.1:0", "--tls"]);
        let mut serve = serve.arg(&dir).stderr(Stdio::piped()).spawn().unwrap();
        let (errors, mut said) = (serve.stderr.take().unwrap(), String::new());
        BufReader::new(errors).read_line(&mut said).unwrap();
        let _ = serve.kill();
        serve.wait().unwrap();
        let is_named = said.contains("server.pem") && said.contains("[tls-file]");
        assert!(said.contains(says) && is_named, "{said}");
    }
}

#[test]
fn a_certificate_that_ends_soon_is_told_of_when_its_server_starts() {
    let (stage, maker) = (Stage::new(), Maker::new());
    for (name, days, says) in
        [("soon", 3, Some("/server.pem expires within ")), ("later", 40, None)]
    {
        let dir = maker.make(&stage, name, Like { days: (-1, days), ..SERVER }, CLIENT);
        let mut serve = stage.farlock(&["serve", "--listen", "127.0.0.1:0", "--tls"]);
        let child = serve.arg(&dir).stderr(Stdio::piped()).spawn().unwrap();
        let mut serve = Serving { child, address: String::new() };
        let mut said = BufReader::new(serve.child.stderr.take().unwrap());
        let mut lines = [String::new(), String::new()];
        said.read_line(&mut lines[0]).unwrap();
        assert!(lines[0].contains("is served over TLS"), "{lines:?}");
        if says.is_none() {
            serve.kill();
        }
        said.read_line(&mut lines[1]).unwrap();
        assert_eq!(says.is_some_and(|says| lines[1].contains(says)), says.is_some(), "{lines:?}");
        assert_eq!(lines[1].is_empty(), says.is_none(), "{lines:?}");
    }
}

/// Clients that hold locks meanwhile hold them on.
#[test]
fn certificates_are_renewed_while_the_server_runs() {
    let stage = Stage::new();
    let maker = Maker::new();
    let dir = maker.make(&stage, "tls", SERVER, CLIENT);
    let server = serving(&stage, &dir);
    let session = Session::open(&by(&server, &dir)).unwrap();
    let guard = session.lock("a").exclusive().blocking().unwrap();
    let past = maker.make(&stage, "past", Like { days: (-3, -1), ..SERVER }, CLIENT);
    replace(&past, &dir);
    stage.until(|| Session::open(&by(&server, &dir)).is_err());
    assert_eq!(fault(&server, &dir), TlsFault::Expired);
    replace(&maker.make(&stage, "new", SERVER, CLIENT), &dir);
    stage.until(|| Session::open(&by(&server, &dir)).is_ok());
    assert!(guard.lost_reason().is_none());
    guard.release().blocking().unwrap();
}

fn revoke(stage: &Stage, dir: &Path, which: &str) -> (i32, String) {
    let dir = dir.to_str().unwrap();
    let (status, said, hints) = stage.run(&["tls", "revoke", which, "--dir", dir]);
    (status, said + &hints)
}

/// A client whose right was taken back is told that it holds nothing before another is granted, and
/// does not come back; nobody else notices.
#[test]
fn a_revoked_client_loses_what_it_holds_and_does_not_come_back() {
    let stage = Stage::new();
    let dir = init(&stage, "tls");
    for name in ["one", "other"] {
        let made = ["tls", "client", name, "--region", "default", "--dir", dir.to_str().unwrap()];
        assert_eq!(stage.run(&made).0, 0);
    }
    let (one, other) = (dir.join("one"), dir.join("other"));
    let serve = ["--listen", "127.0.0.1:0", "--lease", "2", "--tls", dir.to_str().unwrap()];
    let server = Serving::started(&stage, &serve);
    let open = |dir: &Path| Session::open(&by(&server, dir)).unwrap();
    let (revoked, kept) = (open(&one), open(&other));
    let kept = kept.lock("kept").exclusive().blocking().unwrap();
    let guard = revoked.lock("a").exclusive().blocking().unwrap();
    assert_eq!(revoke(&stage, &dir, "one").0, 0);
    let here = stage.session();
    let next = here.lock("a").exclusive().within(Duration::from_secs(10)).blocking().unwrap();
    assert_eq!(guard.lost_reason(), Some(LostReason::CertificateRevoked), "it was told before");
    assert!(next.token() > guard.token());
    assert_eq!(fault(&server, &one), TlsFault::ClientRevoked);
    assert!(said(&stage, &server.address, Some(&one)).contains("[tls-client-revoked]"));
    assert!(kept.lost_reason().is_none());
    kept.release().blocking().unwrap();
    // A new certificate gives the right back.
    std::fs::remove_dir_all(&one).unwrap();
    let made = ["tls", "client", "one", "--region", "default", "--dir", dir.to_str().unwrap()];
    assert_eq!(stage.run(&made).0, 0);
    drop(open(&one));
}

/// Breaks a file of a server's.
fn break_it(how: &str, dir: &Path) {
    let (certificate, key, authority) = ("server.pem", "server.key", "authority.pem");
    match how {
        "missing" => std::fs::remove_file(dir.join(certificate)).unwrap(),
        "half" => std::fs::write(dir.join(certificate), "-----BEGIN CERT").unwrap(),
        "exposed" => {
            std::fs::set_permissions(dir.join(key), Permissions::from_mode(0o644)).unwrap();
        }
        "mismatched" => drop(std::fs::copy(dir.join("client.key"), dir.join(key)).unwrap()),
        "no-authority" => std::fs::remove_file(dir.join(authority)).unwrap(),
        _ => std::fs::write(dir.join(authority), "-----BEGIN CERT").unwrap(),
    }
}

/// A server with files of its own of which one is broken, and a client that is revoked then.
fn revoked_while_broken(stage: &Stage, dir: &Path, how: &str) {
    // A region has one server.
    let (of_server, region) = (stage.file(how), format!("of-{how}"));
    let made = ["tls", "client", how, "--region", &region, "--dir", dir.to_str().unwrap()];
    assert_eq!(stage.run(&made).0, 0);
    std::fs::create_dir(&of_server).unwrap();
    for file in ["authority.pem", "server.pem", "server.key", "client.pem", "client.key"] {
        std::fs::copy(dir.join(file), of_server.join(file)).unwrap();
    }
    let serve = ["--listen", "127.0.0.1:0", "--region", &region, "--tls"];
    let server = Serving::started(stage, &[&serve[..], &[of_server.to_str().unwrap()]].concat());
    let client = dir.join(how);
    let session = Session::open(&by(&server, &client).named(&region)).unwrap();
    let guard = session.lock(how).exclusive().blocking().unwrap();
    break_it(how, &of_server);
    // It has seen what is wrong before it hears of the revocation.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(guard.lost_reason().is_none());
    assert_eq!(revoke(stage, dir, client.join("client.pem").to_str().unwrap()).0, 0);
    std::fs::copy(dir.join("revoked.pem"), of_server.join("revoked.pem")).unwrap();
    stage.until(|| guard.lost_reason().is_some());
    assert_eq!(fault(&server, &client), TlsFault::ClientRevoked, "{how}");
}

/// A server whose own certificate is just being replaced, or cannot be read any more, goes on by
/// the last one, and heeds what is revoked meanwhile.
#[test]
fn what_is_wrong_with_a_servers_certificate_gives_no_revoked_client_its_right_back() {
    let stage = Stage::new();
    let dir = init(&stage, "tls");
    std::thread::scope(|scope| {
        for how in ["missing", "half", "exposed", "mismatched", "no-authority", "half-authority"] {
            let (stage, dir) = (&stage, &dir);
            scope.spawn(move || revoked_while_broken(stage, dir, how));
        }
    });
}

#[test]
fn a_list_of_revoked_certificates_is_kept_whole() {
    let (stage, dir, server) = secured();
    let own = dir.join("client.pem");
    let (status, text) = revoke(&stage, &dir, "nobody");
    assert_eq!((status, text.contains("no certificate of a client")), (69, true), "{text}");
    assert!(!dir.join("revoked.pem").exists());
    let (status, text) = revoke(&stage, &dir, own.to_str().unwrap());
    assert_eq!((status, text.contains("has 1 revoked")), (0, true), "{text}");
    let (status, text) = revoke(&stage, &dir, own.to_str().unwrap());
    assert_eq!((status, text.contains("had them already")), (0, true), "{text}");
    let numbers: Vec<String> = (0..8).map(|number| format!("c{number}")).collect();
    for name in &numbers {
        let made = ["tls", "client", name, "--region", "*", "--dir", dir.to_str().unwrap()];
        assert_eq!(stage.run(&made).0, 0);
    }
    std::thread::scope(|scope| {
        for name in &numbers {
            scope.spawn(|| assert_eq!(revoke(&stage, &dir, name).0, 0));
        }
    });
    let is_revoked = |dir: &Path| fault(&server, dir) == TlsFault::ClientRevoked;
    stage.until(|| Session::open(&by(&server, &dir)).is_err());
    assert!(is_revoked(&dir) && numbers.iter().all(|name| is_revoked(&dir.join(name))));
    // One of another authority is not written down, and its list is not taken.
    let foreign = init(&stage, "foreign");
    let (status, text) = revoke(&stage, &dir, foreign.join("client.pem").to_str().unwrap());
    assert_eq!((status, text.contains("of an authority that is not known")), (69, true), "{text}");
    let list = std::fs::read(dir.join("revoked.pem")).unwrap();
    for wrong in [&list[..list.len() / 2], b"", &list] {
        std::fs::write(foreign.join("revoked.pem"), wrong).unwrap();
        let (status, _, text) =
            stage.run(&["serve", "--listen", "127.0.0.1:0", "--tls", foreign.to_str().unwrap()]);
        assert_eq!((status, text.contains("revoked.pem")), (69, true), "{text}");
    }
}

/// Clients have lists too, if they are given some.
#[test]
fn a_revoked_server_is_refused_by_clients_that_know_it() {
    let stage = Stage::new();
    let dir = init(&stage, "tls");
    assert_eq!(revoke(&stage, &dir, dir.join("server.pem").to_str().unwrap()).0, 0);
    let server = serving(&stage, &dir);
    assert_eq!(fault(&server, &dir), TlsFault::Revoked);
    let text = said(&stage, &server.address, Some(&dir));
    assert!(text.contains("[tls-server-revoked]"), "{text}");
}

/// Else it would show when the last certificate's time is over.
#[test]
fn a_renewal_that_failed_is_said() {
    let stage = Stage::new();
    let maker = Maker::new();
    let dir = maker.make(&stage, "tls", Like { days: (-1, 90), ..SERVER }, CLIENT);
    let other = Maker::new().make(&stage, "other", SERVER, CLIENT);
    let past = maker.make(&stage, "past", Like { days: (-3, -1), ..SERVER }, CLIENT);
    let mut serve = stage.farlock(&["serve", "--listen", "127.0.0.1:0", "--tls"]);
    let mut child = serve.arg(&dir).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let (tells, said) = channel();
    std::thread::spawn(move || lines.take_while(|line| tells.send(line.clone()).is_ok()).count());
    let address = said.recv().unwrap().rsplit(' ').next().unwrap().to_owned();
    let mut server = Serving { child, address };
    let says = |what: &str| {
        let begun = Instant::now();
        loop {
            // It looks when a client comes, which is served by what was read before.
            let opened = Session::open(&by(&server, &dir));
            if let Ok(line) = said.recv_timeout(Duration::from_millis(50)) {
                assert!(line.contains("no good") && line.contains(what), "{line}");
                assert!(said.recv().unwrap().contains("hint: "));
                return opened.is_ok();
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "it says nothing of {what}");
        }
    };
    std::fs::copy(other.join("server.key"), dir.join("server.key")).unwrap();
    assert!(says("server.key"), "what was read before goes on");
    replace(&past, &dir);
    says("has expired");
    server.kill();
}

#[test]
fn a_side_that_speaks_no_tls_is_told() {
    // A region has one server.
    let (stage, other) = (Stage::new(), Stage::new());
    let dir = init(&stage, "tls");
    let (plain, secured) = (Serving::on(&other), serving(&stage, &dir));
    assert_eq!(fault(&plain, &dir), TlsFault::NotSpoken);
    assert!(said(&stage, &plain.address, Some(&dir)).contains("[tls-not-spoken]"));
    let refused = Session::open(&secured.options());
    let wanted = matches!(
        refused,
        Err(SessionError::Connect(ConnectError::Tls { why: TlsFault::Wanted, .. }))
    );
    assert!(wanted, "{refused:?}");
    assert!(said(&stage, &secured.address, None).contains("[tls-wanted]"));
    let address = secured.address.clone();
    for (server, tls) in
        [(format!("tls://{address}"), None), (format!("tcp://{address}"), Some(&dir))]
    {
        let mut lock = stage.farlock(&["lock", "--server", &server]);
        if let Some(dir) = tls {
            lock.arg("--tls").arg(dir);
        }
        let (status, _, said) = stage::ended(lock.args(["a", "--", "true"]).output().unwrap());
        assert_eq!((status, said.contains("[usage]")), (64, true), "{said}");
    }
}

#[test]
fn files_that_are_not_right_are_named() {
    let (stage, dir, server) = secured();
    let own = stage.file("own");
    let bad = |change: &dyn Fn(&Path)| {
        let _ = std::fs::remove_dir_all(&own);
        std::fs::create_dir(&own).unwrap();
        for name in ["authority.pem", "client.pem", "client.key", "server.pem", "server.key"] {
            std::fs::copy(dir.join(name), own.join(name)).unwrap();
        }
        change(&own);
        let said = said(&stage, &server.address, Some(&own));
        assert!(said.contains("[tls-file]"), "{said}");
        match Session::open(&by(&server, &own)) {
            Err(SessionError::Connect(ConnectError::TlsFile { why, path })) => {
                assert!(said.contains(path.to_str().unwrap()), "{said}");
                why
            }
            other => panic!("{other:?}"),
        }
    };
    for name in ["authority.pem", "client.pem", "client.key"] {
        let missing = bad(&|own| std::fs::remove_file(own.join(name)).unwrap());
        assert!(matches!(missing, TlsFileFault::Missing), "{name}: {missing:?}");
        for text in ["", "noise", "-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n"] {
            let damaged = bad(&|own| std::fs::write(own.join(name), text).unwrap());
            assert!(matches!(damaged, TlsFileFault::Damaged), "{name}: {damaged:?}");
        }
    }
    let directory = bad(&|own| {
        std::fs::remove_file(own.join("client.pem")).unwrap();
        std::fs::create_dir(own.join("client.pem")).unwrap();
    });
    assert!(matches!(directory, TlsFileFault::Unreadable(_)), "{directory:?}");
    let open = |mode| {
        move |own: &Path| {
            let key = own.join("client.key");
            std::fs::set_permissions(key, Permissions::from_mode(mode)).unwrap();
        }
    };
    for mode in [0o640, 0o604] {
        let exposed = bad(&open(mode));
        assert!(matches!(exposed, TlsFileFault::Exposed { mode: of } if of == mode), "{exposed:?}");
    }
    let other = bad(&|own| {
        std::fs::copy(dir.join("server.key"), own.join("client.key")).unwrap();
    });
    assert!(matches!(other, TlsFileFault::OtherKey), "{other:?}");
    // A server says the same of its own.
    open(0o644)(&own);
    std::fs::remove_file(own.join("server.pem")).unwrap();
    let (status, _, said) =
        stage.run(&["serve", "--listen", "127.0.0.1:0", "--tls", own.to_str().unwrap()]);
    assert_eq!((status, said.contains("[tls-file]")), (69, true), "{said}");
    let options = stage.options();
    let refused = Server::bind_tls("127.0.0.1:0", &options, &TlsFiles::of_server(&own));
    assert!(matches!(refused, Err(SessionError::Connect(ConnectError::TlsFile { .. }))));
}

/// A certificate as `openssl x509 -req` makes them that is told of no extension.
const WITHOUT_EXTENSIONS: &str = "\
-----BEGIN CERTIFICATE-----
MIIBFTCBuwIUWfLc9/qiNPtHAQclQamXG3kqElswCgYIKoZIzj0EAwIwDDEKMAgG
A1UEAwwBeDAgFw0yNjExMjcxNTI0MjhaGA8yMTI2MTEwMzE1MjQyOFowDDEKMAgG
A1UEAwwBeDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABBCD+CiKDZPc5cAnVPol
8OG5yC82mOItyCQmmibuunBjpqZ7DV+G+c6Qrop/8k8oqaONVUaysNvKKJYt1QN2
G5IwCgYIKoZIzj0EAwIDSQAwRgIhAN0dQV0ctZxoNj9EAMfW/x6IGC/WlApUOC9+
dqOvUt9eAiEA31rUMFsD2sKo6zSRMsHo00jDq1vWZcFz5Qh1mTbOd/0=
-----END CERTIFICATE-----
";

/// It was called damaged.
#[test]
fn a_certificate_without_extensions_is_called_so() {
    let (stage, dir, server) = secured();
    for side in ["client.pem", "server.pem"] {
        std::fs::write(dir.join(side), WITHOUT_EXTENSIONS).unwrap();
    }
    let dir = dir.to_str().unwrap();
    for command in [
        &["ls", "--server", &server.address, "--tls", dir][..],
        &["serve", "--listen", "127.0.0.1:0", "--tls", dir, "--region", "other"],
    ] {
        let (status, _, said) = stage.run(command);
        assert_eq!((status, said.contains("[tls-file]")), (69, true), "{said}");
        assert!(said.contains("it is a certificate without extensions"), "{said}");
        assert!(said.contains("-extfile"), "{said}");
    }
}

/// Half of a pair, and files of nothing, were in the way of the next one.
#[test]
fn what_cannot_be_written_whole_leaves_nothing() {
    let stage = Stage::new();
    let (dir, farlock) = (stage.file("tls"), env!("CARGO_BIN_EXE_farlock"));
    // As on a full disk: no file can have a byte.
    let line = format!("trap '' XFSZ; ulimit -f 0; {farlock} tls init {}", dir.display());
    let failed = stage.program("sh").args(["-c", &line]).output().unwrap();
    let (status, _, said) = stage::ended(failed);
    assert_eq!(status, 71, "{said}");
    let left = std::fs::read_dir(&dir).map_or(0, Iterator::count);
    assert_eq!(left, 0, "{said}");
    init(&stage, "tls");
}

#[test]
fn what_is_made_is_never_overwritten_and_keys_are_secret() {
    let stage = Stage::new();
    let dir = init(&stage, "tls");
    let at = dir.to_str().unwrap();
    let contents = || {
        let names = ["authority", "server", "client"];
        let all = names.iter().flat_map(|name| [format!("{name}.pem"), format!("{name}.key")]);
        all.map(|name| std::fs::read(dir.join(name)).unwrap()).collect::<Vec<_>>()
    };
    let before = contents();
    for arguments in [vec!["tls", "init", at], vec!["tls", "server", at]] {
        let (status, _, said) = stage.run(&arguments);
        assert_eq!((status, said.contains("[tls-exists]")), (1, true), "{said}");
        assert!(said.contains("hint: "), "{said}");
    }
    assert_eq!(contents(), before);
    for name in ["authority.key", "server.key", "client.key"] {
        assert_eq!(dir.join(name).metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    let client = ["tls", "client", "web1", "--region", "default", "--dir", at];
    assert_eq!(stage.run(&client).0, 0);
    assert_eq!(stage.run(&client).0, 1);
    assert_eq!(dir.join("web1/client.key").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!dir.join("web1/authority.key").exists());
    for (arguments, status) in [
        (vec!["tls", "client", "web2", "--dir", at], 64),
        (vec!["tls", "client", "../web2", "--region", "r", "--dir", at], 64),
        (vec!["tls", "init", at, "--host", "db1:4747"], 64),
        (vec!["tls", "client", "web2", "--region", "r", "--dir", "/nowhere"], 69),
    ] {
        let (ended, _, said) = stage.run(&arguments);
        assert_eq!(ended, status, "{arguments:?}: {said}");
    }
    // The time of a server's certificate is over: another one is made, and clients stay.
    for name in ["server.pem", "server.key"] {
        std::fs::rename(dir.join(name), dir.join(format!("{name}.old"))).unwrap();
    }
    assert_eq!(stage.run(&["tls", "server", at]).0, 0);
    let server = serving(&stage, &dir);
    drop(Session::open(&by(&server, &dir.join("web1"))).unwrap());
}

/// A client that begins to shake hands and goes no further keeps no other waiting; nor does noise.
#[test]
fn a_handshake_that_does_not_go_on_costs_its_own_connection_alone() {
    let (_stage, dir, server) = secured();
    let mut hello = Vec::new();
    greeting_of_tls(&dir).write_tls(&mut hello).unwrap();
    let begin = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let half: Vec<_> = (0..100).map(|at| begin(&hello[..at * hello.len() / 100])).collect();
    // Those that were greeted, and do not answer.
    let silent: Vec<_> = (0..100).map(|_| begin(&hello)).collect();
    let noise: Vec<_> = (0..100_u8).map(|at| begin(&[0x16, 3, 1, 0, 9, at, at, at])).collect();
    let begun = Instant::now();
    let session = Session::open(&by(&server, &dir)).unwrap();
    for _ in 0..20 {
        session.lock("a").exclusive().blocking().unwrap().release().blocking().unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    drop((half, silent, noise));
}

/// A client of TLS that shows no certificate.
fn greeting_of_tls(dir: &Path) -> rustls::ClientConnection {
    use rustls::pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    let authority = rustls::pki_types::CertificateDer::from_pem_file(dir.join("authority.pem"));
    roots.add(authority.unwrap()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    rustls::ClientConnection::new(Arc::new(config), name).unwrap()
}

#[test]
fn a_client_without_a_certificate_is_told_so() {
    let (_stage, dir, server) = secured();
    let mut tls = greeting_of_tls(&dir);
    let mut tcp = TcpStream::connect(&server.address).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
    let refused = stream.read(&mut [0; 64]).unwrap_err().to_string();
    assert!(refused.contains("CertificateRequired"), "{refused}");
}
