//! Which locks transactions of TATP and TPC-C take: what CIDER's section 5.5 and ShiftLock's
//! section 5.4 run.
//!
//! Both take their requests from traces of FissLock (OSDI'24) that are not to be had. These are
//! drawn by the benchmarks' own rules, over the same locks: the rows of TATP, and of TPC-C regions
//! of tables. A transaction takes each lock once, in the stronger mode that it needs.

use farlock_locks::Mode;
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use Mode::{Exclusive, Shared};

/// Subscribers of TATP. With their rows of access info, of special facilities and of call
/// forwarding that makes about the 680,236 locks of the papers.
const SUBSCRIBERS: u32 = 100_000;
/// Rows of access info, and of special facilities, that a subscriber has at most; 1 to as many.
const ROWS_EACH_MAX: u32 = 4;
/// Locks of TATP's call forwarding: its rows share them.
const FORWARDINGS: u32 = SUBSCRIBERS * 4 / 5;
/// Locks of whole tables of TATP. No transaction takes them.
const TABLES: u32 = 4;
/// `A` of TATP's non-uniform choice of a subscriber, where there are up to a million of them.
const SUBSCRIBER_A: u32 = 65_535;

/// Machines of TPC-C's clients. Those of one use its own warehouses only.
const MACHINES: u32 = 5;
/// Warehouses of each.
const WAREHOUSES_EACH: u32 = 100;
/// Districts of a warehouse.
const DISTRICTS: u32 = 10;
/// Customers of a district, and how many of them share a lock.
const CUSTOMERS: (u32, u32) = (3_000, 1_000);
/// Items, of each of which a warehouse has a stock, and regions of the stocks of a warehouse.
const STOCKS: (u32, u32) = (100_000, 30);
/// Customers that have one name, where one is asked for by name.
const NAMESAKES: usize = 3;
/// The most locks of a transaction, as ShiftLock's artifact has room for.
const LOCKS_EACH_MAX: usize = 16;

/// Where the locks of a warehouse lie, from its first one on.
mod place {
    use super::{CUSTOMERS, DISTRICTS, STOCKS};

    pub(super) const WAREHOUSE: u32 = 0;
    pub(super) const DISTRICT: u32 = WAREHOUSE + 1;
    pub(super) const CUSTOMER: u32 = DISTRICT + DISTRICTS;
    pub(super) const ORDER: u32 = CUSTOMER + DISTRICTS * (CUSTOMERS.0 / CUSTOMERS.1);
    pub(super) const HISTORY: u32 = ORDER + DISTRICTS;
    pub(super) const NEW_ORDER: u32 = HISTORY + DISTRICTS;
    pub(super) const ORDER_LINE: u32 = NEW_ORDER + DISTRICTS;
    pub(super) const STOCK: u32 = ORDER_LINE + DISTRICTS;
    /// Ten of items, which nobody locks, come last.
    pub(super) const ALL: u32 = STOCK + STOCKS.1 + 10;
}

/// Whose transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// Of TATP: one to three rows of 100,000 subscribers; most are read.
    Tatp,
    /// Of TPC-C: up to 16 regions of the tables of 500 warehouses, 100 for each of five machines of
    /// clients; most are written.
    Tpcc,
}

/// The locks of a transaction, in the order in which it comes to them.
#[derive(Default)]
struct Wanted(Vec<(u32, Mode)>);

impl Wanted {
    /// Takes this one as well, or in a stronger mode. What is too much is left out.
    fn add(&mut self, lock: u32, mode: Mode) {
        let place = self.0.iter().position(|&(known, _)| known == lock);
        match place {
            Some(place) if mode == Exclusive => self.0[place].1 = mode,
            None if self.0.len() < LOCKS_EACH_MAX => self.0.push((lock, mode)),
            _ => {}
        }
    }
}

impl Mix {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tatp => "tatp",
            Self::Tpcc => "tpcc",
        }
    }

    /// How many locks there are.
    pub fn locks(self) -> u64 {
        u64::from(match self {
            Self::Tatp => TABLES + SUBSCRIBERS * (1 + 2 * ROWS_EACH_MAX) + FORWARDINGS,
            Self::Tpcc => MACHINES * WAREHOUSES_EACH * place::ALL,
        })
    }

    /// How many of them a transaction takes at most.
    pub fn locks_each_max(self) -> u8 {
        match self {
            Self::Tatp => 3,
            Self::Tpcc => LOCKS_EACH_MAX as u8,
        }
    }

    /// Requests in a hundred that are shared.
    pub fn reads(self) -> u8 {
        match self {
            Self::Tatp => 81,
            Self::Tpcc => 21,
        }
    }

    /// What the next transaction takes, of the client with this number among so many.
    pub fn draw(self, rng: &mut impl Rng, client: usize, clients: usize) -> Vec<(u32, Mode)> {
        match self {
            Self::Tatp => tatp(rng),
            Self::Tpcc => tpcc(rng, (client * MACHINES as usize / clients) as u32),
        }
    }
}

/// The benchmarks' non-uniform choice of a number below `most`: `most` evenly, or with what has
/// more bits below `a`.
fn non_uniform(rng: &mut impl Rng, a: u32, most: u32) -> u32 {
    (rng.random_range(0..=a) | rng.random_range(0..most)) % most
}

/// How many rows of this kind a subscriber has: as good as random, and always the same.
fn rows_of(subscriber: u32, kind: u32) -> u32 {
    1 + ((subscriber * 2 + kind).wrapping_mul(0x9e37_79b9) >> 16) % ROWS_EACH_MAX
}

fn tatp(rng: &mut impl Rng) -> Vec<(u32, Mode)> {
    let subscriber = non_uniform(rng, SUBSCRIBER_A, SUBSCRIBERS);
    let has = |kind: u32| rows_of(subscriber, kind);
    let rows = |kind: u32| TABLES + SUBSCRIBERS * (1 + kind * ROWS_EACH_MAX);
    let row_of = |kind: u32, number: u32| rows(kind) + subscriber * ROWS_EACH_MAX + number;
    let row = TABLES + subscriber;
    let info = row_of(0, rng.random_range(0..has(0)));
    let number = rng.random_range(0..has(1));
    let facility = row_of(1, number);
    // A forwarding is of a facility, from one of three hours of the day on.
    let hour = rng.random_range(0..3);
    let hashed = ((subscriber * ROWS_EACH_MAX + number) * 3 + hour).wrapping_mul(0x85eb_ca6b);
    let forwarding = rows(2) + hashed % FORWARDINGS;
    match rng.random_range(0..100) {
        0..35 => vec![(row, Shared)],
        35..45 => vec![(facility, Shared), (forwarding, Shared)],
        45..80 => vec![(info, Shared)],
        80..82 => vec![(row, Exclusive), (facility, Exclusive)],
        82..96 => vec![(row, Exclusive)],
        96..98 => vec![(row, Shared), (facility, Shared), (forwarding, Exclusive)],
        _ => vec![(row, Shared), (forwarding, Exclusive)],
    }
}

/// Where the locks of any warehouse of this machine begin.
fn warehouse(rng: &mut impl Rng, machine: u32) -> u32 {
    (machine * WAREHOUSES_EACH + rng.random_range(0..WAREHOUSES_EACH)) * place::ALL
}

fn tpcc(rng: &mut impl Rng, machine: u32) -> Vec<(u32, Mode)> {
    let home = warehouse(rng, machine);
    let district = rng.random_range(0..DISTRICTS);
    let of_district = |kind: u32| home + kind + district;
    let mut wanted = Wanted::default();
    match rng.random_range(0..100) {
        0..45 => {
            wanted.add(home + place::WAREHOUSE, Shared);
            wanted.add(of_district(place::DISTRICT), Exclusive);
            wanted.add(customer(rng, home, district), Shared);
            wanted.add(of_district(place::ORDER), Exclusive);
            wanted.add(of_district(place::NEW_ORDER), Exclusive);
            wanted.add(of_district(place::ORDER_LINE), Exclusive);
            for _ in 0..rng.random_range(5..=15) {
                // One in a hundred is another warehouse's.
                let from =
                    if rng.random_range(0..100) == 0 { warehouse(rng, machine) } else { home };
                wanted.add(stock(rng, from), Exclusive);
            }
        }
        45..88 => {
            wanted.add(home + place::WAREHOUSE, Exclusive);
            wanted.add(of_district(place::DISTRICT), Exclusive);
            // Fifteen in a hundred are of a customer of another warehouse.
            let remote = rng.random_range(0..100) < 15;
            let (from, of) = match remote {
                true => (warehouse(rng, machine), rng.random_range(0..DISTRICTS)),
                false => (home, district),
            };
            asked_for(rng, &mut wanted, from, of, Exclusive);
            wanted.add(of_district(place::HISTORY), Exclusive);
        }
        88..92 => {
            asked_for(rng, &mut wanted, home, district, Shared);
            wanted.add(of_district(place::ORDER), Shared);
            wanted.add(of_district(place::ORDER_LINE), Shared);
        }
        92..96 => {
            // Each district may be a transaction of its own (TPC-C, clause 2.7.2).
            wanted.add(of_district(place::NEW_ORDER), Exclusive);
            wanted.add(of_district(place::ORDER), Exclusive);
            wanted.add(of_district(place::ORDER_LINE), Exclusive);
            wanted.add(customer(rng, home, district), Exclusive);
        }
        _ => {
            wanted.add(of_district(place::DISTRICT), Shared);
            wanted.add(of_district(place::ORDER_LINE), Shared);
            // Twenty orders of ten lines.
            (0..200).for_each(|_| wanted.add(stock(rng, home), Shared));
        }
    }
    wanted.0
}

/// Of a customer who is asked for, by name six times of ten: then all of that name are read, and
/// the one in the middle is meant.
fn asked_for(rng: &mut impl Rng, wanted: &mut Wanted, home: u32, district: u32, mode: Mode) {
    wanted.add(customer(rng, home, district), mode);
    if rng.random_range(0..10) < 6 {
        (1..NAMESAKES).for_each(|_| wanted.add(customer(rng, home, district), Shared));
    }
}

fn customer(rng: &mut impl Rng, home: u32, district: u32) -> u32 {
    let (all, share) = CUSTOMERS;
    home + place::CUSTOMER + district * (all / share) + non_uniform(rng, 1_023, all) / share
}

fn stock(rng: &mut impl Rng, home: u32) -> u32 {
    let (items, regions) = STOCKS;
    home + place::STOCK + non_uniform(rng, 8_191, items) / items.div_ceil(regions)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// So many transactions, of clients that take turns.
    fn drawn(mix: Mix, count: usize) -> Vec<Vec<(u32, Mode)>> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        (0..count).map(|number| mix.draw(&mut rng, number % 320, 320)).collect()
    }

    #[test]
    fn each_lock_is_there_and_taken_once() {
        for mix in [Mix::Tatp, Mix::Tpcc] {
            for wanted in drawn(mix, 20_000) {
                let locks: BTreeSet<u32> = wanted.iter().map(|&(lock, _)| lock).collect();
                assert!(locks.len() == wanted.len() && !locks.is_empty(), "{mix:?}: {wanted:?}");
                assert!(wanted.len() <= mix.locks_each_max().into(), "{mix:?}: {wanted:?}");
                assert!(locks.iter().all(|&lock| u64::from(lock) < mix.locks()), "{wanted:?}");
            }
        }
    }

    /// Of the requests of the traces 80.6 and 13.5 are (ShiftLock, section 5.4).
    #[test]
    fn so_many_of_a_hundred_requests_are_shared() {
        for mix in [Mix::Tatp, Mix::Tpcc] {
            let all = drawn(mix, 100_000).concat();
            let shared = all.iter().filter(|(_, mode)| *mode == Shared).count();
            let reads = shared as f64 / all.len() as f64 * 100.0;
            assert_eq!(reads.round(), f64::from(mix.reads()), "{mix:?}: {reads}");
        }
    }

    #[test]
    fn the_locks_of_the_papers_are_used() {
        // 60,490 are up to the highest that is used: the last warehouse ends with items.
        assert_eq!(Mix::Tpcc.locks() - 10, 60_490);
        let highest = drawn(Mix::Tpcc, 200_000).concat().into_iter().map(|(lock, _)| lock).max();
        assert_eq!(highest, Some(60_489));
        let rows = |subscriber| u64::from(rows_of(subscriber, 0) + rows_of(subscriber, 1));
        let exist: u64 = (0..SUBSCRIBERS).map(rows).sum();
        let all = exist + u64::from(TABLES + SUBSCRIBERS + FORWARDINGS);
        assert!(all.abs_diff(680_236) < 3_000, "{all}");
    }

    #[test]
    fn clients_of_one_machine_use_its_own_warehouses() {
        for (client, warehouses) in [(0, 0..100), (319, 400..500)] {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
            for _ in 0..10_000 {
                for (lock, _) in Mix::Tpcc.draw(&mut rng, client, 320) {
                    assert!(warehouses.contains(&(lock / place::ALL)), "{client}: {lock}");
                }
            }
        }
    }
}
