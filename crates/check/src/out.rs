//! What is printed. Standard output may be full, or nobody may read it any more: that is an error,
//! for what was found is not told. What goes to standard error comes with a status.

use std::fmt::Display;
use std::io::{Write as _, stderr, stdout};

use crate::unchecked::Unchecked;

/// Prints results.
///
/// # Errors
/// They cannot be written.
pub fn say(text: impl Display) -> anyhow::Result<()> {
    let said = writeln!(stdout(), "{text}");
    Ok(said.map_err(|error| Unchecked(format!("the results cannot be written: {error}")))?)
}

/// Tells what is to be known of a run besides.
pub fn tell(text: impl Display) {
    // The status tells where nobody can read it.
    let _ = writeln!(stderr(), "{text}");
}
