//! What commands print: rows, as lines of JSON that say where they come from, or as a table.

use std::io::Write;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use crate::provenance::Provenance;

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

/// A table whose first `texts` columns are words and whose others are numbers.
pub(crate) fn table_of(
    header: &[&str],
    texts: usize,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(texts) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
