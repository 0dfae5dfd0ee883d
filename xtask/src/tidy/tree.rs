//! The files of the repository, and what rules find in them.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};

/// Folders that are not the project's text.
const NOT_OURS: [&str; 3] = [".git", "target", "results/scratch"];

/// What judges a tree.
pub(super) type Rule = fn(&Tree) -> Vec<Finding>;

/// Something that breaks a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Finding {
    pub(super) path: String,
    /// From 1; 0 if the whole file is meant.
    pub(super) line: usize,
    pub(super) message: String,
}

impl Finding {
    pub(super) fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// A text file of the tree.
pub(super) struct File {
    /// From the root of the repository, with `/`.
    pub(super) path: String,
    pub(super) text: String,
    /// Its syntax, if it is Rust and parses.
    pub(super) syntax: Option<syn::File>,
}

/// All files of the repository.
pub(super) struct Tree {
    /// Those that are text, sorted by path.
    pub(super) files: Vec<File>,
    /// Every path, text or not.
    pub(super) paths: BTreeSet<String>,
}

impl Tree {
    pub(super) fn load(root: &Path) -> Result<Self> {
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

    pub(super) fn add(&mut self, path: String, text: String) {
        let syntax = if path.ends_with(".rs") { syn::parse_file(&text).ok() } else { None };
        self.paths.insert(path.clone());
        self.files.push(File { path, text, syntax });
    }

    pub(super) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    pub(super) fn markdown(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".md"))
    }

    pub(super) fn get(&self, path: &str) -> Option<&File> {
        let at = self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()?;
        Some(&self.files[at])
    }
}

/// The folder of `path`, empty for the root.
pub(super) fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The last part of `path`.
pub(super) fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// `relative` seen from `folder`, without dots; `None` if it leaves the repository.
pub(super) fn resolve(folder: &str, relative: &str) -> Option<String> {
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

/// A tree of these files, for the tests of rules.
#[cfg(test)]
pub(super) fn tree(files: &[(&str, &str)]) -> Tree {
    let mut tree = Tree { files: Vec::new(), paths: BTreeSet::new() };
    for (path, text) in files {
        tree.add((*path).to_owned(), (*text).to_owned());
    }
    tree.files.sort_by(|a, b| a.path.cmp(&b.path));
    tree
}

/// Where `rule` finds something in these files, as `path:line`.
#[cfg(test)]
pub(super) fn places(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
    rule(&tree(files)).iter().map(|f| format!("{}:{}", f.path, f.line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved_within_the_repository() {
        assert_eq!(resolve("docs/protocols", "../a.md").as_deref(), Some("docs/a.md"));
        assert_eq!(resolve("", "./b.md").as_deref(), Some("b.md"));
        assert_eq!(resolve("docs", "../../c.md"), None);
    }
}
