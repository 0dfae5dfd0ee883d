//! The address space against a plain table of pages, and among threads that own parts of it.
#![cfg(feature = "baseline")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::thread;

use farlock_local::address_space::{
    AddressSpace, Area, FaultError, HEAP_START, PAGE, ProtectError, Protection, Refinement,
};
use farlock_local::baseline::{Park, Single, TreeRw};
use farlock_local::{ListRw, Range, RawRangeRwLock};
use proptest::prelude::*;

/// Pages of the model, the first of which lies at 16 pages.
const PAGES: u64 = 24;
const BASE: u64 = 16 * PAGE;

#[derive(Clone, Debug)]
enum Step {
    Map(u64, u64, Protection),
    Unmap(u64, u64),
    Protect(u64, u64, Protection),
    Fault(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let protection = || {
        prop_oneof![
            Just(Protection::NONE),
            Just(Protection::READ),
            Just(Protection::READ | Protection::WRITE)
        ]
    };
    let span = || (0..PAGES, 1..=PAGES).prop_map(|(from, n)| (from, n.min(PAGES - from).min(7)));
    let step = prop_oneof![
        (span(), protection()).prop_map(|((from, n), to)| Step::Map(from, n, to)),
        span().prop_map(|(from, n)| Step::Unmap(from, n)),
        (span(), protection()).prop_map(|((from, n), to)| Step::Protect(from, n, to)),
        (span(), protection()).prop_map(|((from, n), to)| Step::Protect(from, n, to)),
        (0..PAGES).prop_map(Step::Fault),
    ];
    proptest::collection::vec(step, 1..200)
}

/// Areas as the table has them: as few as can be.
fn areas_of(table: &[Option<Protection>]) -> Vec<Area> {
    let mut areas: Vec<Area> = Vec::new();
    for (page, protection) in (0..).zip(table) {
        let Some(protection) = *protection else { continue };
        let start = BASE + page * PAGE;
        let end = start + PAGE;
        match areas.last_mut() {
            Some(last) if last.range.last() + 1 == start && last.protection == protection => {
                last.range = Range::new(last.range.start(), end).unwrap();
            }
            _ => areas.push(Area { range: Range::new(start, end).unwrap(), protection }),
        }
    }
    areas
}

fn like_a_table<L: RawRangeRwLock + Default>(
    refinement: Refinement,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let space = AddressSpace::<L>::new(refinement);
    let mut table = vec![None; PAGES as usize];
    for step in steps {
        match *step {
            Step::Map(from, n, protection) => {
                let pages = &mut table[from as usize..(from + n) as usize];
                let free = pages.iter().all(Option::is_none);
                let done = space.mmap_at(BASE + from * PAGE, n * PAGE, protection);
                prop_assert_eq!(done.is_ok(), free);
                if free {
                    pages.fill(Some(protection));
                }
            }
            Step::Unmap(from, n) => {
                table[from as usize..(from + n) as usize].fill(None);
                space.munmap(BASE + from * PAGE, n * PAGE).unwrap();
            }
            Step::Protect(from, n, protection) => {
                let pages = &mut table[from as usize..(from + n) as usize];
                let hole = (from..).zip(pages.iter()).find(|(_, page)| page.is_none());
                let expected = match hole {
                    Some((at, _)) => Err(ProtectError::Unmapped { at: BASE + at * PAGE }),
                    None => {
                        pages.fill(Some(protection));
                        Ok(())
                    }
                };
                let done = space.mprotect(BASE + from * PAGE, n * PAGE, protection);
                prop_assert_eq!(done, expected);
            }
            Step::Fault(page) => {
                let done = space.page_fault(BASE + page * PAGE + 77, Protection::READ);
                let expected = match table[page as usize] {
                    None => Err(FaultError::Unmapped),
                    Some(Protection::NONE) => Err(FaultError::Forbidden(Protection::NONE)),
                    Some(protection) => Ok(protection),
                };
                prop_assert_eq!(done.map(|area| area.protection), expected);
            }
        }
        prop_assert_eq!(space.areas(), areas_of(&table));
    }
    Ok(())
}

proptest! {
    #[test]
    fn it_is_a_table_of_pages(steps in steps()) {
        like_a_table::<ListRw>(Refinement::REFINED, &steps)?;
        like_a_table::<Single>(Refinement::FULL, &steps)?;
    }
}

/// Each thread grows and shrinks what is usable of its own part, beside the others', while some
/// change the structure all the time; its faults always tell what it did last.
fn each_thread_sees_its_own_part<L: RawRangeRwLock + Default>(refinement: Refinement) {
    const THREADS: u64 = 4;
    const PART: u64 = 64;
    const ROUNDS: u64 = 1_500;
    let usable = Protection::READ | Protection::WRITE;
    let space = AddressSpace::<L>::new(refinement);
    space.mmap_at(BASE, THREADS * PART * PAGE, Protection::NONE).unwrap();
    let work = |index: u64| {
        let part = BASE + index * PART * PAGE;
        let (mut used, mut dice) = (0, index + 1);
        for round in 0..ROUNDS {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let target = (dice >> 33) % (PART + 1);
            let (from, to) = (target.min(used), target.max(used));
            let protection = if target > used { usable } else { Protection::NONE };
            if from < to {
                space.mprotect(part + from * PAGE, (to - from) * PAGE, protection).unwrap();
            }
            used = target;
            for page in [0, used.saturating_sub(1), used, PART - 1].map(|page| page.min(PART - 1)) {
                let fault = space.page_fault(part + page * PAGE, Protection::WRITE);
                assert_eq!(fault.is_ok(), page < used, "page {page} of {used}: {fault:?}");
            }
            if round.is_multiple_of(64) {
                let away = space.mmap(PAGE, Protection::READ).unwrap();
                space.munmap(away, PAGE).unwrap();
            }
        }
        used
    };
    let used: Vec<u64> = thread::scope(|scope| {
        let spawn = |index| scope.spawn(move || work(index));
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let of_part = |used: u64| (0..PART).map(move |page| page < used);
    let table: Vec<_> = used
        .into_iter()
        .flat_map(of_part)
        .map(|usable_page| Some(if usable_page { usable } else { Protection::NONE }))
        .collect();
    assert_eq!(space.areas(), areas_of(&table));
}

#[test]
fn threads_do_not_lose_each_others_changes() {
    each_thread_sees_its_own_part::<ListRw>(Refinement::REFINED);
    each_thread_sees_its_own_part::<TreeRw<Park>>(Refinement::REFINED);
    each_thread_sees_its_own_part::<Single>(Refinement::FULL);
}

#[test]
fn an_arena_grows_and_shrinks_by_speculation() {
    let space = AddressSpace::<ListRw>::new(Refinement::REFINED);
    let arena = space.mmap(16_384 * PAGE, Protection::NONE).unwrap();
    for page in 0..1_000 {
        space.mprotect(arena + page * PAGE, PAGE, Protection::READ).unwrap();
    }
    space.mprotect(arena + PAGE, 999 * PAGE, Protection::NONE).unwrap();
    let counts = space.counts();
    assert_eq!((counts.unspeculated, counts.speculated), (1, 1_000), "only the first splits");
}

#[test]
fn the_heap_grows_and_shrinks() {
    let space = AddressSpace::<ListRw>::new(Refinement::REFINED);
    space.brk(HEAP_START + 3 * PAGE).unwrap();
    assert!(space.page_fault(HEAP_START + 3 * PAGE - 1, Protection::WRITE).is_ok());
    space.brk(HEAP_START + PAGE).unwrap();
    assert!(space.page_fault(HEAP_START + PAGE, Protection::READ).is_err());
    space.mmap_at(HEAP_START + 2 * PAGE, PAGE, Protection::READ).unwrap();
    assert!(space.brk(HEAP_START + 4 * PAGE).is_err(), "something is in the way");
    assert!(space.page_fault(HEAP_START + PAGE, Protection::READ).is_err());
}
