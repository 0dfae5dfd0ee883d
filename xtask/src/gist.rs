//! What of a step's output is worth saying again at the end of a run, where people look first.

use std::collections::VecDeque;

/// Lines kept of what a test harness says about failures.
const FAILURES_MAX: usize = 120;
/// Lines kept of a step's end.
const LAST_MAX: usize = 40;

/// What a harness said about tests that failed, and the last lines of all.
#[derive(Default, Debug)]
pub(crate) struct Gist {
    failures: Vec<String>,
    last: VecDeque<String>,
    among_failures: bool,
}

impl Gist {
    /// Takes the next line of the output.
    pub(crate) fn hear(&mut self, line: &str) {
        if line == "failures:" {
            self.among_failures = true;
        } else if line.starts_with("test result:") {
            self.among_failures = false;
        }
        if self.among_failures {
            if self.failures.len() < FAILURES_MAX {
                self.failures.push(line.to_owned());
            }
            return;
        }
        if self.last.len() == LAST_MAX {
            self.last.pop_front();
        }
        self.last.push_back(line.to_owned());
    }

    /// The lines kept, failures first.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.failures.iter().chain(&self.last).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gist(lines: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut gist = Gist::default();
        lines.into_iter().for_each(|line| gist.hear(&line));
        gist.lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_failed_long_ago_is_kept() {
        let early = ["test a ... FAILED", "failures:", "---- a stdout ----", "test result: FAILED"];
        let later = (0..1000).map(|n| format!("test {n} ... ok"));
        let kept = gist(early.map(str::to_owned).into_iter().chain(later));
        assert_eq!(kept[..2], ["failures:", "---- a stdout ----"]);
        assert_eq!(kept.last().map(String::as_str), Some("test 999 ... ok"));
        assert_eq!(kept.len(), 2 + LAST_MAX);
    }

    #[test]
    fn a_flood_of_failures_is_cut() {
        let flood = (0..1000).map(|n| format!("test {n} panicked"));
        let kept = gist(std::iter::once("failures:".to_owned()).chain(flood));
        assert_eq!(kept.len(), FAILURES_MAX);
    }
}
