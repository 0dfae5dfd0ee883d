//! How quick this machine is, beside the one that the caps of steps are written for.
//!
//! Most of what a run does is to compile and to explore, which one machine does in half the time of
//! another. So a fixed piece of work is done first, what a run does most of: the compiler compiles
//! a text of our own making, once on each of two cores at the same time. What it takes is set
//! against what it takes where the caps hold as they are written.
//!
//! A quicker machine gets no less time. A slower one gets more, and never more than
//! [`SLOWEST`] times as much: a machine that is slower still fails at its caps.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// What the work takes on two cores of the machine that caps are written for.
const REFERENCE: Duration = Duration::from_millis(1100);
/// So many times slower a machine may be, in hundredths: a run of all steps ends within 90 minutes.
const SLOWEST: u32 = 195;
/// How often the work is done; the quickest counts, for others are slowed down by chance.
const ROUNDS: usize = 3;
/// The cores of a run.
const CORES: usize = 2;
/// Functions in the text.
const FUNCTIONS: usize = 8;

/// How much more time steps get here, in hundredths of their caps: at least 100.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pace(u32);

impl Pace {
    /// Caps as they are written.
    #[cfg(test)]
    pub(crate) const AS_WRITTEN: Self = Self(100);

    /// Does the work, in files below `target`.
    ///
    /// # Errors
    /// The compiler cannot be run there.
    pub(crate) fn measure(target: &Path) -> Result<Self> {
        let place = target.join("pace");
        std::fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
        let text = place.join("work.rs");
        std::fs::write(&text, work()).with_context(|| text.display().to_string())?;
        let mut quickest = Duration::MAX;
        for _ in 0..ROUNDS {
            quickest = quickest.min(round(&place, &text)?);
        }
        Ok(Self::of(quickest))
    }

    /// The pace of a machine on which the work takes this long.
    fn of(taken: Duration) -> Self {
        let hundredths = taken.as_millis() * 100 / REFERENCE.as_millis();
        Self(u32::try_from(hundredths).unwrap_or(u32::MAX).clamp(100, SLOWEST))
    }

    /// A cap here.
    pub(crate) fn stretch(self, cap: Duration) -> Duration {
        cap * self.0 / 100
    }
}

impl std::fmt::Display for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

/// Compiles the text on all cores, and says how long that took.
fn round(place: &Path, text: &Path) -> Result<Duration> {
    let begun = Instant::now();
    let compilers: Vec<Child> = (0..CORES)
        .map(|core| {
            Command::new("rustc")
                .args(["--crate-type=lib", "--edition=2024", "-Copt-level=2", "-Ccodegen-units=1"])
                .arg("-o")
                .arg(place.join(format!("libwork{core}.rlib")))
                .arg(text)
                .stdin(Stdio::null())
                .spawn()
                .context("rustc does not start")
        })
        .collect::<Result<_>>()?;
    for mut compiler in compilers {
        let status = compiler.wait().context("rustc is gone")?;
        ensure!(status.success(), "rustc does not compile {}: {status}", text.display());
    }
    Ok(begun.elapsed())
}

/// A text of the kind that our crates are: functions that each compile collections of their own.
fn work() -> String {
    let mut text = String::from("use std::collections::BTreeMap;\n");
    for n in 0..FUNCTIONS {
        let _ = write!(
            text,
            "pub struct Key{n}(u64);
             pub fn work_{n}(keys: &[u64]) -> Vec<(u64, String)> {{
                 let mut map: BTreeMap<u64, Vec<Key{n}>> = BTreeMap::new();
                 for &key in keys {{
                     map.entry(key % {}).or_default().push(Key{n}(key));
                 }}
                 let sum = |of: &[Key{n}]| of.iter().map(|key| key.0).sum::<u64>();
                 let named = |(key, of): (u64, Vec<_>)| (key, format!(\"{{}} of {n}\", sum(&of)));
                 let mut all: Vec<_> = map.into_iter().map(named).collect();
                 all.sort_by(|a, b| a.1.cmp(&b.1));
                 all
             }}\n",
            n + 2
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_machine_gets_what_is_written_and_a_slow_one_more_but_not_without_end() {
        let minutes = |tenths: u32| Duration::from_secs(6) * tenths;
        let capped = |work: Duration| Pace::of(work).stretch(minutes(100));
        assert_eq!(capped(REFERENCE / 3), minutes(100));
        assert_eq!(capped(REFERENCE), minutes(100));
        assert_eq!(capped(REFERENCE * 3 / 2), minutes(150));
        assert_eq!(capped(REFERENCE * 9), minutes(SLOWEST));
        assert_eq!(Pace::of(REFERENCE * 3 / 2).to_string(), "1.50");
    }
}
