//! Which cores clients run on. Where a system has fewer cores than clients, who shares one decides
//! more about a contended lock than the lock does, so it is forced and recorded.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where clients run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Placement {
    /// One after the other on the cores there are, round robin.
    Spread,
    /// All on one core.
    One,
    /// Where the system puts them.
    Free,
}

impl Placement {
    /// The cores to use in turn; none where the system chooses.
    pub fn cores(self) -> std::io::Result<Vec<usize>> {
        let allowed = sched_getaffinity(None)?;
        let mut cores: Vec<usize> =
            (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
        match self {
            Self::Spread => {}
            Self::One => cores.truncate(1),
            Self::Free => cores.clear(),
        }
        Ok(cores)
    }

    /// What the command line calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::One => "one",
            Self::Free => "free",
        }
    }
}

/// The core of the client with this number.
pub fn core_of(cores: &[usize], client: usize) -> Option<usize> {
    (!cores.is_empty()).then(|| cores[client % cores.len()])
}

/// Binds the calling thread to a core, if one is given.
pub fn pin(core: Option<usize>) -> std::io::Result<()> {
    let Some(core) = core else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_go_round_the_cores() {
        assert_eq!(core_of(&[4, 6], 3), Some(6));
        assert_eq!(core_of(&[], 3), None);
        assert_eq!(Placement::One.cores().unwrap().len(), 1);
        assert!(Placement::Free.cores().unwrap().is_empty());
    }
}
