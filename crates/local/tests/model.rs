//! The lists grant exactly what a plain vector of held ranges would.
#![cfg(not(any(loom, shuttle)))]

use farlock_local::{ListEx, ListRw, Preference, Range, RawRangeLock, RawRangeRwLock};
use proptest::prelude::*;

/// What one thread asks for, one after another.
#[derive(Clone, Debug)]
enum Ask {
    Take { range: Range, shared: bool },
    GiveBack { which: usize },
}

/// Small ranges, wide ones, and those at both ends of all positions.
fn ranges() -> impl Strategy<Value = Range> {
    let few = (0_u64..40, 0_u64..12).prop_map(|(start, more)| (start, start + more));
    let end = (0_u64..40, 0_u64..12).prop_map(|(from, more)| {
        let last = u64::MAX - from;
        (last.saturating_sub(more), last)
    });
    prop_oneof![8 => few, 1 => end, 1 => Just((0, u64::MAX))]
        .prop_map(|(start, last)| Range::inclusive(start, last).expect("in order"))
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let ask = prop_oneof![
        3 => (ranges(), any::<bool>()).prop_map(|(range, shared)| Ask::Take { range, shared }),
        2 => any::<usize>().prop_map(|which| Ask::GiveBack { which }),
    ];
    prop::collection::vec(ask, 0..120)
}

/// Holds what the lock granted, and says what it should grant.
struct Model<T> {
    held: Vec<(Range, bool, T)>,
}

impl<T> Model<T> {
    fn allows(&self, range: Range, shared: bool) -> bool {
        self.held
            .iter()
            .all(|(theirs, they_share, _)| !theirs.overlaps(range) || (shared && *they_share))
    }
}

fn agree<L: RawRangeLock>(
    lock: &L,
    asks: Vec<Ask>,
    take: impl Fn(&L, Range, bool) -> Option<L::Token>,
) -> Result<(), TestCaseError> {
    let mut model = Model { held: Vec::new() };
    for ask in asks {
        match ask {
            Ask::Take { range, shared } => {
                let token = take(lock, range, shared);
                prop_assert_eq!(token.is_some(), model.allows(range, shared), "{}", range);
                model.held.extend(token.map(|token| (range, shared, token)));
            }
            Ask::GiveBack { which } if !model.held.is_empty() => {
                let which = which % model.held.len();
                lock.unlock(model.held.swap_remove(which).2);
            }
            Ask::GiveBack { .. } => {}
        }
    }
    for (_, _, token) in model.held {
        lock.unlock(token);
    }
    let all = lock.try_lock(Range::FULL);
    prop_assert!(all.is_some(), "something stayed behind");
    all.into_iter().for_each(|token| lock.unlock(token));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_exclusive_list_grants_what_the_model_grants(asks in asks()) {
        let exclusive = asks.into_iter().map(|ask| match ask {
            Ask::Take { range, .. } => Ask::Take { range, shared: false },
            other => other,
        });
        agree(&ListEx::new(), exclusive.collect(), |lock, range, _| lock.try_lock(range))?;
    }

    #[test]
    fn the_reader_writer_list_grants_what_the_model_grants(
        asks in asks(),
        readers in any::<bool>(),
    ) {
        let preference = if readers { Preference::Readers } else { Preference::Writers };
        agree(&ListRw::new(preference), asks, |lock, range, shared| {
            if shared { lock.try_lock_shared(range) } else { lock.try_lock(range) }
        })?;
    }
}
