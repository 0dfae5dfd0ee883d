//! Keys and values as they are written on the command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::lines::unescape;
use super::refused::for_people;
use crate::cli::report::Failure;

/// How keys and values are written on the command line.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Written {
    /// Keys and values are given as lines show them, with \t, \n, \r, \\ and \xHH in them. Without
    /// this each byte stands for itself, a backslash too.
    #[arg(long)]
    escaped: bool,
}

impl Written {
    /// The bytes that are meant.
    pub(super) fn bytes(self, word: OsString) -> Result<Vec<u8>, Failure> {
        let word = word.into_vec();
        if !self.escaped {
            return Ok(word);
        }
        unescape(&word).map_err(|why| {
            let what = format!("'{}': {why}", for_people(&word));
            Failure::usage(what, "without --escaped each byte stands for itself")
        })
    }

    /// Puts the bytes that are meant in the place of a word.
    pub(super) fn decode(self, word: &mut OsString) -> Result<(), Failure> {
        *word = OsString::from_vec(self.bytes(std::mem::take(word))?);
        Ok(())
    }
}
