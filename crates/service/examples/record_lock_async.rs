//! A lock in async code, on any executor: here the smallest there is.
//!
//! Run it with `cargo run --package farlock --example record_lock_async`.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};

use farlock::{RegionOptions, Session};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, which sleeps until it is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("farlock-example-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let options = RegionOptions::new(dir.join("regions"), dir.join("state"));
    let result = block_on(run(&options));
    std::fs::remove_dir_all(dir)?;
    result
}

async fn run(options: &RegionOptions) -> Result<(), Box<dyn Error>> {
    let session = Session::open(options)?;
    let lock = session.lock("index");

    // Readers share.
    let one = lock.shared().await?;
    let two = lock.shared().await?;
    println!("two readers at once, tokens {} and {}", one.token(), two.token());

    // A writer waits for them; an acquisition that is dropped has never been there.
    let mut impatient = pin!(lock.exclusive().into_future());
    let is_waiting = poll_fn(|cx| Poll::Ready(impatient.as_mut().poll(cx).is_pending())).await;
    assert!(is_waiting);
    one.release().await?;
    two.release().await?;
    let writer = impatient.await?;
    println!("then a writer, token {}", writer.token());

    // Work, and stop if the lock is lost: in shared memory, only if its region is removed.
    let mut lost = pin!(writer.lost());
    let work = async { 6 * 7 };
    let mut work = pin!(work);
    let answer = poll_fn(|cx| {
        if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
            return Poll::Ready(Err(reason));
        }
        work.as_mut().poll(cx).map(Ok)
    })
    .await?;
    println!("the work is done: {answer}");
    writer.release().await?;
    Ok(())
}
