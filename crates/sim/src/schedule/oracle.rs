//! What decides one run after another.

use crate::oracle::Oracle;

/// An oracle for one run after another.
pub trait Schedule: Oracle {
    /// Gets ready for the next run. False if there is none: every run has been.
    fn begin(&mut self) -> bool;
}
