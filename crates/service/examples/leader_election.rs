//! Leader election: the holder of the lock leads. When the leader is killed, the next in line
//! leads within microseconds, with a higher term.
//!
//! Run it with `cargo run --package farlock --example leader_election`. It starts itself several
//! times as candidates, kills three leaders, and ends.

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use farlock::{RegionOptions, Session};

const CANDIDATES: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    if let [_, dir] = std::env::args().collect::<Vec<_>>().as_slice() {
        return stand(&options(dir));
    }
    let dir = std::env::temp_dir().join(format!("farlock-example-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let result = elect(&dir.to_string_lossy());
    std::fs::remove_dir_all(dir)?;
    result
}

fn options(dir: &str) -> RegionOptions {
    RegionOptions::new(format!("{dir}/regions"), format!("{dir}/state")).labelled("candidate")
}

/// A candidate: waits for its turn and leads until it ends. The token is its term: followers and
/// storage that remember the highest term refuse a leader that does not know its time is over.
fn stand(options: &RegionOptions) -> Result<(), Box<dyn Error>> {
    let session = Session::open(options)?;
    let leadership = session.lock("leader").exclusive().blocking()?;
    println!("{}", leadership.token());
    // Leads until it is killed, or its input ends because nobody elects any more.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(leadership.release().blocking()?)
}

fn elect(dir: &str) -> Result<(), Box<dyn Error>> {
    let (send, terms) = mpsc::channel();
    let start = |number: usize| -> Result<Child, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().ok_or("its output was asked for")?;
        let send = send.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = send.send((number, line, Instant::now()));
            }
        });
        Ok(child)
    };
    let mut candidates = (0..CANDIDATES).map(start).collect::<Result<Vec<_>, _>>()?;

    let (mut last_term, mut killed) = (0_u64, None::<Instant>);
    for turn in 0..CANDIDATES {
        let (leader, term, at) = terms.recv_timeout(Duration::from_secs(10))?;
        let term: u64 = term.parse()?;
        let after = killed.map(|killed| format!(", {:?} after the last was killed", at - killed));
        println!("candidate {leader} leads in term {term}{}", after.unwrap_or_default());
        assert!(term > last_term, "terms increase");
        last_term = term;
        if turn + 1 < CANDIDATES {
            // So that all candidates are in line, and the time taken is that of the take-over.
            std::thread::sleep(Duration::from_millis(200));
            killed = Some(Instant::now());
            candidates[leader].kill()?;
        }
    }
    for mut candidate in candidates {
        drop(candidate.stdin.take());
        candidate.wait()?;
    }
    Ok(())
}
