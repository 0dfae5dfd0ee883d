//! A committed list of exceptions, each with its reason: `id: reason`, one a line.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

/// Ids, and why each is an exception.
#[derive(Default, Debug)]
pub(crate) struct Reasons(BTreeMap<String, String>);

impl Reasons {
    /// Reads a list. `#` begins a comment line; empty lines do not count.
    ///
    /// # Errors
    /// A line has no id or no reason, or an id stands twice.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut entries = BTreeMap::new();
        let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
        for line in lines {
            let (id, reason) = line.split_once(':').with_context(|| format!("no `:` in {line}"))?;
            let (id, reason) = (id.trim(), reason.trim());
            ensure!(!id.is_empty() && !reason.is_empty(), "an id or a reason is missing: {line}");
            let earlier = entries.insert(id.to_owned(), reason.to_owned());
            ensure!(earlier.is_none(), "{id} stands twice");
        }
        Ok(Self(entries))
    }

    /// Whether `id` is on the list.
    pub(crate) fn list(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    /// Every id, in order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_without_its_comments() {
        let list = Reasons::parse("# why\n\nb: two: words\na: one\n").unwrap();
        assert_eq!(list.ids().collect::<Vec<_>>(), ["a", "b"]);
        assert!(list.list("a") && !list.list("c"));
    }

    #[test]
    fn an_entry_needs_its_reason_and_stands_once() {
        for wrong in ["rdma-vm", "rdma-vm:", ": why", "a: b\na: c"] {
            assert!(Reasons::parse(wrong).is_err(), "{wrong}");
        }
    }
}
