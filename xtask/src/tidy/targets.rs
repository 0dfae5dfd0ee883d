//! The targets of a package: where their roots are, which files belong to them, and what of these
//! exists for tests only.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, Expr, Item, Meta};

use super::tree::{Tree, folder, name, resolve};

/// The folder in which the modules lie that the file at `path` declares.
pub(super) fn below(path: &str, is_root: bool) -> &str {
    let owns_folder = is_root || name(path) == "mod.rs";
    if owns_folder { folder(path) } else { path.trim_end_matches(".rs") }
}

/// The roots of targets: where cargo looks by itself, and what manifests name.
pub(super) fn roots(tree: &Tree) -> BTreeSet<String> {
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
pub(super) fn modules(items: &[Item], beside: &str, below: &str) -> Vec<String> {
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
        Meta::NameValue(pair) if pair.path.is_ident("path") => string(&pair.value),
        _ => None,
    })
}

/// The string that `expression` is, if it is one.
fn string(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// Whether an item exists for tests only: `#[test]`, or a `cfg` that asks for `test`.
pub(super) fn for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            let tokens = list.tokens.to_string();
            !tokens.contains("not") && !lines_of_word(list.tokens.clone(), "test").is_empty()
        }
        _ => false,
    })
}

/// The lines on which `word` stands among tokens.
pub(super) fn lines_of_word(tokens: TokenStream, word: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => lines.extend(lines_of_word(group.stream(), word)),
            TokenTree::Ident(ident) if ident == word => lines.push(ident.span().start().line),
            _ => {}
        }
    }
    lines
}
