//! Rounds of a measurement, interleaved: what disturbs the machine for a while spoils a round of
//! many figures, not all rounds of one.

use clap::{Args, value_parser};

/// How often something is measured.
#[derive(Clone, Debug, Args)]
pub struct Rounds {
    /// Interleaved rounds, of which the median is reported
    #[arg(long, value_name = "R", default_value_t = 5)]
    #[arg(value_parser = value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// One line of JSON per row
    #[arg(long)]
    pub json: bool,
}

impl Rounds {
    /// Measures each of these once a round; what came of each in all rounds.
    pub(crate) fn of<S, T>(
        &self,
        subjects: &[S],
        mut measure: impl FnMut(&S, u16) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<Vec<T>>> {
        let mut measured: Vec<Vec<T>> = subjects.iter().map(|_| Vec::new()).collect();
        for round in 0..self.rounds {
            for (measured, subject) in measured.iter_mut().zip(subjects) {
                measured.push(measure(subject, round)?);
            }
        }
        Ok(measured)
    }
}
