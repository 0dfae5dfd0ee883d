//! What an acquisition that came through hands out.

use super::pool::Entry;

/// The right to a range of a [`ListEx`](crate::ListEx) or [`ListRw`](crate::ListRw).
///
/// Giving it to another list than its own releases the range all the same. Losing it leaves the
/// range locked for ever.
#[must_use = "a lost token leaves its range locked"]
pub struct Token {
    pub(super) entry: &'static Entry,
}

impl Token {
    pub(super) fn new(entry: &'static Entry) -> Self {
        Self { entry }
    }
}
