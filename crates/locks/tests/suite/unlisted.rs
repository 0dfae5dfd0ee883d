//! A lock that no list has, of one file: what the suite asks of locks it asks of this one too,
//! which leases and counts, and it is told nothing else of it. The checker plays it as well.

use farlock_fabric::Nanos;
use farlock_locks::registry::Visitor;

use crate::lapse::Lapse;
use crate::setting::Player;
use crate::sim::SimStage;
use crate::{LEASE_NS, crash, every_case, every_local_case, lease};

/// So often does a waiter look, about once in a round trip.
const POLL_NS: Nanos = 20_000;
/// So far apart are clocks in these worlds at most.
const CLOCK_ERROR_NS: Nanos = 1_000_000;

fn lasting(lease_ns: Nanos) -> Lapse {
    Lapse { lease_ns, clock_error_ns: CLOCK_ERROR_NS, poll_ns: POLL_NS }
}

macro_rules! of_one_file {
    ($name:ident, $case:path) => {
        #[test]
        fn $name() {
            let stage = &mut SimStage::new(1);
            Player { stage, spec: "lapse", case: $case }.visit(lasting(LEASE_NS));
        }
    };
}

every_case!(of_one_file);
every_local_case!(of_one_file);

#[test]
fn one_client_dies_at_any_verb() {
    crash::one_dies(&lasting(LEASE_NS));
}

#[test]
fn holders_lose_it_after_a_while() {
    (0..20).for_each(|seed| lease::every_story(&lasting(lease::LEASE_NS), seed));
}
