//! What goes to standard output. It may be full, or nobody may read it any more: that is an error.

use std::fmt::Display;
use std::io::{Write as _, stdout};

use anyhow::Context;

/// Prints a line, or several.
pub(crate) fn say(text: impl Display) -> anyhow::Result<()> {
    writeln!(stdout(), "{text}").context("the results cannot be written")
}
