//! What the checker prints: a line of JSON or a row of a table for each subject.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table};
use serde::Serialize;

use crate::verdict::Befell;

/// What came of one subject in one mode.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The lock.
    pub protocol: String,
    /// How it was checked.
    pub mode: String,
    /// Clients of each run.
    pub clients: u16,
    /// Acquisitions of each client.
    pub acquisitions: u16,
    /// Runs.
    pub schedules: u64,
    /// Of the runs, how many had which depth of PCT; 0 is uniformly random.
    pub by_depth: Vec<u64>,
    /// Different states met at choices; 0 where they are not remembered.
    pub states: u64,
    /// Every schedule was explored.
    pub complete: bool,
    /// Verbs of roles at which a client can die, times three ends.
    pub crash_points: usize,
    /// Of those, how many deaths have happened.
    pub crash_points_covered: usize,
    /// In how many runs the death that happened least did.
    pub crash_point_schedules_min: u64,
    /// Deaths with a verb that a client posts to repair what they leave, times three ends.
    pub crash_pairs: usize,
    /// Of those, at how many of these verbs a client died as well.
    pub crash_pairs_covered: usize,
    /// The verbs of roles, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verbs: Vec<String>,
    /// Runs in which a client found another dead, and went on.
    pub recoveries: u64,
    /// Runs in which exclusion, tokens, order or cleanliness was violated, or an assertion.
    pub violations: u64,
    /// Runs in which a client waits for ever.
    pub stalls: u64,
    /// How often a waiter was passed at most.
    pub bypass_max: u32,
    /// What befell the runs.
    pub befell: Befell,
    /// Wall time.
    pub seconds: f64,
    /// The seed.
    pub seed: u64,
    /// What happened, where something did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub story: Option<String>,
    /// What `farlock-lab replay` takes to show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
}

/// What came of one exhibit.
#[derive(Clone, Debug, Serialize)]
pub struct ExhibitRow {
    /// The exhibit.
    pub exhibit: String,
    /// Whether its bug was found.
    pub found: bool,
    /// After how many runs.
    pub schedules: u64,
    /// Within how many it must be.
    pub budget: u64,
    /// What happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub story: Option<String>,
    /// What `farlock-lab replay` takes to show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
}

/// What a column says of a row, and whether it says anything.
type Column = (&'static str, fn(&Row) -> String, fn(&Row) -> bool);

/// All columns, numbers behind the lock. Which of them there are depends on what was played.
const COLUMNS: [Column; 13] = [
    ("lock", |row| row.protocol.clone(), |_| true),
    ("size", |row| format!("{}x{}", row.clients, row.acquisitions), |_| true),
    ("schedules", |row| row.schedules.to_string(), |_| true),
    ("states", |row| row.states.to_string(), |row| row.states > 0),
    ("complete", |row| if row.complete { "yes" } else { "-" }.to_owned(), |row| row.states > 0),
    (
        "crash points",
        |row| format!("{}/{}", row.crash_points_covered, row.crash_points),
        |row| row.crash_points > 0,
    ),
    ("each in", |row| row.crash_point_schedules_min.to_string(), |row| row.crash_points > 0),
    (
        "in repair",
        |row| format!("{}/{}", row.crash_pairs_covered, row.crash_pairs),
        |row| row.crash_pairs > 0,
    ),
    ("deaths", |row| row.befell.deaths.to_string(), |row| row.befell.deaths > 0),
    ("violations", |row| row.violations.to_string(), |_| true),
    ("stalls", |row| row.stalls.to_string(), |_| true),
    ("passed", |row| row.bypass_max.to_string(), |row| row.bypass_max > 0),
    ("/s", |row| format!("{:.0}", row.schedules as f64 / row.seconds.max(1e-9)), |_| true),
];

/// Rows as people read them: of all columns those that say something.
pub fn table(rows: &[Row]) -> Table {
    let columns = COLUMNS.iter().filter(|(_, _, says)| rows.iter().any(says));
    let columns: Vec<&Column> = columns.collect();
    let header: Vec<&str> = columns.iter().map(|(name, ..)| *name).collect();
    let cells = |row| columns.iter().map(|(_, cell, _)| cell(row)).collect::<Vec<_>>();
    table_of(&header, 1, rows.iter().map(cells))
}

/// Exhibits as people read them.
pub fn exhibits(rows: &[ExhibitRow]) -> Table {
    table_by(5, rows, |row| {
        [
            ("exhibit", row.exhibit.clone()),
            ("found", if row.found { "yes" } else { "NO" }.to_owned()),
            ("schedules", row.schedules.to_string()),
            ("budget", row.budget.to_string()),
            ("as", row.story.clone().unwrap_or_default()),
        ]
    })
}

/// A table of rows, each of which gives the names of the columns with what it says there.
pub fn table_by<R, const N: usize>(
    texts: usize,
    rows: &[R],
    columns: impl Fn(&R) -> [(&'static str, String); N],
) -> Table {
    let header = rows.first().map(|row| columns(row).map(|(name, _)| name));
    let cells = |row| columns(row).map(|(_, cell)| cell);
    table_of(header.as_ref().map_or(&[], |header| header), texts, rows.iter().map(cells))
}

/// A table whose first `texts` columns are words and whose others are numbers.
pub fn table_of(
    header: &[&str],
    texts: usize,
    rows: impl IntoIterator<Item = impl Into<comfy_table::Row>>,
) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    // Within the width of a terminal, if it goes to one.
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    table.add_rows(rows);
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        if number < texts {
            column.set_constraint(ColumnConstraint::ContentWidth);
        } else {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
