//! What the figures of all measurements here have in common.

use anyhow::{Context, bail};

use super::array::SLOTS;

/// The most threads.
pub(super) const THREADS_MAX: i64 = SLOTS as i64;

/// On fewer cores nothing can be said of scaling.
const CORES_TELLING: usize = 4;

/// Says how many cores there are, and what that means.
pub(super) fn warn_of_few_cores(cores: usize, threads: &[u16]) {
    eprintln!("cores: {cores}");
    if cores < CORES_TELLING {
        eprintln!("warning: {cores} cores show no scaling, only what sharing and waiting cost");
    }
    if threads.iter().any(|&count| usize::from(count) > cores) {
        eprintln!(
            "warning: with more threads than cores, locks that only spin wait for the kernel"
        );
    }
}

/// The middle one; of an even number the upper middle one.
pub(super) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The entries with these names, or all.
pub(super) fn chosen<T>(
    table: &'static [T],
    name: fn(&T) -> &'static str,
    names: &[String],
) -> anyhow::Result<Vec<&'static T>> {
    if names.iter().any(|name| name == "all") {
        return Ok(table.iter().collect());
    }
    if names.is_empty() {
        bail!("no lock to measure");
    }
    let known = || table.iter().map(name).collect::<Vec<_>>().join(", ");
    let find = |wanted: &String| {
        let entry = table.iter().find(|entry| name(entry) == wanted);
        entry.with_context(|| format!("no lock is called {wanted}; there are {}", known()))
    };
    names.iter().map(find).collect()
}
