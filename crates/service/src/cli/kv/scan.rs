//! Printing pairs of a store.

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;

use farlock::Kv;
use farlock::kv::{Index, Scan};

use super::lines::Line;
use super::whole::Whole;
use crate::cli::report::{Failure, is_read, printed};

/// Which pairs are printed, and how.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// Only of keys that begin so.
    prefix: Option<OsString>,
    /// The same, said by name.
    #[arg(
        long = "prefix",
        value_name = "PREFIX",
        conflicts_with = "prefix",
        allow_hyphen_values = true
    )]
    beginning: Option<OsString>,
    /// From this key on, with --reverse down: of an ordered store.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,
    /// From the next key on: where a scan with --limit goes on after its last line, by the key as
    /// that line shows it if --escaped is said too.
    #[arg(long, value_name = "KEY", conflicts_with = "from", allow_hyphen_values = true)]
    after: Option<OsString>,
    /// The last key first: of an ordered store. What --from, --after and --limit say counts from
    /// there.
    #[arg(long)]
    reverse: bool,
    /// At most so many pairs.
    #[arg(long, value_name = "PAIRS")]
    limit: Option<u64>,
    /// Print one JSON object per pair: "key" and "value", or "key_hex" and "value_hex" where these
    /// are no text, and "seconds" and "token" where it has them; tokens are strings.
    #[arg(long)]
    json: bool,
}

impl Which {
    /// The keys that were given.
    pub(super) fn keys(&mut self) -> impl Iterator<Item = &mut OsString> {
        let Self { prefix, beginning, from, after, .. } = self;
        [prefix, beginning, from, after].into_iter().flatten()
    }

    fn prefix(&self) -> &[u8] {
        let prefix = self.prefix.as_ref().or(self.beginning.as_ref());
        prefix.map_or(b"", |prefix| prefix.as_bytes())
    }

    /// The key with which it begins, if one was given.
    fn first(&self) -> Bound<&[u8]> {
        match (&self.from, &self.after) {
            (Some(key), _) => Bound::Included(key.as_bytes()),
            (_, Some(key)) => Bound::Excluded(key.as_bytes()),
            (None, None) => Bound::Unbounded,
        }
    }

    /// The pairs from where they are to begin; those that do not begin as they should come too.
    fn pairs_of<'k>(&self, store: &'k Kv) -> Result<Scan<'k>, Failure> {
        let (first, prefix) = (self.first(), self.prefix());
        Ok(match first {
            Bound::Included(key) | Bound::Excluded(key) if self.reverse => {
                match key < prefix || key.starts_with(prefix) {
                    true => store.scan_range_reversed((Bound::Included(prefix), first))?,
                    false => store.scan_prefix_reversed(prefix)?,
                }
            }
            Bound::Unbounded if self.reverse => store.scan_prefix_reversed(prefix)?,
            // Whatever has no order is gone through as a whole.
            Bound::Unbounded if store.index() != Index::Ordered => store.scan(),
            Bound::Included(key) | Bound::Excluded(key) if key >= prefix => {
                store.scan_range((first, Bound::Unbounded))?
            }
            _ => store.scan_range(prefix..)?,
        })
    }
}

/// Prints pairs.
pub(super) fn scan(store: &Kv, which: &Which) -> Result<(), Failure> {
    let mut lines = Vec::new();
    let mut whole = Whole::of(which.pairs_of(store)?);
    let mut left = which.limit.unwrap_or(u64::MAX);
    while left > 0
        && let Some(pair) = whole.next()?
    {
        if !pair.key.starts_with(which.prefix()) {
            match store.index() {
                Index::Ordered => break,
                _ => continue,
            }
        }
        if pair.value.is_none() {
            continue;
        }
        left -= 1;
        let line = Line { key: pair.key, value: pair.value, ..Line::default() };
        match which.json {
            true => {
                let (time_left, token) = (pair.time_left, pair.token);
                Line { time_left, token, ..line }.write_json(&mut lines);
            }
            false => line.write(&mut lines),
        }
        if lines.len() > 1 << 16 {
            if !is_read(io::stdout().write_all(&lines))? {
                return Ok(());
            }
            lines.clear();
        }
    }
    printed(io::stdout().write_all(&lines))?;
    whole.end()
}
