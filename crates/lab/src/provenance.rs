//! Where a figure comes from: the text, the machine.

use serde::{Deserialize, Serialize};

/// What a row says of its origin.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Provenance {
    /// The commit this program was built from, with a `+` if the tree had changes.
    pub commit: String,
    /// The processor.
    pub cpu: String,
    /// The cores this process may run on.
    pub cores: usize,
}

impl Provenance {
    /// Of a program that was built from this commit, on this machine.
    pub fn of(commit: &str) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { commit: commit.to_owned(), cpu: cpu(), cores }
    }
}

/// The model name as the kernel knows it.
fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    model.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}
