//! Rules about Rust text: that it parses, and where `unsafe` may stand.

use proc_macro2::TokenStream;
use syn::Meta;

use super::targets::lines_of_word;
use super::tree::{File, Finding, Tree};

/// Where `unsafe` may stand: these files, and what lies under these folders.
const UNSAFE_PLACES: [&str; 7] = [
    "crates/fabric/src/shm/",
    "crates/fabric/src/rdma/",
    "crates/local/",
    "crates/service/src/capi.rs",
    "crates/service/src/cli/entry.rs",
    "crates/service/src/cli/inherited.rs",
    "crates/service/tests/fork.rs",
];

/// Crates whose roots forbid `unsafe` altogether.
const SAFE_CRATES: [&str; 5] = ["locks", "sim", "kv", "check", "lab"];

/// A file that does not parse is judged by no other rule, so it is a finding itself.
pub(super) fn parses(tree: &Tree) -> Vec<Finding> {
    let broken = tree.rust().filter(|file| file.syntax.is_none());
    broken.map(|file| Finding::new(&file.path, 0, "does not parse")).collect()
}

/// `unsafe` stands in few places, all known.
pub(super) fn unsafe_in_its_places(tree: &Tree) -> Vec<Finding> {
    let allowed = |path: &str| {
        UNSAFE_PLACES.iter().any(|place| match place.strip_suffix('/') {
            Some(_) => path.starts_with(place),
            None => path == *place,
        })
    };
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !allowed(&file.path)) {
        let Ok(tokens) = file.text.parse::<TokenStream>() else { continue };
        for line in lines_of_word(tokens, "unsafe") {
            findings.push(Finding::new(&file.path, line, "`unsafe` may not stand here"));
        }
    }
    findings
}

/// The compiler itself keeps `unsafe` out of the crates that need none.
pub(super) fn unsafe_forbidden(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for crate_name in SAFE_CRATES {
        for root in ["lib.rs", "main.rs"] {
            let path = format!("crates/{crate_name}/src/{root}");
            let Some(file) = tree.get(&path) else { continue };
            if !forbids_unsafe(file) {
                let message = "the crate root must say `#![forbid(unsafe_code)]`";
                findings.push(Finding::new(&path, 1, message));
            }
        }
    }
    findings
}

fn forbids_unsafe(file: &File) -> bool {
    let attributes = file.syntax.as_ref().map_or(&[][..], |syntax| &syntax.attrs);
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("forbid") => {
            !lines_of_word(list.tokens.clone(), "unsafe_code").is_empty()
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::places;

    #[test]
    fn text_that_is_no_rust_is_found() {
        assert_eq!(places(parses, &[("a.rs", "fn f( {")]), ["a.rs:0"]);
    }

    #[test]
    fn unsafe_is_found_outside_its_places_and_not_in_words() {
        let text = "//! unsafe\n#![deny(unsafe_code)]\nfn f() -> &'static str { \"unsafe\" }\n";
        let block = format!("{text}fn g() {{ unsafe {{}} }}");
        assert!(places(unsafe_in_its_places, &[("crates/fabric/src/verb.rs", text)]).is_empty());
        for path in ["crates/fabric/src/verb.rs", "crates/service/src/capi.rs.rs"] {
            assert_eq!(places(unsafe_in_its_places, &[(path, &block)]), [format!("{path}:4")]);
        }
        for path in ["crates/fabric/src/shm/map.rs", "crates/service/src/capi.rs"] {
            assert!(places(unsafe_in_its_places, &[(path, &block)]).is_empty());
        }
        let in_macro = "macro_rules! m { () => { unsafe {} } }";
        assert_eq!(places(unsafe_in_its_places, &[("a.rs", in_macro)]), ["a.rs:1"]);
    }

    #[test]
    fn a_safe_crate_forbids_unsafe_at_its_root() {
        let root = "crates/locks/src/lib.rs";
        assert_eq!(
            places(unsafe_forbidden, &[(root, "#![deny(unsafe_code)]")]),
            ["crates/locks/src/lib.rs:1"]
        );
        assert!(places(unsafe_forbidden, &[(root, "#![forbid(unsafe_code)]")]).is_empty());
    }
}
