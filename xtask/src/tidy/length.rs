//! How long functions, files and lines may be.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, Signature, TraitItemFn};

use super::tree::{Finding, Tree};
use crate::reasons::Reasons;

/// Lines of a function, from its signature to its closing brace.
const FUNCTION_LINES_MAX: usize = 60;
/// Lines of a Rust file.
const FILE_LINES_MAX: usize = 900;
/// Columns of a Rust line, in characters.
const COLUMNS_MAX: usize = 100;
/// The list of longer files, each with what makes it one idea.
const LONG_FILES: &str = ".ci/long-files";

/// No function is longer than a screen.
pub(super) fn functions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let Some(syntax) = &file.syntax else { continue };
        let mut long = LongFunctions { path: &file.path, findings: &mut findings };
        long.visit_file(syntax);
    }
    findings
}

struct LongFunctions<'a> {
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl LongFunctions<'_> {
    fn measure(&mut self, signature: &Signature, block: &Block) {
        let first = signature.span().start().line;
        let last: Span = block.brace_token.span.close();
        let lines = last.end().line + 1 - first;
        if lines > FUNCTION_LINES_MAX {
            let message =
                format!("`{}` has {lines} lines, more than {FUNCTION_LINES_MAX}", signature.ident);
            self.findings.push(Finding::new(self.path, first, message));
        }
    }
}

impl<'ast> Visit<'ast> for LongFunctions<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.measure(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.measure(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.measure(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

/// A long file is one idea, and the list says which.
pub(super) fn files(tree: &Tree) -> Vec<Finding> {
    let list = tree.get(LONG_FILES).map_or("", |file| file.text.as_str());
    let listed = match Reasons::parse(list) {
        Ok(listed) => listed,
        Err(error) => return vec![Finding::new(LONG_FILES, 0, error.to_string())],
    };
    let mut findings = Vec::new();
    for file in tree.rust() {
        let lines = file.text.lines().count();
        let long = lines > FILE_LINES_MAX;
        if long && !listed.list(&file.path) {
            let message = format!("{lines} lines, more than {FILE_LINES_MAX}, not in {LONG_FILES}");
            findings.push(Finding::new(&file.path, lines, message));
        }
    }
    let short =
        |path: &str| tree.get(path).is_none_or(|file| file.text.lines().count() <= FILE_LINES_MAX);
    for stale in listed.ids().filter(|path| short(path)) {
        findings.push(Finding::new(LONG_FILES, 0, format!("{stale} is no long file")));
    }
    findings
}

/// Lines fit on a screen; a table's row or a lone address cannot be broken.
pub(super) fn lines(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for (index, line) in file.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && !unbreakable(line) {
                let message = format!("{columns} columns, more than {COLUMNS_MAX}");
                findings.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    findings
}

fn unbreakable(line: &str) -> bool {
    let text = line.trim_start();
    let Some(comment) = text.strip_prefix("//") else { return false };
    let comment = comment.trim_start_matches(['/', '!']).trim_start();
    comment.starts_with('|') || comment.split_whitespace().any(|word| word.contains("://"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::places;

    #[test]
    fn a_function_of_61_lines_is_found_wherever_it_stands() {
        let body = "\n".repeat(FUNCTION_LINES_MAX - 1);
        let fits = format!("fn f() {{{body}}}");
        assert!(places(functions, &[("a.rs", &fits)]).is_empty());
        let long = format!("fn f() {{{body}\n}}");
        assert_eq!(places(functions, &[("a.rs", &long)]), ["a.rs:1"]);
        let method = format!("struct S;\nimpl S {{ {long} }}");
        assert_eq!(places(functions, &[("a.rs", &method)]), ["a.rs:2"]);
        let inner = format!("fn outer() {{}}\ntrait T {{ {long} }}");
        assert_eq!(places(functions, &[("a.rs", &inner)]), ["a.rs:2"]);
    }

    #[test]
    fn a_long_file_needs_its_entry_and_an_entry_its_long_file() {
        let long = "\n".repeat(FILE_LINES_MAX + 1);
        assert_eq!(places(files, &[("a.rs", &long)]), ["a.rs:901"]);
        let listed = (LONG_FILES, "a.rs: one state machine");
        assert!(places(files, &[("a.rs", &long), listed]).is_empty());
        assert_eq!(places(files, &[("a.rs", ""), listed]), [".ci/long-files:0"]);
    }

    #[test]
    fn a_wide_line_is_found_unless_it_cannot_be_broken() {
        let wide = "x".repeat(COLUMNS_MAX + 1);
        assert_eq!(places(lines, &[("a.rs", &format!("\n// {wide}"))]), ["a.rs:2"]);
        let row = format!("//! | {wide} |\n// see https://{wide}");
        assert!(places(lines, &[("a.rs", &row)]).is_empty());
        let exact = "é".repeat(COLUMNS_MAX);
        assert!(places(lines, &[("a.rs", &exact)]).is_empty());
    }
}
