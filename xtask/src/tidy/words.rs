//! Words that may not stand in the text: what is unfinished, and what only one machine knows.

use std::collections::BTreeSet;

use super::tree::{File, Finding, Tree, name};

/// Words, with what is wrong about each. A word stands alone: `XXX` is not found in `XXXX`.
const BANNED: [(&str, &str); 7] = [
    ("TODO", "do it, or open an issue"),
    ("FIXME", "fix it, or open an issue"),
    ("XXX", "say what is wrong"),
    ("HACK", "say why it is so"),
    ("/work/", "a path of one machine"),
    ("/root/", "a path of one machine"),
    ("../shared", "a path out of the repository"),
];

/// Words of comments and pages that leave open of which role they speak.
const VAGUE: [&str; 4] = ["whoever", "whomever", "somebody", "someone"];

/// This folder speaks about words it bans.
const EXEMPT: &str = "xtask/src/tidy/";

fn judged(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files.iter().filter(|file| !file.path.starts_with(EXEMPT))
}

/// No banned word stands in any text file.
pub(super) fn banned(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in judged(tree) {
        for (index, line) in file.text.lines().enumerate() {
            for (word, wrong) in BANNED.iter().filter(|(word, _)| stands_in(line, word)) {
                let message = format!("`{word}`: {wrong}");
                findings.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    findings
}

/// Comments and pages say waiter, holder, newcomer or repairer.
pub(super) fn vague(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in judged(tree) {
        let is_rust = file.path.ends_with(".rs");
        if !is_rust && !file.path.ends_with(".md") {
            continue;
        }
        let is_said = |line: &&str| !is_rust || line.trim_start().starts_with("//");
        let lines = file.text.lines().enumerate().filter(|(_, line)| is_said(line));
        for (index, line) in lines {
            let line = line.to_lowercase();
            for word in VAGUE.iter().filter(|word| stands_in(&line, word)) {
                let message = format!("`{word}`: name the role");
                findings.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    findings
}

/// Whether `word` stands in `line` with no letter or digit of a longer word beside it.
fn stands_in(line: &str, word: &str) -> bool {
    let joins = |c: Option<char>, edge: bool| edge && c.is_some_and(char::is_alphanumeric);
    let is_word = word.chars().all(char::is_alphanumeric);
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !joins(before, is_word) && !joins(after, is_word)
    })
}

/// A page that the text names is a page of the repository.
pub(super) fn named_pages(tree: &Tree) -> Vec<Finding> {
    let known: BTreeSet<&str> = tree.markdown().map(|page| name(&page.path)).collect();
    let mut findings = Vec::new();
    for file in judged(tree) {
        for (index, line) in file.text.lines().enumerate() {
            for page in pages_named_in(line).filter(|page| !known.contains(page)) {
                let message = format!("there is no page called {page}");
                findings.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    findings
}

fn pages_named_in(line: &str) -> impl Iterator<Item = &str> {
    let in_name = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    line.split(move |c: char| !in_name(c) && !"{}<>*:/".contains(c))
        // An address of the outside, or a pattern that stands for many pages, names none of ours.
        .filter(|word| !word.contains("://") && !word.contains(['{', '<', '*']))
        .map(|word| name(word).trim_matches([':', '.']))
        .filter(|page| page.len() > ".md".len() && page.ends_with(".md"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::places;

    #[test]
    fn unfinished_work_is_found_and_longer_words_are_not() {
        let text = "// TODO: later\nmktemp XXXXXX\n// XXX\nMASTODON\n";
        assert_eq!(places(banned, &[("a.rs", text)]), ["a.rs:1", "a.rs:3"]);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let text = "ok\ncd /work/tree\nsee ../shared/notes\n";
        assert_eq!(places(banned, &[("run", text)]), ["run:2", "run:3"]);
    }

    #[test]
    fn comments_and_pages_name_roles() {
        let rust =
            "//! Whoever waits.\nlet text = \"somebody\";\n    // A waiter; someone's lock.\n";
        let files = [("a.rs", rust), ("b.md", "Nobody.\nSomebody.\n"), ("c.toml", "whoever")];
        assert_eq!(places(vague, &files), ["a.rs:1", "a.rs:3", "b.md:2"]);
    }

    #[test]
    fn a_page_that_is_not_here_may_not_be_named() {
        let text = "see PLAN.md, docs/b.md.\n`{name}.md`, *.md, https://x.y/z.md, .md\n(B.md)";
        let files = [("a.rs", text), ("docs/b.md", "")];
        assert_eq!(places(named_pages, &files), ["a.rs:1", "a.rs:3"]);
    }
}
