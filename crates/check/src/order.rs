//! The order in which a lock promises to be granted, and what a grant out of it is called.

use farlock_sim::check::Passed;

/// What order a lock is held to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// Writers are granted in the order in which they got in line, but so many that come later may
    /// pass between two of them.
    pub writers: Option<u32>,
    /// A waiting writer keeps later readers out, and a waiting reader sees at most so many writers
    /// granted.
    pub readers: Option<u16>,
    /// So many rounds of readers pass a waiting writer at most, where no other one is granted.
    pub rounds: Option<u16>,
    /// Of rounds of any others, and any waiter.
    pub rounds_of_all: bool,
    /// Of writers that come later so many pass one in line, at most.
    pub passes: Option<u32>,
    /// Readers stand in the same line as writers, and count as they do.
    pub one_line: bool,
}

impl Order {
    /// What this lock promises.
    pub fn promised(order: farlock_locks::Order) -> Self {
        let (writers, readers) = (order.bypass_max, order.writers_before_reader);
        let (rounds, one_line) = (order.rounds_before_writer, order.readers_in_line);
        Self { writers, readers, rounds, one_line, ..Self::default() }
    }

    /// What is left of it where clients hand their holds on so often among their tasks: if the lock
    /// is first come, first served, each of the others has one hold before who is in line.
    pub fn handed_on(order: farlock_locks::Order, handovers_max: u32) -> Self {
        let in_order = order.bypass_max == Some(0);
        Self { passes: in_order.then_some(1 + handovers_max), ..Self::default() }
    }

    /// The same where a client has so many others beside it.
    #[must_use]
    pub fn beside(self, others: u32) -> Self {
        Self { passes: self.passes.map(|most| most * others), ..self }
    }

    /// The same where so many give up: a client that gives up still takes its turn, which nobody
    /// sees, and ends one row of those that pass.
    #[must_use]
    pub fn with_turns_unseen(self, turns: u32) -> Self {
        Self { writers: self.writers.map(|most| most * (1 + turns)), ..self }
    }

    /// Whether an atomic gets its client in line. Where newcomers may pass those in line, or try
    /// before they get in line, one that changes nothing was an attempt.
    pub fn gets_in_line(self, changes: bool) -> bool {
        changes || !self.one_line && self.writers.is_none_or(|most| most == 0)
    }

    /// Whether there is a line to hold the lock to.
    pub fn is_of_line(self) -> bool {
        Self { rounds: None, rounds_of_all: false, ..self } != Self::default()
    }

    /// What is wrong if so many rounds of readers have passed writer `who`.
    pub fn objection_to_rounds(self, who: u16, rounds: u32) -> Option<String> {
        let most = self.rounds.filter(|&most| rounds > u32::from(most))?;
        let (others, waiter) =
            if self.rounds_of_all { ("others", "client") } else { ("readers", "writer") };
        Some(format!(
            "{rounds} rounds of {others} that came later passed {waiter} {who}, not {most}"
        ))
    }

    /// What is wrong with the grant of `who`, who passed these.
    pub fn objection(self, who: u16, passed: Passed) -> Option<String> {
        if self.writers.is_some_and(|most| passed.in_a_row > most) {
            let (before, row) = (passed.writers, passed.in_a_row);
            return Some(format!(
                "client {who} was granted before {before} that came earlier, the {row}. in a row"
            ));
        }
        if self.passes.is_some_and(|most| passed.by > most) {
            return Some(format!("client {who} was granted after {} that came later", passed.by));
        }
        let bound = self.readers?;
        if let Some(writer) = passed.writer_kept_out {
            return Some(format!("reader {who} was let in before writer {writer}, who was first"));
        }
        let (reader, writers) = passed.reader?;
        (writers > u32::from(bound))
            .then(|| format!("reader {reader} has seen {writers} writers granted, not {bound}"))
    }
}
