//! What the crate of locks promises: a page for every protocol, no clock and no thread.

use std::collections::BTreeSet;

use syn::Item;

use super::tree::{File, Finding, Tree};

/// What makes a file a protocol: it implements this.
const LOCK_TRAIT: &str = "Lock";
const RECORD: &str = "crates/locks/src/record/";
const PAGES: &str = "docs/protocols";
const CLIPPY: &str = "crates/locks/clippy.toml";

/// What clippy must refuse there.
const REFUSED: [&str; 5] = [
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::thread::sleep",
    "std::thread::spawn",
    "std::collections::HashMap",
];

/// Every protocol has its page, and clippy refuses time and chance.
pub(super) fn kept(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for protocol in protocols(tree) {
        let page = format!("{PAGES}/{}.md", protocol.replace('_', "-"));
        if !tree.paths.contains(&page) {
            let message = format!("the protocol has no page {page}");
            findings.push(Finding::new(&format!("{RECORD}{protocol}"), 0, message));
        }
    }
    let refused = tree.get(CLIPPY).map_or("", |file| file.text.as_str());
    for path in REFUSED.iter().filter(|path| !refused.contains(&format!("\"{path}\""))) {
        findings.push(Finding::new(CLIPPY, 0, format!("{path} is not refused")));
    }
    findings
}

/// The protocols of the tree: files, or folders with all that is in them.
fn protocols(tree: &Tree) -> BTreeSet<&str> {
    let locks = tree.rust().filter(|file| implements_lock(file));
    let entries = locks.filter_map(|file| file.path.strip_prefix(RECORD));
    let names = entries.map(|entry| entry.split('/').next().unwrap_or(entry));
    names.map(|name| name.trim_end_matches(".rs")).filter(|name| *name != "mod").collect()
}

fn implements_lock(file: &File) -> bool {
    let items = file.syntax.as_ref().map_or(&[][..], |syntax| &syntax.items);
    items.iter().any(|item| {
        let Item::Impl(item) = item else { return false };
        let implemented = item.trait_.as_ref().and_then(|of| of.0.segments.last());
        implemented.is_some_and(|name| name.ident == LOCK_TRAIT)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::places;

    #[test]
    fn a_protocol_without_a_page_is_found() {
        let refused = REFUSED.map(|path| format!("\"{path}\"")).join("\n");
        let lock = "struct L;\nimpl<E: Endpoint> crate::lock::Lock<E> for L {}";
        let mut files = vec![
            (CLIPPY, refused.as_str()),
            ("crates/locks/src/record/mod.rs", "macro_rules! locks { () => {} }"),
            ("crates/locks/src/record/queue.rs", "struct Note;\nimpl Clone for Note {}"),
            ("crates/locks/src/record/rma_rw.rs", lock),
            ("crates/locks/src/record/shiftlock/mod.rs", lock),
            ("docs/protocols/rma-rw.md", ""),
        ];
        assert_eq!(places(kept, &files), ["crates/locks/src/record/shiftlock:0"]);
        files.push(("docs/protocols/shiftlock.md", ""));
        assert!(places(kept, &files).is_empty());
    }

    #[test]
    fn a_clock_that_clippy_does_not_refuse_is_found() {
        let all_but_one = REFUSED[1..].iter().map(|path| format!("\"{path}\"")).collect::<String>();
        assert_eq!(places(kept, &[(CLIPPY, &all_but_one)]).len(), 1);
        assert_eq!(places(kept, &[]).len(), REFUSED.len());
    }
}
