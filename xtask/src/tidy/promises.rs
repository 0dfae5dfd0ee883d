//! What the README promises is kept by tests that are there.

use std::collections::BTreeSet;

use syn::{Item, ItemFn};

use super::tree::{File, Finding, Tree};

const PAGE: &str = "README.md";
/// The column of a table of promises that names their tests.
const COLUMN: &str = "kept by";

/// Every promise names a test, and every test that is named is one.
pub(super) fn kept(tree: &Tree) -> Vec<Finding> {
    let tests: BTreeSet<String> = tree.rust().flat_map(tests).collect();
    let text = tree.get(PAGE).map_or("", |page| page.text.as_str());
    let mut findings = Vec::new();
    let mut is_within = false;
    for (line, number) in text.lines().zip(1..) {
        let promise = is_within && !line.starts_with("| ---");
        is_within = line.starts_with('|') && (is_within || line.contains(COLUMN));
        if !is_within || !promise {
            continue;
        }
        let named: Vec<&str> = code(line).filter(|word| is_name(word)).collect();
        if !named.iter().any(|name| tests.contains(*name)) {
            findings.push(Finding::new(PAGE, number, "no test keeps this promise"));
        }
        for name in named.into_iter().filter(|name| !tests.contains(*name)) {
            findings.push(Finding::new(PAGE, number, format!("there is no test {name}")));
        }
    }
    findings
}

/// What stands between backticks.
fn code(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether this is written as tests are named: a sentence of words, not a method or an option.
fn is_name(word: &str) -> bool {
    word.matches('_').count() > 1 && word.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
}

/// The tests of a file.
fn tests(file: &File) -> Vec<String> {
    let items = file.syntax.as_ref().map_or(&[][..], |syntax| &syntax.items);
    let test = |item: &Item| match item {
        Item::Fn(function) if is_test(function) => Some(function.sig.ident.to_string()),
        _ => None,
    };
    items.iter().filter_map(test).collect()
}

/// Whether its last attribute word is `test`: `#[test]`, `#[tokio::test(...)]`.
fn is_test(function: &ItemFn) -> bool {
    let last = |attribute: &syn::Attribute| Some(attribute.path().segments.last()?.ident.clone());
    function.attrs.iter().filter_map(last).any(|word| word == "test")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::places;

    #[test]
    fn a_promise_that_no_test_keeps_is_found() {
        let page = "| promised | | kept by, at the face |\n| --- | --- | --- |\n\
            | exclusion | by `at_once` | `two_are_never_inside`; `farlock-lab storm` |\n\
            | order | as they came | `who_came_first_is_first`, `it_was_renamed_since` |\n\
            | speed | | `farlock-lab bench` |\n\n| not | promised |\n| x | `no_test_at_all` |\n";
        let suite = "#[test]\nfn two_are_never_inside() {}\n\
            #[tokio::test]\nasync fn who_came_first_is_first() {}\nfn it_was_renamed_since() {}\n";
        let files = [(PAGE, page), ("crates/a/tests/suite.rs", suite)];
        assert_eq!(places(kept, &files), ["README.md:4", "README.md:5"]);
    }
}
