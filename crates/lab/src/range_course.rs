//! What ranges clients ask for: how long they are, of how many units, and where they may begin.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The lengths of a mix, each those of a third of the clients (Citron, section 4.2).
const MIX: [u32; 3] = [1, 16, 256];
/// The most units of a space: the start of a range and its mode share a word with its end.
const SPACE_MAX: i64 = 1 << 31;
/// Units, if nothing else is said.
const SPACE: u32 = 1 << 20;

/// How long ranges are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Lengths {
    /// All so many units.
    One(u32),
    /// 1, 16 or 256, by client.
    Mix,
}

impl Lengths {
    /// Those of the client with this number.
    pub const fn of(self, client: usize) -> u32 {
        match self {
            Self::One(length) => length,
            Self::Mix => MIX[client % MIX.len()],
        }
    }

    /// The longest.
    const fn longest(self) -> u32 {
        match self {
            Self::One(length) => length,
            Self::Mix => MIX[MIX.len() - 1],
        }
    }
}

impl FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "mix" => Ok(Self::Mix),
            Ok(length) if length > 0 => Ok(Self::One(length)),
            _ => Err(format!("'{text}' is neither mix nor a number of units")),
        }
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(length) => write!(f, "{length}"),
            Self::Mix => f.write_str("mix"),
        }
    }
}

impl From<Lengths> for String {
    fn from(lengths: Lengths) -> Self {
        lengths.to_string()
    }
}

impl TryFrom<String> for Lengths {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// What ranges clients ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RangeCourse {
    /// How long they are.
    pub lengths: Lengths,
    /// Units that there are.
    pub space: u32,
    /// Each begins at a multiple of this.
    pub align: u32,
}

/// What to ask of ranges.
#[derive(Clone, Debug, clap::Args)]
pub struct RangeArgs {
    /// Each cycle wants so many units of one lock, or by client 1, 16 or 256 (mix); --dist says
    /// where they begin
    #[arg(long, value_name = "LEN|mix")]
    pub range: Option<Lengths>,
    /// How many units the lock has
    #[arg(long, value_name = "N", default_value_t = SPACE, requires = "range")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=SPACE_MAX))]
    pub space: u32,
    /// Ranges begin at multiples of this
    #[arg(long, value_name = "N", default_value_t = 1, requires = "range")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=SPACE_MAX))]
    pub align: u32,
}

impl RangeArgs {
    /// What ranges clients ask for; `None` where they ask for whole locks.
    ///
    /// # Errors
    /// The space has no room for a range.
    pub fn course(&self) -> anyhow::Result<Option<RangeCourse>> {
        let Self { range, space, align } = *self;
        let course = range.map(|lengths| RangeCourse { lengths, space, align });
        if let Some(course) = course {
            let longest = course.lengths.longest();
            anyhow::ensure!(longest <= space, "no range of {longest} units lies in {space}");
        }
        Ok(course)
    }
}

impl RangeCourse {
    /// How many places a range of the client with this number may begin at.
    pub const fn places(self, client: usize) -> u64 {
        ((self.space - self.lengths.of(client)) / self.align) as u64 + 1
    }

    /// The name of a lock that has the space.
    pub fn sized(self, subject: &str) -> String {
        format!("{subject}:space={}", self.space)
    }
}

/// What one client asks for.
#[derive(Clone, Copy, Debug)]
pub struct OwnRanges {
    number: usize,
    length: u32,
    align: u32,
}

impl OwnRanges {
    /// Those of the client with this number.
    pub const fn new(course: RangeCourse, number: usize) -> Self {
        Self { number, length: course.lengths.of(number), align: course.align }
    }

    /// The client's number.
    pub const fn number(self) -> usize {
        self.number
    }

    /// The units of the range that begins at this place.
    pub const fn at(self, place: u32) -> Range<u32> {
        let start = place * self.align;
        start..start + self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COURSE: RangeCourse = RangeCourse { lengths: Lengths::One(4), space: 64, align: 2 };

    #[test]
    fn ranges_lie_in_the_space_and_begin_where_they_may() {
        assert_eq!(COURSE.places(0), 31);
        assert_eq!(OwnRanges::new(COURSE, 0).at(30), 60..64);
        let mix = RangeCourse { lengths: Lengths::Mix, space: 256, align: 1 };
        assert_eq!([0, 1, 2, 3].map(|client| mix.lengths.of(client)), [1, 16, 256, 1]);
        assert_eq!([0, 1, 2].map(|client| mix.places(client)), [256, 241, 1]);
    }

    #[test]
    fn lengths_read_as_they_are_written() {
        for text in ["1", "256", "mix"] {
            assert_eq!(text.parse::<Lengths>().unwrap().to_string(), text);
        }
        for text in ["", "0", "-1", "mixed"] {
            assert!(text.parse::<Lengths>().is_err(), "{text}");
        }
    }
}
