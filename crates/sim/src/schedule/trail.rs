//! The stored form of a run: the answers that were not the obvious ones.
//!
//! The obvious next event is one of the endpoint whose event was last, and a timer or the end of a
//! pause only if there is nothing else: no preemption, nobody impatient. The obvious answer to any
//! other question is the first, or no: no fault. So the shorter a trail, the plainer its run.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::oracle::{Candidate, Candidates, StepKind};

/// Events of one endpoint that can be told apart.
const NTH_MAX: usize = 15;
const NTH_BITS: u32 = 4;
/// Digits and letters: a trail is made to be copied.
const RADIX: u32 = 36;

/// An answer that was not the obvious one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Deviation {
    /// Which question of the run it answers, from 0.
    at: u32,
    /// Of an event: its owner's index and the how manieth of that owner's events it is.
    answer: u32,
}

/// A run, as its deviations from the obvious one. As a string: pairs `question.answer`, each
/// question counted from the one before, in base 36; the obvious run is `0`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trail(Vec<Deviation>);

/// The string is no trail.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("'{0}' is not part of a trail: pairs of numbers in base 36 are expected, as in 3.1k-a.20")]
pub struct TrailError(String);

impl Trail {
    /// How many answers are not the obvious ones.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether this is the obvious run.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same without `count` deviations from number `first` on.
    pub fn without(&self, first: usize, count: usize) -> Self {
        let end = (first + count).min(self.0.len());
        Self(self.0[..first].iter().chain(&self.0[end..]).copied().collect())
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn note(&mut self, at: u32, answer: u32) {
        if answer != 0 {
            self.0.push(Deviation { at, answer });
        }
    }

    pub(crate) fn note_event(&mut self, at: u32, candidates: &Candidates<'_>, chosen: u32) {
        let list = candidates.list();
        if chosen != obvious(list, candidates.last()) {
            self.0.push(Deviation { at, answer: name(list, chosen) });
        }
    }

    /// The answer to question `at`, if it is not the obvious one. `cursor` counts the deviations
    /// that are over.
    pub(crate) fn answer(&self, cursor: &mut usize, at: u32) -> Option<u32> {
        while let Some(deviation) = self.0.get(*cursor) {
            if deviation.at > at {
                return None;
            }
            *cursor += 1;
            if deviation.at == at {
                return Some(deviation.answer);
            }
        }
        None
    }
}

/// The event that is next where nothing is out of the ordinary.
pub(crate) fn obvious(list: &[Candidate], last: u16) -> u32 {
    let is_step = |c: &&Candidate| !matches!(c.kind, StepKind::Timer | StepKind::Wake);
    let own = list.iter().position(|c| c.owner == last && is_step(&c));
    own.or_else(|| list.iter().position(|c| is_step(&c))).unwrap_or(0) as u32
}

/// An event by its owner, so that it is the same one in a run that differs elsewhere.
fn name(list: &[Candidate], chosen: u32) -> u32 {
    let owner = list[chosen as usize].owner;
    let nth = list[..chosen as usize].iter().filter(|c| c.owner == owner).count();
    u32::from(owner) << NTH_BITS | nth.min(NTH_MAX) as u32
}

/// The event of this name, if there is one.
pub(crate) fn named(list: &[Candidate], name: u32) -> Option<u32> {
    let (owner, nth) = (name >> NTH_BITS, (name & NTH_MAX as u32) as usize);
    let mut own = (0_u32..).zip(list).filter(|(_, c)| u32::from(c.owner) == owner);
    own.nth(nth).map(|(index, _)| index)
}

impl fmt::Display for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("0");
        }
        let mut before = 0;
        for (index, deviation) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("-")?;
            }
            write_number(f, deviation.at - before)?;
            f.write_str(".")?;
            write_number(f, deviation.answer)?;
            before = deviation.at;
        }
        Ok(())
    }
}

fn write_number(f: &mut fmt::Formatter<'_>, number: u32) -> fmt::Result {
    if number >= RADIX {
        write_number(f, number / RADIX)?;
    }
    let digit = char::from_digit(number % RADIX, RADIX).expect("a digit is below the radix");
    write!(f, "{digit}")
}

impl FromStr for Trail {
    type Err = TrailError;

    fn from_str(text: &str) -> Result<Self, TrailError> {
        if text == "0" {
            return Ok(Self::default());
        }
        let (mut at, mut deviations) = (0_u32, Vec::new());
        for pair in text.split('-') {
            let refuse = || TrailError(pair.to_owned());
            let (gap, answer) = pair.split_once('.').ok_or_else(refuse)?;
            let number = |digits| u32::from_str_radix(digits, RADIX).map_err(|_| refuse());
            at = at.checked_add(number(gap)?).ok_or_else(refuse)?;
            deviations.push(Deviation { at, answer: number(answer)? });
        }
        Ok(Self(deviations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trail_survives_its_string() {
        let deviations = [(0, 16), (7, 1), (7_000, 0xffff_fff0)];
        let trail = Trail(deviations.map(|(at, answer)| Deviation { at, answer }).to_vec());
        assert_eq!(trail.to_string().parse(), Ok(trail.clone()));
        assert_eq!(Trail::default().to_string().parse(), Ok(Trail::default()));
        assert_eq!(trail.without(0, 2).len(), 1);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "1", "1.", "1.2-", "1.2-x.y.z", "zzzzzzzzz.1"] {
            assert!(text.parse::<Trail>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_event_is_found_again_by_its_owner() {
        let of = |owner, kind| Candidate { owner, kind };
        let list = [of(2, StepKind::Timer), of(1, StepKind::Verb), of(2, StepKind::Verb)];
        for chosen in 0..3 {
            assert_eq!(named(&list, name(&list, chosen)), Some(chosen));
        }
        assert_eq!(named(&list, name(&list, 1) + 1), None);
        assert_eq!((obvious(&list, 2), obvious(&list, 7)), (2, 1));
    }
}
