//! Many processes update parts of one file and append to it, each under the range that it touches.
//!
//! Run it as often as you like at the same time, with the same file:
//! `cargo run --package farlock --example range_lock ledger.dat 100`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use farlock::{RegionOptions, Session};

/// Bytes of a row, and the unit in which the file is locked.
const ROW: u64 = 64;
/// Rows that are updated; what is appended lies behind them.
const ROWS: u64 = 1_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .unwrap_or_else(|| std::env::temp_dir().join("ledger.dat").to_string_lossy().into_owned());
    let rounds: u64 = arguments.next().map_or(Ok(100), |rounds| rounds.parse())?;
    let file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
    let session = Session::open(&RegionOptions::for_user())?;
    let rows = session.range(&path).in_units_of(ROW);
    for round in 0..rounds {
        // Those that update other rows run at the same time.
        let at = (u64::from(std::process::id()) + round * 7) % ROWS * ROW;
        let guard = rows.exclusive(at..at + ROW).blocking()?;
        let mut count = [0; 8];
        let had = file.read_at(&mut count, at)?;
        let count = if had == count.len() { u64::from_le_bytes(count) } else { 0 };
        file.write_all_at(&(count + 1).to_le_bytes(), at)?;
        guard.release().blocking()?;
    }
    // The end of the file is everybody's.
    let guard = rows.exclusive(ROWS * ROW..).blocking()?;
    let end = file.metadata()?.len().max(ROWS * ROW);
    let mut line = format!("process {} has done {rounds}", std::process::id()).into_bytes();
    line.resize(ROW as usize, b' ');
    file.write_all_at(&line, end)?;
    println!("wrote its line at {end}, with token {}", guard.token());
    Ok(guard.release().blocking()?)
}
