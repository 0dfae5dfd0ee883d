//! The house rules that a program can judge.
//!
//! A rule is a function from the tree to its findings; [`RULES`] lists them all. A rule reads, it
//! never mends.

mod files;
mod length;
mod links;
mod locks;
mod promises;
mod rust;
mod words;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

/// Folders that are not the project's text.
const NOT_OURS: [&str; 3] = [".git", "target", "results/scratch"];

type Rule = fn(&Tree) -> Vec<Finding>;

/// Every rule, with the name that people see.
const RULES: [(&str, Rule); 13] = [
    ("parses", rust::parses),
    ("function length", length::functions),
    ("file length", length::files),
    ("line width", length::lines),
    ("unsafe in its places", rust::unsafe_in_its_places),
    ("unsafe forbidden", rust::unsafe_forbidden),
    ("no unwrap", rust::no_unwrap),
    ("dead files", files::dead),
    ("dead links", links::dead),
    ("named pages", words::named_pages),
    ("banned words", words::banned),
    ("locks", locks::kept),
    ("promises", promises::kept),
];

/// Something that breaks a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Finding {
    path: String,
    /// From 1; 0 if the whole file is meant.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// A text file of the tree.
struct File {
    /// From the root of the repository, with `/`.
    path: String,
    text: String,
    /// Its syntax, if it is Rust and parses.
    syntax: Option<syn::File>,
}

/// All files of the repository.
struct Tree {
    /// Those that are text, sorted by path.
    files: Vec<File>,
    /// Every path, text or not.
    paths: BTreeSet<String>,
}

impl Tree {
    fn load(root: &Path) -> Result<Self> {
        let mut tree = Self { files: Vec::new(), paths: BTreeSet::new() };
        tree.walk(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// Adds what lies under `folder`, a path from the root.
    fn walk(&mut self, root: &Path, folder: &str) -> Result<()> {
        let here = root.join(folder);
        for entry in std::fs::read_dir(&here).with_context(|| here.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let kind = entry.file_type()?;
            if NOT_OURS.contains(&path.as_str()) || kind.is_symlink() {
                continue;
            }
            if kind.is_dir() {
                self.walk(root, &path)?;
            } else if let Ok(text) = String::from_utf8(std::fs::read(entry.path())?) {
                self.add(path, text);
            } else {
                self.paths.insert(path);
            }
        }
        Ok(())
    }

    fn add(&mut self, path: String, text: String) {
        let syntax = if path.ends_with(".rs") { syn::parse_file(&text).ok() } else { None };
        self.paths.insert(path.clone());
        self.files.push(File { path, text, syntax });
    }

    fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    fn markdown(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".md"))
    }

    fn get(&self, path: &str) -> Option<&File> {
        let at = self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()?;
        Some(&self.files[at])
    }
}

/// The folder of `path`, empty for the root.
fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The last part of `path`.
fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// `relative` seen from `folder`, without dots; `None` if it leaves the repository.
fn resolve(folder: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Prints every finding in the repository at `root`.
///
/// # Errors
/// The tree cannot be read.
pub(crate) fn report(root: &Path) -> Result<ExitCode> {
    let tree = Tree::load(root)?;
    let mut found = 0;
    for (name, rule) in RULES {
        for finding in rule(&tree) {
            println!("{finding} [{name}]");
            found += 1;
        }
    }
    println!("{} files, {} rules, {found} findings", tree.paths.len(), RULES.len());
    Ok(if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A tree of these files, for the tests of rules.
#[cfg(test)]
fn tree(files: &[(&str, &str)]) -> Tree {
    let mut tree = Tree { files: Vec::new(), paths: BTreeSet::new() };
    for (path, text) in files {
        tree.add((*path).to_owned(), (*text).to_owned());
    }
    tree.files.sort_by(|a, b| a.path.cmp(&b.path));
    tree
}

/// Where `rule` finds something in these files, as `path:line`.
#[cfg(test)]
fn places(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
    rule(&tree(files)).iter().map(|f| format!("{}:{}", f.path, f.line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert_eq!(report(root).unwrap(), ExitCode::SUCCESS, "`cargo xtask tidy` shows why");
    }

    #[test]
    fn paths_are_resolved_within_the_repository() {
        assert_eq!(resolve("docs/protocols", "../a.md").as_deref(), Some("docs/a.md"));
        assert_eq!(resolve("", "./b.md").as_deref(), Some("b.md"));
        assert_eq!(resolve("docs", "../../c.md"), None);
    }
}
