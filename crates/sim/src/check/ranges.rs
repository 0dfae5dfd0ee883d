//! Who is inside which range: a plain list that every range lock must agree with.

use std::ops::Range;

use super::Access;

/// The ranges that are held, one entry for each grant.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    held: Vec<(u16, Range<u64>, Access)>,
}

impl Ranges {
    /// A client enters a range.
    ///
    /// # Errors
    /// Who is in a part of it already, and excludes it.
    pub fn enter(&mut self, who: u16, range: Range<u64>, access: Access) -> Result<(), String> {
        let conflict = self.held.iter().find(|(_, held, held_as)| {
            let shared = (access, *held_as) == (Access::Shared, Access::Shared);
            !shared && held.start < range.end && range.start < held.end
        });
        if let Some((other, held, held_as)) = conflict {
            return Err(format!(
                "client {who} enters {range:?} {access:?} while client {other} is in {held:?} \
                 {held_as:?}"
            ));
        }
        self.held.push((who, range, access));
        Ok(())
    }

    /// It leaves.
    ///
    /// # Errors
    /// If it was not there.
    pub fn leave(&mut self, who: u16, range: &Range<u64>) -> Result<(), String> {
        let entry = self.held.iter().position(|(holder, held, _)| *holder == who && held == range);
        let entry = entry.ok_or_else(|| format!("client {who} leaves {range:?} and was not in"))?;
        self.held.swap_remove(entry);
        Ok(())
    }

    /// A client died: its ranges are nobody's, once the repairer says so.
    pub fn forget(&mut self, who: u16) {
        self.held.retain(|(holder, ..)| *holder != who);
    }

    /// Whether all have left.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_what_a_word_in_common_says() {
        let cells = 0..6_u64;
        for (a, b) in cells.clone().flat_map(|a| cells.clone().map(move |b| (a, b))) {
            for (c, d) in cells.clone().flat_map(|c| cells.clone().map(move |d| (c, d))) {
                if a >= b || c >= d {
                    continue;
                }
                let common = (a..b).any(|cell| (c..d).contains(&cell));
                for (first, second) in [
                    (Access::Shared, Access::Shared),
                    (Access::Shared, Access::Exclusive),
                    (Access::Exclusive, Access::Shared),
                    (Access::Exclusive, Access::Exclusive),
                ] {
                    let mut ranges = Ranges::default();
                    ranges.enter(1, a..b, first).expect("nobody is there");
                    let excluded =
                        common && (first == Access::Exclusive || second == Access::Exclusive);
                    assert_eq!(ranges.enter(2, c..d, second).is_err(), excluded);
                }
            }
        }
    }

    #[test]
    fn who_left_or_died_excludes_nobody() {
        let mut ranges = Ranges::default();
        ranges.enter(1, 0..10, Access::Exclusive).expect("nobody is there");
        ranges.enter(2, 10..20, Access::Exclusive).expect("only neighbours");
        assert!(ranges.leave(2, &(0..10)).is_err());
        ranges.leave(1, &(0..10)).expect("it is there");
        ranges.forget(2);
        assert!(ranges.is_empty());
        ranges.enter(3, 0..20, Access::Exclusive).expect("all have gone");
    }
}
