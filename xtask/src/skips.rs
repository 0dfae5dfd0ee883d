//! What was skipped, and whether it may be.
//!
//! A step or a test that cannot run here says so on a line of its own, `SKIP id: reason`. The ids
//! that may be skipped stand in `.ci/allowed-skips`, each with its reason.

use crate::reasons::Reasons;

/// Where the list lives, from the root of the repository.
pub(crate) const ALLOWED: &str = ".ci/allowed-skips";

/// What announces a skip at the beginning of a line.
const MARK: &str = "SKIP ";

/// One announced skip.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Skip {
    /// What is skipped. Empty if the line is malformed, which no list permits.
    pub(crate) id: String,
    /// Why, for the reader of the run.
    pub(crate) reason: String,
}

impl Skip {
    /// Whether the list allows it.
    pub(crate) fn is_allowed(&self, list: &Reasons) -> bool {
        list.list(&self.id)
    }

    /// The skip that `line` announces, if it announces one. A test that is ignored has no id, so
    /// no list can allow it: it should run, and announce why it cannot.
    pub(crate) fn announced(line: &str) -> Option<Self> {
        if line.starts_with("test ") && line.contains(" ... ignored") {
            return Some(Self { id: String::new(), reason: line.to_owned() });
        }
        let rest = line.strip_prefix(MARK)?;
        let (id, reason) = rest.split_once(':').unwrap_or(("", rest));
        let well_formed = !id.contains(char::is_whitespace) && !reason.trim().is_empty();
        let id = if well_formed { id.to_owned() } else { String::new() };
        Some(Self { id, reason: reason.trim().to_owned() })
    }
}

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{MARK}{}: {}", self.id, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_skips_are_permitted() {
        let allowed = Reasons::parse("# why\n\nrdma-vm: no virtual machine here\n").unwrap();
        let listed = Skip::announced("SKIP rdma-vm: qemu is missing").unwrap();
        assert!(listed.is_allowed(&allowed));
        let unlisted = Skip::announced("SKIP shm-kill: no time").unwrap();
        assert!(!unlisted.is_allowed(&allowed));
    }

    #[test]
    fn a_skip_without_an_id_or_a_reason_is_never_permitted() {
        let allowed = Reasons::parse("a: b").unwrap();
        for line in ["SKIP a", "SKIP a:", "SKIP a b: c", "SKIP : c", "test a ... ignored, slow"] {
            let skip = Skip::announced(line).unwrap();
            assert!(!skip.is_allowed(&allowed), "{line}");
        }
    }

    #[test]
    fn other_lines_announce_nothing() {
        for line in ["SKIPPED a: b", " SKIP a: b", "test a ... ok", ""] {
            assert_eq!(Skip::announced(line), None);
        }
    }
}
