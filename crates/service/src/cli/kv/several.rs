//! Commands for one key or several: what is amiss with one keeps no other from its turn.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use farlock::{Kv, KvError, Token};

use super::lines::Line;
use super::refused::{for_people, no_such_key};
use crate::cli::report::{Exit, Failure, printed, say};

/// How values are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Its bytes and a line's end.
    Value,
    /// Its bytes.
    Raw,
    /// A line, with the key.
    Line,
}

/// Prints the values of keys.
pub(super) fn get(store: &Kv, keys: &[OsString], form: Form) -> Result<Exit, Failure> {
    each(keys, |key| {
        let found = store.get(key).map_err(|error| of_key(keys, key, error))?;
        let mut value = found.ok_or_else(|| no_such_key(key))?;
        Ok(Some(match form {
            Form::Raw => value,
            Form::Value => {
                value.push(b'\n');
                value
            }
            Form::Line => {
                let mut line = Vec::new();
                let pair = Line { key: key.to_vec(), value: Some(value), ..Line::default() };
                pair.write(&mut line);
                line
            }
        }))
    })
}

/// Removes the values of keys.
pub(super) fn del(store: &Kv, keys: &[OsString], token: Option<u64>) -> Result<Exit, Failure> {
    each(keys, |key| {
        let was_there = match token {
            Some(token) => store.remove_fenced(key, Token::from(token)),
            None => store.remove(key),
        };
        if was_there.map_err(|error| of_key(keys, key, error))? {
            Ok(None)
        } else {
            Err(no_such_key(key))
        }
    })
}

/// What was amiss with one of these keys.
fn of_key(keys: &[OsString], key: &[u8], error: KvError) -> Failure {
    match keys {
        // Of one there is no doubt which it was.
        [_] => error.into(),
        _ => Failure::from(error).at(format_args!("the key '{}'", for_people(key))),
    }
}

/// Does the same with each key, prints what that gives, and says what was amiss. The exit status is
/// that of what went wrong worst.
fn each(
    keys: &[OsString],
    act: impl Fn(&[u8]) -> Result<Option<Vec<u8>>, Failure>,
) -> Result<Exit, Failure> {
    let mut exit = Exit::OK;
    for key in keys {
        match act(key.as_bytes()) {
            Ok(None) => {}
            Ok(Some(text)) => printed(io::stdout().write_all(&text))?,
            Err(failure) => {
                exit = if failure.exit.0 > exit.0 { failure.exit } else { exit };
                say(&failure);
            }
        }
    }
    Ok(exit)
}
