//! What commands print: rows, as lines of JSON that say where they come from, or as a table.

use std::io::Write;

use comfy_table::Table;
use serde::Serialize;

use crate::provenance::Provenance;

pub(crate) use farlock_check::report::{table_by, table_of};

/// A row and where it comes from.
#[derive(Serialize)]
struct Line<'a, R> {
    #[serde(flatten)]
    row: &'a R,
    #[serde(flatten)]
    origin: &'a Provenance,
}

/// Prints these rows: a line of JSON each, or a table.
pub(crate) fn show<R: Serialize>(
    origin: &Provenance,
    json: bool,
    rows: &[R],
    table: impl FnOnce(&[R]) -> Table,
) -> anyhow::Result<()> {
    if json {
        return rows.iter().try_for_each(|row| line(origin, row));
    }
    Ok(writeln!(std::io::stdout(), "{}", table(rows))?)
}

/// Prints this row as a line of JSON.
pub(crate) fn line<R: Serialize>(origin: &Provenance, row: &R) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{}", serde_json::to_string(&Line { row, origin })?)?)
}
