//! Specification of ranges by a server: what was let go of is free once that is said.
#![allow(clippy::unwrap_used)]

mod stage;

use farlock::Session;
use stage::Stage;
use stage::serving::Serving;

const TURNS: usize = 40;

/// How often another session's try was refused.
fn refused(other: &Session) -> bool {
    let tried = other.range("rows").exclusive(2..3).at_once().blocking();
    tried.map(|held| held.release().blocking().unwrap()).is_err()
}

#[test]
fn a_part_that_was_unlocked_is_free() {
    let stage = Stage::new();
    let server = Serving::on(&stage);
    let (one, other) = (server.session(), server.session());
    let rows = one.range("rows");
    for (start, end) in [(0, 5), (2, 5), (0, 3)] {
        let shared = (0..TURNS).filter(|_| {
            let kept = rows.shared(start..end).blocking().unwrap().unlock(2..3).unwrap();
            let is_refused = refused(&other);
            kept.into_iter().for_each(|part| part.release().blocking().unwrap());
            is_refused
        });
        assert_eq!(shared.count(), 0, "shared, {start}..{end}");
        let exclusive = (0..TURNS).filter(|_| {
            let kept = rows.exclusive(start..end).blocking().unwrap().unlock(2..3).unwrap();
            let is_refused = refused(&other);
            kept.into_iter().for_each(|part| part.release().blocking().unwrap());
            is_refused
        });
        assert_eq!(exclusive.count(), 0, "exclusive, {start}..{end}");
    }
}

#[test]
fn what_was_released_is_free() {
    let stage = Stage::new();
    let server = Serving::on(&stage);
    let (one, other) = (server.session(), server.session());
    let rows = one.range("rows");
    for turn in 0..TURNS {
        rows.shared(0..5).blocking().unwrap().release().blocking().unwrap();
        assert!(!refused(&other), "shared, {turn}");
        assert!(rows.shared(0..5).blocking().unwrap().unlock(..).unwrap().is_empty());
        assert!(!refused(&other), "unlocked, {turn}");
        let (first, rest) = rows.shared(0..5).blocking().unwrap().split_at(3).unwrap();
        first.release().blocking().unwrap();
        assert!(!refused(&other), "split, {turn}");
        rest.release().blocking().unwrap();
    }
}
