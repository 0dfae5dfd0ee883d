//! What a child made by `fork` can do with the sessions it inherits: nothing, and do no harm.
//!
//! The standard library has no `fork`, hence the unsafe block.

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]
#![allow(unsafe_code)]

mod stage;

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::task::{Context, Waker};
use std::time::Duration;

use farlock::{AcquireError, KvError, LostReason, RegionOptions, ReleaseError, Session};
use stage::Stage;
use stage::serving::Serving;

/// Set for a process that runs one test of this file, and no other.
const PART: &str = "FARLOCK_TEST_PART";

/// Runs this in a forked child, which is killed after 10 s. Returns its exit status.
fn in_child(run: impl FnOnce()) -> i32 {
    // SAFETY: the child runs `run` alone and ends by `_exit`. It calls the allocator, which the C
    // library makes fit for use after `fork`, and takes no lock that another thread may have had.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it asks the system for a signal, later.
        unsafe { libc::alarm(10) };
        let status = i32::from(catch_unwind(AssertUnwindSafe(run)).is_err());
        // SAFETY: it ends the process.
        unsafe { libc::_exit(status) };
    }
    assert!(child > 0, "{}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: `status` is there to be written.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

#[test]
fn what_a_child_inherits_is_refused_and_harms_nobody() {
    let stage = Stage::new();
    let (session, other) = (stage.session(), stage.session());
    let guard = session.lock("t").exclusive().blocking().unwrap();
    let shared = session.lock("u").shared().blocking().unwrap();
    let mut waiting = pin!(Some(session.lock("t").exclusive().acquire()));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().as_pin_mut().unwrap().poll(&mut cx).is_pending());
    let busy = other.lock("t").exclusive().at_once().blocking().unwrap_err();

    let status = in_child(|| {
        let lock = session.lock("u");
        let asked = [
            lock.exclusive().blocking(),
            lock.shared().at_once().blocking(),
            lock.shared().within(Duration::from_millis(1)).blocking(),
            session.lock("another").exclusive().blocking(),
        ];
        for refused in asked {
            assert!(matches!(refused, Err(AcquireError::Forked { .. })), "{refused:?}");
        }
        assert_eq!(guard.lost_reason(), Some(LostReason::Forked));
        assert!(busy.to_string().contains("taken"));
        let shared = shared.try_upgrade().unwrap_err().downgrade();
        let released = shared.release().blocking();
        let Err(ReleaseError::Lost { reason: LostReason::Forked, .. }) = released else {
            panic!("{released:?}");
        };
        waiting.set(None);
        drop((guard, lock, session, other));
        // A session of its own is as good as anybody's.
        let own = Session::open(&stage.options()).unwrap();
        assert!(own.lock("t").exclusive().at_once().blocking().is_err());
        assert!(own.lock("v").exclusive().at_once().blocking().is_ok());
        drop(own);
    });
    assert_eq!(status, 0);
}

#[test]
fn a_parent_goes_on_as_if_there_had_been_no_child() {
    let stage = Stage::new();
    let (session, other) = (stage.session(), stage.session());
    let guard = session.lock("t").exclusive().blocking().unwrap();
    let clone = session.clone();
    assert_eq!(in_child(move || drop(clone)), 0);
    assert!(other.lock("t").shared().at_once().blocking().is_err());
    guard.release().blocking().unwrap();
    let guard = other.lock("t").exclusive().at_once().blocking().unwrap();
    guard.release().blocking().unwrap();
    assert!(session.lock("t").exclusive().at_once().blocking().is_ok());
}

/// Of a process that has never used a region of its own host.
#[test]
fn what_a_child_inherits_of_a_session_by_a_server_is_refused_too() {
    let part = "what_is_inherited_of_a_session_by_a_server";
    let mut itself = Command::new(std::env::current_exe().unwrap());
    itself.args(["--exact", part, "--nocapture"]).env(PART, part);
    let ended = itself.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Does nothing in the test run itself.
#[test]
fn what_is_inherited_of_a_session_by_a_server() {
    if std::env::var_os(PART).is_none() {
        return;
    }
    let (_stage, server) = Serving::alone();
    let (session, other) = (server.session(), server.session());
    let mut guard = Some(session.lock("t").exclusive().blocking().unwrap());
    let mut range = Some(session.range("r").exclusive(0..9).blocking().unwrap());
    let mut store = Some(session.kv("s").unwrap());
    store.as_ref().unwrap().put("key", "parent").unwrap();
    let mut of_tasks = Some(session.kv("s").unwrap().into_async().unwrap());
    stage::block_on(of_tasks.as_ref().unwrap().get("key")).unwrap();
    let mut inherited = Some(session);
    let status = in_child(|| {
        let (guard, range) = (guard.take().unwrap(), range.take().unwrap());
        let (store, session) = (store.take().unwrap(), inherited.take().unwrap());
        let of_tasks = of_tasks.take().unwrap();
        assert_eq!(guard.lost_reason(), Some(LostReason::Forked));
        for asked in [session.lock("u").exclusive(), session.lock("t").shared().at_once()] {
            let refused = asked.blocking();
            assert!(matches!(refused, Err(AcquireError::Forked { .. })), "{refused:?}");
        }
        for released in [guard.release().blocking(), range.release().blocking()] {
            let Err(ReleaseError::Lost { reason: LostReason::Forked, .. }) = released else {
                panic!("{released:?}");
            };
        }
        store.put("key", "child").unwrap_err();
        store.get("key").unwrap_err();
        let refused = stage::block_on(of_tasks.get("key"));
        assert!(matches!(refused, Err(KvError::Forked)), "{refused:?}");
        assert!(matches!(of_tasks.handle(), Err(KvError::Forked)));
        drop((store, of_tasks, session));
        let own = server.session();
        assert!(own.lock("t").exclusive().at_once().blocking().is_err());
        assert!(own.lock("v").exclusive().at_once().blocking().is_ok());
    });
    assert_eq!(status, 0);
    other.lock("t").shared().at_once().blocking().unwrap_err();
    other.range("r").shared(3..4).at_once().blocking().unwrap_err();
    assert_eq!(store.unwrap().get("key").unwrap().unwrap(), b"parent");
    guard.unwrap().release().blocking().unwrap();
    range.unwrap().release().blocking().unwrap();
    drop(other.lock("t").exclusive().at_once().blocking().unwrap());
}

/// A child of a killed process has its connection, which so does not end.
#[test]
fn what_a_killed_process_held_by_a_server_is_granted_though_its_child_lives() {
    let stage = Stage::new();
    for closed in ["auto", "death"] {
        let server =
            Serving::listening(&stage, "127.0.0.1:0", &["--lease", "2", "--closed", closed]);
        let part = "a_process_that_forks_and_is_killed";
        let mut itself = Command::new(std::env::current_exe().unwrap());
        itself.args(["--exact", part, "--nocapture"]).env(PART, &server.address);
        let mut holder = itself.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "holds"));
        let other = server.session();
        assert!(other.lock("t").exclusive().at_once().blocking().is_err());
        holder.kill().unwrap();
        holder.wait().unwrap();
        // The child lives for longer.
        drop(other.lock("t").exclusive().within(Duration::from_secs(5)).blocking().unwrap());
    }
}

/// Does nothing in the test run itself.
#[test]
fn a_process_that_forks_and_is_killed() {
    let Some(address) = std::env::var_os(PART).filter(|part| part.to_string_lossy().contains(':'))
    else {
        return;
    };
    let options = RegionOptions::of_server(address.to_string_lossy());
    let _guard = Session::open(&options).unwrap().lock("t").exclusive().blocking().unwrap();
    in_child(|| {
        println!("\nholds");
        std::thread::sleep(Duration::from_secs(8));
    });
}
