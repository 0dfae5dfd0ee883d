//! What a client wants of a lock that is had in parts, and how that is written.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use anyhow::{Context, ensure};

/// Units that a client acquires, and others that it acquires while it holds them: `0-4`, or
/// `0-4+8-9`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    /// From the first to the one behind the last.
    pub units: Range<u32>,
    /// The others, if it wants any.
    pub within: Option<Range<u32>>,
}

impl Wish {
    /// All ranges of it.
    pub fn ranges(&self) -> impl Iterator<Item = &Range<u32>> {
        std::iter::once(&self.units).chain(&self.within)
    }
}

impl From<Range<u32>> for Wish {
    fn from(units: Range<u32>) -> Self {
        Self { units, within: None }
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.units.start, self.units.end)?;
        self.within.as_ref().map_or(Ok(()), |units| write!(f, "+{}-{}", units.start, units.end))
    }
}

impl FromStr for Wish {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, within) = match text.split_once('+') {
            Some((first, within)) => (first, Some(units(within)?)),
            None => (text, None),
        };
        Ok(Self { units: units(first)?, within })
    }
}

fn units(text: &str) -> anyhow::Result<Range<u32>> {
    let (start, end) = text.split_once('-').context("units are as 0-16")?;
    let units = start.parse()?..end.parse()?;
    ensure!(!units.is_empty(), "from the first unit to the one behind the last");
    Ok(units)
}
