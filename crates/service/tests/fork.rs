//! What a child made by `fork` can do with the sessions it inherits: nothing, and do no harm.
//!
//! The standard library has no `fork`, hence the unsafe block.

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]
#![allow(unsafe_code)]

mod stage;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use farlock::{AcquireError, LostReason, ReleaseError, Session};
use stage::Stage;

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
