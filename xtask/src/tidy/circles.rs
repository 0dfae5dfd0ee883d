//! No two files of a crate import each other, directly or through others.
//!
//! A file of a circle can be neither read nor changed alone. What both need moves down into a file
//! of its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::imports::{self, Imports};
use super::targets;
use super::tree::{Finding, Tree};

/// For each import within a circle, the shortest circle through it.
pub(super) fn none(tree: &Tree) -> Vec<Finding> {
    let mut findings = BTreeSet::new();
    for root in targets::roots(tree) {
        let imports = imports::of_crate(tree, &root);
        for (&importer, imported) in &imports {
            for &first in imported.keys() {
                let circle = shortest(&imports, first, importer);
                findings.extend(circle.map(|circle| finding(&imports, &circle)));
            }
        }
    }
    findings.into_iter().collect()
}

/// The files from `start` to `end`, both included, along the fewest imports.
fn shortest<'a>(
    imports: &BTreeMap<&'a str, Imports<'a>>,
    start: &'a str,
    end: &'a str,
) -> Option<Vec<&'a str>> {
    let mut importer_of = BTreeMap::from([(start, start)]);
    let mut todo = VecDeque::from([start]);
    while let Some(file) = todo.pop_front() {
        if file == end {
            let mut way = vec![file];
            while way[way.len() - 1] != start {
                way.push(importer_of[way[way.len() - 1]]);
            }
            way.reverse();
            return Some(way);
        }
        for &next in imports.get(file).into_iter().flat_map(BTreeMap::keys) {
            importer_of.entry(next).or_insert_with(|| {
                todo.push_back(next);
                file
            });
        }
    }
    None
}

/// A circle as its reader follows it, from the file whose path is the smallest.
fn finding(imports: &BTreeMap<&str, Imports<'_>>, circle: &[&str]) -> Finding {
    let smallest = (0..circle.len()).min_by_key(|&at| circle[at]).unwrap_or(0);
    let file = |step: usize| circle[(smallest + step) % circle.len()];
    let line = |step: usize| imports[file(step)][file(step + 1)];
    let steps: Vec<String> =
        (0..circle.len()).map(|step| format!("{}:{}", file(step), line(step))).collect();
    let message = format!("imports in a circle: {} -> {}", steps.join(" -> "), file(0));
    Finding::new(file(0), line(0), message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::tree;

    const ROOT: (&str, &str) = ("a/src/lib.rs", "pub mod one;\nmod two;\npub use two::Two;");

    /// What the rule says of a crate of these files.
    fn said(files: &[(&str, &str)]) -> Vec<String> {
        let all: Vec<_> = [("a/Cargo.toml", "")].iter().chain(files).copied().collect();
        none(&tree(&all)).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_circle_is_found_with_the_line_of_each_import() {
        let one = ("a/src/one.rs", "use std::fmt;\nuse super::Two;\npub struct One(Two);");
        let two = ("a/src/two.rs", "pub struct Two;\nfn f() { g(crate::one::h) }");
        let circle = "a/src/one.rs:2 -> a/src/two.rs:2 -> a/src/one.rs";
        assert_eq!(said(&[ROOT, one, two]), [format!("imports in a circle: {circle}")]);
        let two = ("a/src/two.rs", "pub struct Two;\nfn f() { assert!(crate::one::h()) }");
        assert_eq!(said(&[ROOT, one, two]).len(), 1, "within a macro");
        let two = ("a/src/two.rs", "use crate::one;\npub struct Two;\nfn f() { one::h() }");
        assert_eq!(said(&[ROOT, one, two]).len(), 1, "through the name of a module");
    }

    #[test]
    fn what_goes_down_only_is_no_circle() {
        let one = ("a/src/one.rs", "use super::Two;\npub struct One(Two);");
        let two = ("a/src/two.rs", "pub struct Two;\nuse outside::one;\nfn f() { one::h() }");
        assert!(said(&[ROOT, one, two]).is_empty());
        let two = ("a/src/two.rs", "pub struct Two;\n#[cfg(test)]\nmod tests { use crate::one; }");
        assert!(said(&[ROOT, one, two]).is_empty(), "tests may look up");
    }

    #[test]
    fn a_child_may_not_take_what_its_importer_defines() {
        let root = ("a/src/lib.rs", "mod two;\npub use two::Two;\npub const BASE: u64 = 1;");
        let two = ("a/src/two.rs", "pub struct Two;\nconst NEXT: u64 = super::BASE + 1;");
        let circle = "a/src/lib.rs:2 -> a/src/two.rs:2 -> a/src/lib.rs";
        assert_eq!(said(&[root, two]), [format!("imports in a circle: {circle}")]);
        let declared = ("a/src/lib.rs", "pub mod two;\npub const BASE: u64 = 1;");
        assert!(said(&[declared, two]).is_empty(), "a `mod` imports nothing");
    }

    #[test]
    fn a_longer_circle_is_found_once() {
        let root = ("a/src/lib.rs", "mod one; mod two; mod three;");
        let files = [
            root,
            ("a/src/one.rs", "pub struct S;\nuse crate::two::S as Next;"),
            ("a/src/two.rs", "pub struct S;\nuse crate::three::*;"),
            ("a/src/three.rs", "pub struct S;\nuse super::{one::{self, S as Next}};"),
        ];
        let circle = "a/src/one.rs:2 -> a/src/two.rs:2 -> a/src/three.rs:2 -> a/src/one.rs";
        assert_eq!(said(&files), [format!("imports in a circle: {circle}")]);
    }
}
