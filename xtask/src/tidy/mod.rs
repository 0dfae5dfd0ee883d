//! The house rules that a program can judge.
//!
//! A rule is a function from the tree to its findings; [`RULES`] lists them all. A rule reads, it
//! never mends.

mod circles;
mod errors;
mod files;
mod imports;
mod length;
mod links;
mod locks;
mod promises;
mod rust;
mod targets;
mod tree;
mod words;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use tree::{Rule, Tree};

/// Every rule, with the name that people see.
const RULES: [(&str, Rule); 15] = [
    ("parses", rust::parses),
    ("function length", length::functions),
    ("file length", length::files),
    ("line width", length::lines),
    ("unsafe in its places", rust::unsafe_in_its_places),
    ("unsafe forbidden", rust::unsafe_forbidden),
    ("circles of imports", circles::none),
    ("errors said once", errors::said_once),
    ("dead files", files::dead),
    ("dead links", links::dead),
    ("named pages", words::named_pages),
    ("banned words", words::banned),
    ("vague words", words::vague),
    ("locks", locks::kept),
    ("promises", promises::kept),
];

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert_eq!(report(root).unwrap(), ExitCode::SUCCESS, "`cargo xtask tidy` shows why");
    }
}
