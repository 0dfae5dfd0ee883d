//! Dead files: Rust that no target reaches, pages that nothing leads to.

use std::collections::BTreeSet;

use syn::{Attribute, Item, Meta};

use super::{File, Finding, Tree, folder, links, name, resolve, rust};

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

/// The files of modules that are declared for tests only.
pub(super) fn of_tests(tree: &Tree) -> BTreeSet<String> {
    let roots = roots(tree);
    let mut files = BTreeSet::new();
    for file in tree.rust() {
        let Some(syntax) = &file.syntax else { continue };
        let of_tests = |item: &&Item| matches!(item, Item::Mod(m) if rust::for_tests(&m.attrs));
        let items: Vec<Item> = syntax.items.iter().filter(of_tests).cloned().collect();
        let below = below(&file.path, roots.contains(&file.path));
        files.extend(modules(&items, folder(&file.path), below));
    }
    files
}

/// The folder in which the modules lie that the file at `path` declares.
fn below(path: &str, is_root: bool) -> &str {
    let owns_folder = is_root || name(path) == "mod.rs";
    if owns_folder { folder(path) } else { path.trim_end_matches(".rs") }
}

/// The roots of targets: where cargo looks by itself, and what manifests name.
fn roots(tree: &Tree) -> BTreeSet<String> {
    let mut roots = BTreeSet::new();
    for manifest in tree.files.iter().filter(|file| name(&file.path) == "Cargo.toml") {
        let package = folder(&manifest.path);
        let inside = |path: &str| resolve(package, path);
        let fixed = ["src/lib.rs", "src/main.rs", "build.rs"].map(inside);
        roots.extend(fixed.into_iter().flatten());
        let named = manifest.text.split('"').filter(|word| word.ends_with(".rs"));
        roots.extend(named.filter_map(inside));
        for kind in ["src/bin", "examples", "tests", "benches"].map(inside).into_iter().flatten() {
            let within = tree.rust().filter_map(|file| {
                let rest = file.path.strip_prefix(&kind)?.strip_prefix('/')?;
                let is_root = !rest.contains('/')
                    || rest.split_once('/').is_some_and(|(_, inner)| inner == "main.rs");
                is_root.then(|| file.path.clone())
            });
            roots.extend(within);
        }
    }
    roots
}

/// The files of the modules that `items` declare. A `#[path]` counts from `beside`, a plain
/// declaration from `below`; either spelling of a module's file is given.
fn modules(items: &[Item], beside: &str, below: &str) -> Vec<String> {
    let mut files = Vec::new();
    for item in items {
        let Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        match (&module.content, path_attribute(&module.attrs)) {
            (Some((_, inner)), _) => {
                let inside = format!("{below}/{name}");
                files.extend(modules(inner, &inside, &inside));
            }
            (None, Some(path)) => files.extend(resolve(beside, &path)),
            (None, None) => {
                files.extend(resolve(below, &format!("{name}.rs")));
                files.extend(resolve(below, &format!("{name}/mod.rs")));
            }
        }
    }
    files
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => rust::string(&pair.value),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::places;

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
