//! Where the fencing tokens of a region begin: above those of every region of its name before.
//!
//! Tokens begin with an incarnation of 16 bits. It is a day, and the first count below it is the
//! time of that day, so what is drawn later is greater by the clock alone: as a service or as a
//! person, with another home, on a disk that was lost, in a container without one. Counts grow by
//! one for each grant, far slower than the nanoseconds in which they begin. What was drawn is kept
//! on disk as well, before a region carries it: where the clock went back, the next one is one day
//! later than the last.
//!
//! So tokens go back only where the clock does *and* what was kept is lost or out of reach.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use super::file::{PrivateDir, io_error};
use crate::connection::Origin;
use crate::error::ConnectError;

/// The day before the first incarnation: 2025-12-31, counted from 1970-01-01.
const DAY_ZERO: u64 = 20_453;
const SECONDS_OF_A_DAY: u64 = 24 * 60 * 60;

/// The nanoseconds of a day have so many bits.
const FIRST_COUNT_BITS: u32 = 47;
/// A first count is below this.
const FIRST_COUNT_END: u64 = 1 << FIRST_COUNT_BITS;

impl Origin {
    /// The word of it: not zero, and in the order of origins.
    pub(super) fn to_word(self) -> u64 {
        u64::from(self.incarnation) << FIRST_COUNT_BITS | self.first_count
    }

    /// What a word says; `None` where it is out of range.
    pub(super) fn of_word(word: u64) -> Option<Self> {
        let incarnation = u16::try_from(word >> FIRST_COUNT_BITS).ok()?;
        let first_count = word & (FIRST_COUNT_END - 1);
        (incarnation != 0).then_some(Self { incarnation, first_count })
    }

    /// The least.
    pub(super) const FIRST: Self = Self { incarnation: 1, first_count: 0 };

    /// That of this time, by the clock alone; `None` when its days are used up, in 2205.
    fn at(now: SystemTime) -> Option<Self> {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let Some(day) = (since.as_secs() / SECONDS_OF_A_DAY).checked_sub(DAY_ZERO + 1) else {
            // A clock that was never set.
            return Some(Self::FIRST);
        };
        let of_day = since.as_secs() % SECONDS_OF_A_DAY * 1_000_000_000;
        let first_count = of_day + u64::from(since.subsec_nanos());
        Some(Self { incarnation: u16::try_from(day + 1).ok()?, first_count })
    }

    /// The next one after `last` at this time.
    fn after(last: Option<Self>, now: SystemTime) -> Option<Self> {
        let by_clock = Self::at(now);
        let Some(last) = last else { return by_clock };
        let mut next = match by_clock {
            Some(by_clock) if by_clock > last => by_clock,
            _ => Self { incarnation: last.incarnation.checked_add(1)?, first_count: 0 },
        };
        if next.first_endpoints() == last.first_endpoints() {
            next.first_count += 1;
        }
        Some(next)
    }

    /// The incarnation of the first endpoint of each place. It is another one after a reset, so
    /// that an endpoint's name from before is not soon given to another endpoint.
    pub(super) fn first_endpoints(self) -> u16 {
        /// 2^64 over the golden ratio: of numbers that follow each other, the upper bits are far
        /// apart.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let of_day = u64::from(self.incarnation) << 48;
        let mixed = (of_day | self.first_count).wrapping_mul(SPREAD);
        // Below zero, which is none.
        ((mixed >> 48) as u16).max(1)
    }
}

/// Draws the next origin of region `name`, above any drawn before and above `floor`, which a region
/// before it carried. On return it is durable, where the state is within reach. Several may draw at
/// one time; each draws another one, and nobody waits.
pub(super) fn draw(
    state: Result<PrivateDir, ConnectError>,
    name: &str,
    floor: Option<Origin>,
    now: SystemTime,
) -> Result<Origin, ConnectError> {
    let next = |last| {
        let exhausted = || ConnectError::IncarnationsExhausted { name: name.to_owned() };
        Origin::after(last, now).ok_or_else(exhausted)
    };
    let drawn = state.and_then(|state| {
        loop {
            let next = next(kept(&state, name)?.max(floor))?;
            if keep(&state, name, next)? {
                return Ok(next);
            }
        }
    });
    match drawn {
        Err(error) if is_out_of_reach(&error) => next(floor),
        drawn => drawn,
    }
}

/// Makes sure that what is kept is at least `seen`, which a region carries. It can be lower only
/// where it was lost.
pub(super) fn repair(
    state: Result<PrivateDir, ConnectError>,
    name: &str,
    seen: Origin,
) -> Result<(), ConnectError> {
    let repaired = state.and_then(|state| {
        // Asked for by its name, for that is cheaper than to list all.
        if state.inode(&file_name(name, seen))?.is_none() && kept(&state, name)? < Some(seen) {
            keep(&state, name, seen)?;
        }
        Ok(())
    });
    match repaired {
        Err(error) if is_out_of_reach(&error) => Ok(()),
        repaired => repaired,
    }
}

/// Whether a directory keeps what is drawn for region `name`: else the clock has to do.
///
/// # Errors
/// Why it cannot.
pub(super) fn check(
    state: Result<PrivateDir, ConnectError>,
    name: &str,
) -> Result<(), ConnectError> {
    let state = state?;
    if kept(&state, name)?.is_some() {
        return state.check_writable();
    }
    // Of no region: none has a name that begins so. Others may be trying it too.
    let tried = format!(".{name}.tried");
    state.create_file(&tried)?;
    state.remove_file(&tried).map(|_| ())
}

/// Whether nothing can be kept there: the disk is read only or full, the directory another user's,
/// or none as that of users without a home. Then the clock has to do.
fn is_out_of_reach(error: &ConnectError) -> bool {
    use io::ErrorKind::{
        NotADirectory, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull,
    };
    match error {
        ConnectError::Untrusted { .. } => true,
        ConnectError::Io { source, .. } => matches!(
            source.kind(),
            NotADirectory
                | NotFound
                | PermissionDenied
                | QuotaExceeded
                | ReadOnlyFilesystem
                | StorageFull
        ),
        _ => false,
    }
}

/// How the names of the files begin that keep what was drawn for a region. Each is an origin: a
/// name is made in one step that only one can make, and no step makes what is kept less.
fn prefix_of(name: &str) -> String {
    format!("{name}.incarnation.")
}

fn file_name(name: &str, origin: Origin) -> String {
    format!("{}{}-{}", prefix_of(name), origin.incarnation, origin.first_count)
}

/// The greatest origin that is kept.
fn kept(state: &PrivateDir, name: &str) -> Result<Option<Origin>, ConnectError> {
    let prefix = prefix_of(name);
    let mut greatest = None;
    for file in state.names()? {
        // Of a region whose name begins as this one does, and goes on.
        let Some(text) = file.strip_prefix(&prefix).filter(|text| is_numbers(text)) else {
            continue;
        };
        let Some(origin) = parse(text) else {
            let found = text.to_owned();
            return Err(ConnectError::IncarnationUnreadable { path: state.path_of(&file), found });
        };
        greatest = greatest.max(Some(origin));
    }
    Ok(greatest)
}

fn is_numbers(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

fn parse(text: &str) -> Option<Origin> {
    let (incarnation, first_count) = text.split_once('-')?;
    let origin =
        Origin { incarnation: incarnation.parse().ok()?, first_count: first_count.parse().ok()? };
    (origin >= Origin::FIRST && origin.first_count < FIRST_COUNT_END).then_some(origin)
}

/// Keeps an origin, so that a power failure does not lose it, and forgets those below it. Returns
/// whether it was not kept before.
fn keep(state: &PrivateDir, name: &str, origin: Origin) -> Result<bool, ConnectError> {
    let file_name = file_name(name, origin);
    let Some(file) = state.create_file(&file_name)? else { return Ok(false) };
    let path = state.path_of(&file_name);
    file.sync_all().map_err(|source| io_error("write", &path, source))?;
    rustix::fs::fsync(state.fd()).map_err(|e| io_error("make durable", &path, e.into()))?;
    let prefix = prefix_of(name);
    let older = |file: &String| {
        let kept = file.strip_prefix(&prefix).and_then(parse);
        kept.is_some_and(|kept| kept < origin)
    };
    for file in state.names()?.into_iter().filter(older) {
        // One that stays is in nobody's way.
        let _ = state.remove_file(&file);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::shm::testing::TestDir;

    /// So many seconds after 2026-06-01 began.
    fn june(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(20_605 * SECONDS_OF_A_DAY + seconds)
    }

    fn draw_at(dir: &Path, leftover: Option<Origin>, now: SystemTime) -> Origin {
        draw(PrivateDir::open(dir), "a", leftover, now).unwrap()
    }

    #[test]
    fn an_origin_is_a_day_and_the_time_of_it() {
        let at = |now| Origin::at(now).unwrap();
        assert_eq!(at(UNIX_EPOCH), Origin::FIRST);
        assert_eq!(at(june(2)), Origin { incarnation: 152, first_count: 2_000_000_000 });
        let last = june(SECONDS_OF_A_DAY) - Duration::from_nanos(1);
        assert_eq!(at(last).incarnation, 152);
        assert!(at(last).first_count < FIRST_COUNT_END && at(last) < at(june(SECONDS_OF_A_DAY)));
        let in_2250 = UNIX_EPOCH + Duration::from_secs(280 * 366 * SECONDS_OF_A_DAY);
        assert_eq!(Origin::at(in_2250), None);
    }

    #[test]
    fn the_first_endpoints_after_a_reset_are_others() {
        let mut last = Origin::at(june(0)).unwrap();
        for micros in 0..200_000 {
            let now = june(1) + Duration::from_micros(micros);
            let next = Origin::after(Some(last), now).unwrap();
            assert!(next > last && next.first_endpoints() != last.first_endpoints());
            last = next;
        }
        for count in 0..200_000 {
            let one = Origin { incarnation: 7, first_count: count };
            let next = Origin { incarnation: 7, first_count: count + 1 };
            assert_ne!(one.first_endpoints(), next.first_endpoints());
        }
    }

    #[test]
    fn origins_increase_whatever_the_clock_does() {
        let dir = TestDir::new("draw");
        let state = dir.path().join("state");
        let clocks = [0, 5, 5, 4, 3, 90_000, 80_000, 400_000, 400_000, 0, 1_000_000];
        let drawn: Vec<Origin> =
            clocks.iter().map(|seconds| draw_at(&state, None, june(*seconds))).collect();
        assert!(drawn.is_sorted_by(|a, b| a < b), "{drawn:?}");
        assert_eq!(drawn.last(), Origin::at(june(1_000_000)).as_ref(), "the clock has caught up");
    }

    /// A service and a person, a reboot, another home, a fresh disk: what is kept is another, or
    /// nothing, and the clock went on.
    #[test]
    fn origins_increase_wherever_they_are_kept() {
        let dir = TestDir::new("homes");
        let homes = ["one", "two", "three"].map(|home| dir.path().join(home));
        let mut last = None;
        for turn in 0..60_usize {
            let home = &homes[turn * 7 % 3];
            if turn % 5 == 0 {
                let _ = std::fs::remove_dir_all(home);
            }
            let drawn = draw_at(home, None, june(turn as u64 * 10_000));
            assert!(last < Some(drawn), "turn {turn}: {drawn:?} after {last:?}");
            last = Some(drawn);
        }
    }

    #[test]
    fn what_a_region_carries_is_repaired_and_surpassed() {
        let dir = TestDir::new("seen");
        let state = dir.path().join("state");
        let seen = Origin { incarnation: 500, first_count: 7 };
        repair(PrivateDir::open(&state), "a", seen).unwrap();
        repair(PrivateDir::open(&state), "a", Origin::FIRST).unwrap();
        let drawn = draw_at(&state, None, june(0));
        assert_eq!(drawn, Origin { incarnation: 501, first_count: 0 });
        let leftover = Origin { incarnation: 700, first_count: 7 };
        assert_eq!(draw_at(&state, Some(leftover), june(0)).incarnation, 701);
    }

    #[test]
    fn a_directory_that_keeps_nothing_is_told_from_one_that_does() {
        let dir = TestDir::new("check");
        let (state, file) = (dir.path().join("state"), dir.path().join("file"));
        let check = |path: &Path| check(PrivateDir::open(path), "a");
        check(&state).unwrap();
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0, "nothing is left of the look");
        draw_at(&state, None, june(0));
        check(&state).unwrap();
        std::fs::write(&file, "").unwrap();
        for unusable in [&file, &file.join("below"), Path::new("/proc")] {
            assert!(check(unusable).is_err(), "{unusable:?}");
        }
    }

    #[test]
    fn without_a_place_to_keep_it_the_clock_has_to_do() {
        let dir = TestDir::new("reach");
        let state = dir.path().join("state");
        let refused = || {
            let source = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
            Err(io_error("create", &state, source))
        };
        let drawn = draw(refused(), "a", None, june(9)).unwrap();
        assert_eq!(Some(drawn), Origin::at(june(9)));
        assert!(draw(refused(), "a", Some(drawn), june(8)).unwrap() > drawn);
        repair(refused(), "a", drawn).unwrap();
    }

    #[test]
    fn the_last_incarnation_has_no_successor() {
        let dir = TestDir::new("exhausted");
        let state = dir.path().join("state");
        let last = Origin { incarnation: u16::MAX, first_count: 0 };
        let drawn = draw(PrivateDir::open(&state), "a", Some(last), june(0));
        assert!(matches!(drawn, Err(ConnectError::IncarnationsExhausted { .. })));
    }

    #[test]
    fn an_unreadable_incarnation_is_not_taken_for_none() {
        let dir = TestDir::new("unreadable");
        let path = dir.path().join("state");
        let state = PrivateDir::open(&path).unwrap();
        for damaged in ["", "0-0", "65536-0", "1", "-1-0", "1-", "1-140737488355328", "1-0-"] {
            let file = state.create_file(&format!("{}{damaged}", prefix_of("a"))).unwrap();
            let drawn = draw(PrivateDir::open(&path), "a", None, june(0));
            let is_refused = matches!(drawn, Err(ConnectError::IncarnationUnreadable { .. }));
            assert!(is_refused && file.is_some(), "{damaged:?} gave {drawn:?}");
            assert!(state.remove_file(&format!("{}{damaged}", prefix_of("a"))).unwrap());
        }
    }

    #[test]
    fn what_is_kept_for_one_region_is_not_anothers() {
        let dir = TestDir::new("names");
        let state = PrivateDir::open(&dir.path().join("state")).unwrap();
        let high = Origin { incarnation: 900, first_count: 1 };
        for name in ["ab", "a.incarnation", "a.incarnation.1-2", "a.incarnation.x"] {
            assert!(keep(&state, name, high).unwrap());
        }
        assert_eq!(kept(&state, "a").unwrap(), None);
        assert!(keep(&state, "a", Origin::FIRST).unwrap());
        assert!(!keep(&state, "a", Origin::FIRST).unwrap());
        assert_eq!(kept(&state, "a").unwrap(), Some(Origin::FIRST));
        assert_eq!(kept(&state, "a.incarnation").unwrap(), Some(high));
    }

    #[test]
    fn an_origin_is_a_word_and_back() {
        let end = FIRST_COUNT_END - 1;
        let rows = [(1, 0), (1, end), (2, 0), (u16::MAX, end)];
        let origins = rows.map(|(incarnation, first_count)| Origin { incarnation, first_count });
        assert!(origins.is_sorted_by_key(|origin| origin.to_word()));
        for origin in origins {
            assert_eq!(Origin::of_word(origin.to_word()), Some(origin));
        }
        for word in [0, end, u64::MAX] {
            assert_eq!(Origin::of_word(word), None);
        }
    }

    #[test]
    fn concurrent_creators_draw_different_origins() {
        let dir = TestDir::new("concurrent");
        let path = dir.path().join("state");
        let draw_some = || (0..5).map(|_| draw_at(&path, None, june(0))).collect::<Vec<_>>();
        let mut drawn: Vec<Origin> = std::thread::scope(|scope| {
            let drawers: Vec<_> = (0..4).map(|_| scope.spawn(draw_some)).collect();
            drawers.into_iter().flat_map(|drawer| drawer.join().unwrap()).collect()
        });
        drawn.sort_unstable();
        assert!(drawn.is_sorted_by(|a, b| a < b), "{drawn:?}");
    }
}
