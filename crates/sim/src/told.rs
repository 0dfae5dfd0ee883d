//! What a task was told, as a number: its code is deterministic, so it is where its answers have
//! led it.

use std::panic::Location;

use crate::history::mix;

/// What a task was told, as far as it may still matter.
#[derive(Default)]
pub(crate) struct TaskMemory {
    pub(crate) hash: u64,
    /// The loops that it is in, outermost first: where, and the hash when it was entered.
    pub(crate) loops: Vec<(&'static Location<'static>, u64)>,
}

impl TaskMemory {
    pub(crate) fn checkpoint(&mut self, place: &'static Location<'static>, survivors: &[u64]) {
        let entered = match self.loops.iter().position(|&(other, _)| other == place) {
            Some(depth) => {
                self.loops.truncate(depth + 1);
                self.loops[depth].1
            }
            None => {
                self.loops.push((place, self.hash));
                self.hash
            }
        };
        let place = u64::from(place.line()) << 32 | place.file().len() as u64;
        self.hash = survivors.iter().fold(mix(entered, place), |hash, &word| mix(hash, word));
    }

    /// Loops within the outermost one may be entered again in the same turn of it. What was told in
    /// them so far is kept.
    pub(crate) fn goes_on(&mut self) {
        self.loops.truncate(1);
    }
}
