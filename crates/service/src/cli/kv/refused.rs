//! Answers that are refusals, in words: exit status 1.

use farlock::text::shown;

use crate::cli::report::{Exit, Failure};

/// A refusal that is an answer: status 1.
pub(super) fn refused(code: &'static str, what: impl std::fmt::Display, hint: &str) -> Failure {
    Failure::new(Exit::CONFLICT, code, what.to_string(), hint.to_owned())
}

/// A key or value, for people.
pub(super) fn for_people(bytes: &[u8]) -> String {
    shown(&String::from_utf8_lossy(bytes))
}

pub(super) fn no_such_key(key: &[u8]) -> Failure {
    refused("no-such-key", format_args!("there is no key '{}'", for_people(key)), "")
}

/// What was to be new is not.
pub(super) fn has_a_value(key: &[u8]) -> Failure {
    let what = format_args!("the key '{}' has a value", for_people(key));
    refused("key-exists", what, "without --new it gets another one")
}

pub(super) fn no_such_store(name: &str) -> Failure {
    refused(
        "no-such-store",
        format_args!("there is no store '{}'", shown(name)),
        "`farlock kv put` makes it; `farlock kv ls` names those there are",
    )
}

/// Whether it was done; else why not.
pub(super) fn is_put(done: bool, why: impl FnOnce() -> Failure) -> Result<(), Failure> {
    if done { Ok(()) } else { Err(why()) }
}
