//! Whether this process is a child made by `fork` since something was made.
//!
//! A child shares its parent's regions, endpoints, lanes and connections, and may use none of them:
//! the places are its parent's. What keeps such a thing compares the count of when it was made with
//! the count of now.
//!
//! This is the one piece of global state of shared memory. What it tells is a fact about the
//! process, and only the process can be told of it: `pthread_atfork` takes a function without an
//! argument. A child made by a bare `clone` system call goes unnoticed.
#![allow(unsafe_code)]

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static FORKS: AtomicU64 = AtomicU64::new(0);

/// A number that is another in a child made by `fork`, from the first region opened on, of this
/// host or by a server. One load: cheap enough for every acquisition of a session, which refuses
/// what was inherited.
#[inline]
pub fn fork_count() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Counts from now on. Every region is opened behind this, by a server too.
pub(crate) fn watch() -> io::Result<()> {
    static REGISTERED: OnceLock<i32> = OnceLock::new();
    // SAFETY: the handler is a function of this program, and does nothing that a child made by
    // `fork` may not do between that and `exec`: it adds to an atomic.
    let failed = *REGISTERED
        .get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(count_in_child)) });
    if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
}

extern "C" fn count_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::super::testing::TestDir;
    use super::super::{Options, Region};
    use super::*;
    use crate::endpoint::{Endpoint, Posted};
    use crate::error::ConnectError;
    use crate::verb::Verb;

    const PART: &str = "FARLOCK_TEST_FORKS";

    /// Runs this in a forked child, which is killed after 10 s. Returns its exit status.
    fn in_child(part: impl FnOnce() -> i32) -> i32 {
        // SAFETY: this process has no other thread, so none holds a lock that the child takes.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: both end this process, at the latest after so many seconds.
            unsafe {
                libc::alarm(10);
                libc::_exit(part());
            }
        }
        let mut status = 0;
        // SAFETY: the status is written to a local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status
    }

    /// In a process of its own, which has one thread.
    #[test]
    fn a_child_is_told_apart_and_disturbs_nobody() {
        let this = "shm::fork::tests::what_is_inherited";
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this, "--test-threads=1", "--nocapture"])
            .env(PART, "yes")
            .stdout(Stdio::null())
            .status();
        assert!(status.unwrap().success());
    }

    /// Does nothing in the test run itself.
    #[test]
    fn what_is_inherited() {
        if std::env::var_os(PART).is_none() {
            return;
        }
        let dir = TestDir::new("fork");
        let mut options = Options::new(dir.path().join("shm"), dir.path().join("state"), "test");
        options.endpoints = 8;
        let region = Region::open(&options).unwrap();
        let endpoint = region.endpoint().unwrap();
        let (lane, keeper) = region.lane(true).unwrap();
        let (before, ids) = (fork_count(), (endpoint.id(), lane.id()));
        let mut inherited = Some((endpoint, lane, keeper));
        let status = in_child(|| {
            let is_counted = fork_count() != before;
            let is_refused = matches!(region.endpoint(), Err(ConnectError::System { .. }));
            let is_shut = region.grow(1).is_err();
            drop(inherited.take());
            // A region of its own is for the child as for anybody.
            let is_able = Region::open(&options).is_ok_and(|own| own.endpoint().is_ok());
            i32::from(!(is_counted && is_refused && is_shut && is_able))
        });
        assert_eq!(status, 0);
        assert_eq!(fork_count(), before, "the parent is the same process");

        let (endpoint, lane, keeper) = inherited.unwrap();
        assert!(endpoint.is_alive(ids.1) && lane.is_alive(ids.0));
        let addr = region.heap().0;
        assert_eq!(lane.post(Verb::Faa64 { addr, add: 1 }), Posted::Done(Ok(())));
        assert_eq!(endpoint.post(Verb::Faa64 { addr, add: 1 }), Posted::Done(Ok(())));
        // The place is still marked: the child has not taken the mark away.
        drop(keeper);
        let others: Vec<_> = std::iter::from_fn(|| region.endpoint().ok()).collect();
        assert!(others.iter().all(|other| other.id().index != ids.1.index));
        assert_eq!(others.len(), 6);
    }
}
