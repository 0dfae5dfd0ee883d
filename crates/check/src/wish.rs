//! What a client wants of a lock that is had in parts, and how that is written.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use anyhow::{Context, ensure};

/// Units that a client acquires, and others that it acquires while it holds them: `0-4`, or
/// `0-4+8-9`. Those after `++` lie behind, and are asked for as behind what is held until both are;
/// an `s` after the first says that those are shared: `0-4s++8-9`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    /// From the first to the one behind the last.
    pub units: Range<u32>,
    /// The others, if it wants any.
    pub within: Option<Range<u32>>,
    /// Whether the others are asked for as behind the first.
    pub is_behind: bool,
    /// Whether the first are shared, whatever the others are.
    pub shares_first: bool,
}

impl Wish {
    /// All ranges of it.
    pub fn ranges(&self) -> impl Iterator<Item = &Range<u32>> {
        std::iter::once(&self.units).chain(&self.within)
    }
}

impl From<Range<u32>> for Wish {
    fn from(units: Range<u32>) -> Self {
        Self { units, within: None, is_behind: false, shares_first: false }
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.units.start, self.units.end)?;
        let (shared, within) = (if self.shares_first { "s" } else { "" }, self.within.as_ref());
        let joined = if self.is_behind { "++" } else { "+" };
        write!(f, "{shared}")?;
        within.map_or(Ok(()), |units| write!(f, "{joined}{}-{}", units.start, units.end))
    }
}

impl FromStr for Wish {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, within) = match text.split_once('+') {
            Some((first, within)) => (first, Some(within)),
            None => (text, None),
        };
        let behind = within.and_then(|within| within.strip_prefix('+'));
        let (is_behind, within) = (behind.is_some(), behind.or(within));
        let shares_first = first.ends_with('s');
        let first = units(first.strip_suffix('s').unwrap_or(first))?;
        let within = within.map(units).transpose()?;
        let lies_behind = within.as_ref().is_some_and(|within| first.end <= within.start);
        ensure!(!is_behind || lies_behind, "the units after `++` lie behind the first ones");
        Ok(Self { units: first, within, is_behind, shares_first })
    }
}

fn units(text: &str) -> anyhow::Result<Range<u32>> {
    let (start, end) = text.split_once('-').context("units are as 0-16")?;
    let units = start.parse()?..end.parse()?;
    ensure!(!units.is_empty(), "from the first unit to the one behind the last");
    Ok(units)
}
