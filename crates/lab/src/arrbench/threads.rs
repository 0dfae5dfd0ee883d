//! Threads that begin together and stop when the time is over.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What so many threads did until the time was over, and how long that took. Each is told its
/// number, waits for all at the barrier, and goes on until it is to stop.
pub(super) fn at_once<T: Send>(
    threads: u16,
    time: Duration,
    run: impl Fn(u16, &Barrier, &AtomicBool) -> T + Sync,
) -> (Vec<T>, Duration) {
    let (start, stop) = (Barrier::new(usize::from(threads) + 1), AtomicBool::new(false));
    thread::scope(|scope| {
        let (start, stop, run) = (&start, &stop, &run);
        let begin = |number| scope.spawn(move || run(number, start, stop));
        let threads: Vec<_> = (0..threads).map(begin).collect();
        start.wait();
        let began = Instant::now();
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let joined = threads.into_iter().map(|thread| thread.join().expect("threads only count"));
        (joined.collect(), began.elapsed())
    })
}
