//! Holds a lock of the region that the command line uses too: while this waits for a line or the
//! end of its input, `farlock ls` lists it.
//!
//! Run it with `cargo run --package farlock --example hold`.

use farlock::{RegionOptions, Session};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let session = Session::open(&RegionOptions::from_env()?)?;
    let guard = session.lock("example").exclusive().blocking()?;
    println!("held, with token {}", guard.token());
    std::io::stdin().read_line(&mut String::new())?;
    guard.release().blocking()?;
    Ok(())
}
