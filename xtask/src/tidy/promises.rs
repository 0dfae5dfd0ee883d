//! What the README promises is kept by tests that are there.

use std::collections::BTreeSet;

use syn::{Item, ItemFn};

use super::tree::{File, Finding, Tree};

/// The page that promises, and how the head of its table begins.
const PROMISED: (&str, &str) = ("README.md", "| promised |");
/// The page that names the tests of each promise.
const KEPT: (&str, &str) = ("docs/promises.md", "| promise | kept by |");

/// Every promise names a test, and every test that is named is one.
pub(super) fn kept(tree: &Tree) -> Vec<Finding> {
    let tests: BTreeSet<String> = tree.rust().flat_map(tests).collect();
    let promised: Vec<&str> = rows(tree, PROMISED).map(|(_, row)| name_of(row)).collect();
    let mut findings = Vec::new();
    let mut found = BTreeSet::new();
    for (number, row) in rows(tree, KEPT) {
        let mut find = |what: String| findings.push(Finding::new(KEPT.0, number, what));
        if !promised.contains(&name_of(row)) {
            find(format!("{} does not promise this", PROMISED.0));
        }
        found.insert(name_of(row));
        let named: Vec<&str> = code(row).filter(|word| is_name(word)).collect();
        if !named.iter().any(|name| tests.contains(*name)) {
            find("no test keeps this promise".to_owned());
        }
        named.into_iter().filter(|name| !tests.contains(*name)).for_each(|name| {
            find(format!("there is no test {name}"));
        });
    }
    for (number, row) in rows(tree, PROMISED).filter(|(_, row)| !found.contains(name_of(row))) {
        let what = format!("{} does not tell what keeps {:?}", KEPT.0, name_of(row));
        findings.push(Finding::new(PROMISED.0, number, what));
    }
    findings
}

/// The rows of a page's table whose head begins so, with the numbers of their lines.
fn rows<'t>(
    tree: &'t Tree,
    (page, head): (&str, &'static str),
) -> impl Iterator<Item = (usize, &'t str)> {
    let text = tree.get(page).map_or("", |page| page.text.as_str());
    let lines = (1..).zip(text.lines()).skip_while(move |(_, line)| !line.starts_with(head));
    lines.skip(2).take_while(|(_, line)| line.starts_with('|'))
}

/// What its first cell says.
fn name_of(row: &str) -> &str {
    row.split('|').nth(1).unwrap_or_default().trim()
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
        let readme = "| promised | |\n| --- | --- |\n| exclusion | by `at_once` |\n\
            | order | as they came |\n| speed | |\n| luck | |\n\n| not | promised |\n| x | |\n";
        let page = "| promise | kept by |\n| --- | --- |\n\
            | exclusion | `two_are_never_inside`; `farlock-lab storm` |\n\
            | order | `who_came_first_is_first`, `it_was_renamed_since` |\n\
            | speed | `farlock-lab bench` |\n| beauty | `two_are_never_inside` |\n\n| x |\n";
        let suite = "#[test]\nfn two_are_never_inside() {}\n\
            #[tokio::test]\nasync fn who_came_first_is_first() {}\nfn it_was_renamed_since() {}\n";
        let files = [(PROMISED.0, readme), (KEPT.0, page), ("crates/a/tests/suite.rs", suite)];
        let places = places(kept, &files);
        let page = [4, 5, 6].map(|line| format!("{}:{line}", KEPT.0));
        assert_eq!(places, [&page[..], &["README.md:6".to_owned()]].concat());
    }
}
