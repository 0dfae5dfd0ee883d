//! An error says itself; its source says itself too, when it is asked for. A message that contains
//! its source's is printed twice by everything that prints chains.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Fields, ItemStruct, LitStr, Variant};

use super::tree::{Finding, Tree};

/// No message of an error contains the message of its source.
pub(super) fn said_once(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let Some(syntax) = &file.syntax else { continue };
        let mut twice = Twice { lines: Vec::new() };
        twice.visit_file(syntax);
        for line in twice.lines {
            let message = "the message of an error contains its source's: leave that to `source()`";
            findings.push(Finding::new(&file.path, line, message));
        }
    }
    findings
}

struct Twice {
    lines: Vec<usize>,
}

impl Twice {
    fn look(&mut self, attributes: &[Attribute], fields: &Fields) {
        let message = attributes.iter().find(|attribute| attribute.path().is_ident("error"));
        // One that is `transparent` has no message of its own, and its source's source.
        let Some(Ok(text)) = message.map(|said| said.parse_args_with(first_string)) else { return };
        let names = fields.iter().enumerate().filter_map(|(at, field)| {
            let name = field.ident.as_ref().map_or(at.to_string(), ToString::to_string);
            let marks =
                |mark: &Attribute| ["from", "source"].iter().any(|m| mark.path().is_ident(m));
            (name == "source" || field.attrs.iter().any(marks)).then_some(name)
        });
        if names.into_iter().any(|name| shows(&text, &name)) {
            self.lines.extend(message.map(|said| said.span().start().line));
        }
    }
}

impl<'ast> Visit<'ast> for Twice {
    fn visit_variant(&mut self, variant: &'ast Variant) {
        self.look(&variant.attrs, &variant.fields);
        visit::visit_variant(self, variant);
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.look(&item.attrs, &item.fields);
        visit::visit_item_struct(self, item);
    }
}

/// The text of `#[error("text", ...)]`.
fn first_string(input: syn::parse::ParseStream<'_>) -> syn::Result<String> {
    let text: LitStr = input.parse()?;
    input.parse::<proc_macro2::TokenStream>()?;
    Ok(text.value())
}

/// Whether a format string shows the field of this name.
fn shows(text: &str, name: &str) -> bool {
    text.split('{').skip(1).any(|rest| {
        let shown = rest.split(['}', ':']).next().unwrap_or_default();
        shown == name
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::places;

    #[test]
    fn a_source_in_its_error_s_message_is_found() {
        let text = "enum E {\n\
            #[error(\"one: {0}\")]\n A(#[from] F),\n\
            #[error(\"two: {why:?}\", 1)]\n B { #[source] why: F },\n\
            #[error(\"three {what}: {source}\")]\n C { what: u8, source: F },\n\
            #[error(\"four: {0}\")]\n D(u8),\n\
            #[error(\"five\")]\n E(#[from] F),\n\
            #[error(transparent)]\n G(#[from] F),\n}\n\
            #[error(\"six: {0}\")]\nstruct S(#[source] F);";
        let found = places(said_once, &[("crates/a/src/lib.rs", text)]);
        let lines = [2, 4, 6, 15].map(|line| format!("crates/a/src/lib.rs:{line}"));
        assert_eq!(found, lines);
    }
}
