//! Specification: endpoints of shared memory, and lanes, keep the fabric's contract.
#![cfg(all(feature = "shm", feature = "conformance", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

#[path = "shm_support/mod.rs"]
mod support;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use farlock_fabric::conformance::Stage;
use farlock_fabric::hook::Hook;
use farlock_fabric::shm::{Keeper, Lane, Region, ShmEndpoint};
use farlock_fabric::{Addr, Park, block_on};
use support::TestDir;

/// A region in a directory of its own, its heap handed out from the start.
struct Shared<E> {
    dir: TestDir,
    region: Region,
    attach: fn(&Region) -> E,
    used: u64,
}

impl<E> Shared<E> {
    fn new(attach: fn(&Region) -> E) -> Self {
        static STAGES: AtomicUsize = AtomicUsize::new(0);
        let number = STAGES.fetch_add(1, Ordering::Relaxed);
        let dir = TestDir::new(&format!("conformance-{number}"));
        let region = dir.region();
        Self { dir, region, attach, used: 0 }
    }
}

impl<E: Park> Stage for Shared<E> {
    type Endpoint = E;

    fn endpoint(&mut self) -> E {
        (self.attach)(&self.region)
    }

    fn scratch(&mut self, bytes: u64) -> Addr {
        let (heap, heap_bytes) = self.region.heap();
        let addr = heap.plus(self.used);
        self.used += bytes.next_multiple_of(64);
        assert!(self.used < heap_bytes, "the heap is large enough for every case");
        addr
    }

    /// Endpoints of one thread cannot park for each other, so this looks and yields; the members
    /// of a crowd park.
    fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return output;
            }
            std::thread::yield_now();
        }
    }

    fn end(&self) -> Addr {
        let (heap, bytes) = self.region.heap();
        heap.plus(bytes)
    }

    fn reset(&mut self) -> bool {
        self.region = Region::reset(&self.dir.options()).unwrap();
        true
    }

    /// A thread each.
    fn crowd(&mut self, size: usize, member: impl AsyncFn(&E, usize) + Sync) {
        let (region, attach, member) = (&self.region, self.attach, &member);
        std::thread::scope(|scope| {
            for number in 0..size {
                scope.spawn(move || {
                    let endpoint = attach(region);
                    block_on(&endpoint, member(&endpoint, number));
                });
            }
        });
    }
}

/// A lane and its keeper as one endpoint.
struct WithKeeper {
    lane: Lane,
    _keeper: Keeper,
}

impl Hook for WithKeeper {
    type Inner = Lane;

    fn inner(&self) -> &Lane {
        &self.lane
    }
}

mod endpoints {
    use super::*;

    fn attach(region: &Region) -> ShmEndpoint {
        region.endpoint().unwrap()
    }

    farlock_fabric::conformance!(Shared::new(attach));
}

mod lanes {
    use super::*;

    fn attach(region: &Region) -> WithKeeper {
        let (lane, keeper) = region.lane(false).unwrap();
        WithKeeper { lane, _keeper: keeper }
    }

    farlock_fabric::conformance!(Shared::new(attach));
}
