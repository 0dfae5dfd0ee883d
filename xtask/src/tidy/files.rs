//! Dead files: Rust that no target reaches, pages that nothing leads to.

use std::collections::BTreeSet;

use super::links;
use super::targets::{below, modules, roots};
use super::tree::{File, Finding, Tree, folder, name, resolve};

/// Pages that people and hosting sites look for by name.
const KNOWN_PAGES: [&str; 5] =
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"];

/// Every file of Rust belongs to a target, every page is led to.
pub(super) fn dead(tree: &Tree) -> Vec<Finding> {
    let alive = reached(tree);
    let dead_rust = tree.rust().filter(|file| !alive.contains(&file.path));
    let led_to = |page: &File| {
        KNOWN_PAGES.contains(&page.path.as_str())
            || (name(&page.path) == "README.md" && tree.paths.contains(&manifest_beside(page)))
            || links::lead_to(tree, &page.path)
            || included(tree, &page.path)
    };
    let dead_pages = tree.markdown().filter(|page| !led_to(page));
    dead_rust
        .map(|file| Finding::new(&file.path, 0, "no target reaches this file"))
        .chain(dead_pages.map(|page| Finding::new(&page.path, 0, "nothing leads to this page")))
        .collect()
}

fn manifest_beside(page: &File) -> String {
    resolve(folder(&page.path), "Cargo.toml").expect("a neighbour is in the repository")
}

/// Whether Rust text takes this page in: `include_str!("../page.md")`, or a macro of ours.
fn included(tree: &Tree, page: &str) -> bool {
    tree.rust().any(|file| file.text.contains(&format!("/{}\"", name(page))))
        || tree.rust().any(|file| file.text.contains(&format!("\"{}\"", name(page))))
}

/// Every Rust file that some target reaches.
fn reached(tree: &Tree) -> BTreeSet<String> {
    let mut alive = BTreeSet::new();
    let mut todo: Vec<(String, bool)> = roots(tree).into_iter().map(|path| (path, true)).collect();
    while let Some((path, is_root)) = todo.pop() {
        let Some(file) = tree.get(&path) else { continue };
        if !alive.insert(path) {
            continue;
        }
        let Some(syntax) = &file.syntax else { continue };
        let below = below(&file.path, is_root);
        for module in modules(&syntax.items, folder(&file.path), below) {
            todo.push((module, false));
        }
    }
    alive
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::places;

    #[test]
    fn a_module_that_nobody_declares_is_dead() {
        let files = [
            ("a/Cargo.toml", ""),
            ("a/src/lib.rs", "mod one;\nmod two { mod three; }\n#[path = \"odd.rs\"] mod four;"),
            ("a/src/one/mod.rs", "mod five;"),
            ("a/src/one/five.rs", "mod six;"),
            ("a/src/one/five/six.rs", ""),
            ("a/src/two/three.rs", ""),
            ("a/src/odd.rs", ""),
            ("a/src/forgotten.rs", ""),
        ];
        assert_eq!(places(dead, &files), ["a/src/forgotten.rs:0"]);
    }

    #[test]
    fn targets_are_found_where_cargo_finds_them() {
        let files = [
            ("a/Cargo.toml", "[[test]]\npath = \"checks/all.rs\""),
            ("a/build.rs", ""),
            ("a/checks/all.rs", ""),
            ("a/examples/counter.rs", ""),
            ("a/examples/large/main.rs", ""),
            ("a/src/bin/tool.rs", ""),
            ("a/tests/suite.rs", "mod help;"),
            ("a/tests/help/mod.rs", ""),
            ("a/tests/lost/piece.rs", ""),
        ];
        assert_eq!(places(dead, &files), ["a/tests/lost/piece.rs:0"]);
    }

    #[test]
    fn a_page_that_nothing_leads_to_is_dead() {
        let files = [
            ("README.md", "[a](docs/a.md)"),
            ("docs/a.md", ""),
            ("docs/b.md", ""),
            ("docs/c.md", ""),
            ("x/Cargo.toml", ""),
            ("x/README.md", ""),
            ("x/src/lib.rs", "#![doc = include_str!(\"../../docs/b.md\")]"),
        ];
        assert_eq!(places(dead, &files), ["docs/c.md:0"]);
    }
}
