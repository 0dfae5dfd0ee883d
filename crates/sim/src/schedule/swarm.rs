//! Swarm sampling: not every fault in every run.
//!
//! A fault that is always possible hides what happens without it, and two that are rare alone never
//! meet. So each run switches each of them on or off, and draws how frequent it is.

use crate::fault::{Ratio, Weakness};
use crate::oracle::{Choice, Oracle};

/// How frequent a fault that is switched on may be: once in so many times.
const ONE_IN: [u32; 3] = [2, 4, 16];

/// What is possible in one run, drawn from this oracle. No completion is lost, and clocks agree;
/// times are zero, since in explored mode the order alone counts.
pub fn swarm(oracle: &mut impl Oracle) -> Weakness {
    let mut draw = || match oracle.pick(Choice::Event, 6) {
        on @ 0..3 => Ratio::one_in(ONE_IN[on as usize]),
        _ => Ratio::NEVER,
    };
    let (torn, overtaken) = (draw(), draw());
    Weakness { torn, overtaken, detection_ns_min: 1, detection_ns_max: 1, ..Weakness::NONE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::Seeded;

    #[test]
    fn each_fault_is_on_in_about_half_of_the_runs_and_both_in_a_quarter() {
        let mut oracle = Seeded::new(1);
        let (mut torn, mut both) = (0, 0);
        for _ in 0..1_000 {
            let weakness = swarm(&mut oracle);
            torn += u32::from(weakness.torn.is_possible());
            both += u32::from(weakness.torn.is_possible() && weakness.overtaken.is_possible());
        }
        assert!((450..550).contains(&torn) && (200..300).contains(&both), "{torn} {both}");
    }
}
