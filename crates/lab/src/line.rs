//! A subcommand's arguments as one line of text: what a figure says, or a test.

use anyhow::Context;
use clap::{Args, Parser};

/// Of an option that stands twice the later one counts.
#[derive(Parser)]
#[command(no_binary_name = true, args_override_self = true)]
struct Line<A: Args> {
    #[command(flatten)]
    args: A,
}

/// What this line says.
///
/// # Errors
/// It is not understood.
pub(crate) fn arguments<A: Args>(line: &str) -> anyhow::Result<A> {
    let parsed = Line::try_parse_from(line.split_whitespace());
    Ok(parsed.with_context(|| line.to_owned())?.args)
}
