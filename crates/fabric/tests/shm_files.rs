//! Files of shared memory: who may be trusted, what is durable, what a full filesystem does.
#![cfg(all(feature = "shm", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

#[path = "shm_support/mod.rs"]
mod support;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farlock_fabric::shm::{GrowError, Options, Region};
use farlock_fabric::{ConnectError, Endpoint, Fault, Malformed, Verb, block_on};
use support::TestDir;

fn dir_of(dir: &TestDir) -> PathBuf {
    dir.options().dir
}

fn file_of(dir: &TestDir) -> PathBuf {
    dir_of(dir).join("test")
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn files_in(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn untrusted(dir: &TestDir) -> &'static str {
    match Region::open(&dir.options()) {
        Err(ConnectError::Untrusted { why, .. }) => why,
        other => panic!("opened, or failed otherwise: {other:?}"),
    }
}

#[test]
fn what_is_made_is_closed_to_others() {
    let dir = TestDir::new("modes");
    let _region = dir.region();
    assert_eq!(mode_of(&dir_of(&dir)), 0o700);
    assert_eq!(mode_of(&file_of(&dir)), 0o600);
    let [kept] = files_in(&dir.options().state_dir).try_into().unwrap();
    assert_eq!(mode_of(&kept), 0o600);
}

#[test]
fn a_directory_that_others_can_write_to_is_refused() {
    let dir = TestDir::new("dir-mode");
    drop(dir.region());
    for mode in [0o720, 0o702, 0o777] {
        fs::set_permissions(dir_of(&dir), Permissions::from_mode(mode)).unwrap();
        assert_eq!(untrusted(&dir), "others can write to it", "{mode:o}");
    }
    fs::set_permissions(dir_of(&dir), Permissions::from_mode(0o755)).unwrap();
    assert!(Region::open(&dir.options()).is_ok());
}

/// It was moved away there, and the next one made another region of the same name.
#[test]
fn a_directory_that_anybody_can_move_away_is_refused() {
    let dir = TestDir::new("files-above");
    drop(Region::open(&dir.options()).unwrap());
    let above = dir_of(&dir).parent().unwrap().to_owned();
    for (mode, is_refused) in [(0o777, true), (0o1777, false), (0o775, false)] {
        fs::set_permissions(&above, Permissions::from_mode(mode)).unwrap();
        let opened = Region::open(&dir.options());
        assert_eq!(opened.is_err(), is_refused, "{mode:o}");
    }
    fs::set_permissions(&above, Permissions::from_mode(0o777)).unwrap();
    assert_eq!(untrusted(&dir), "everybody can move away what is below it");
    fs::set_permissions(&above, Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_file_that_others_have_rights_to_is_refused() {
    let dir = TestDir::new("file-mode");
    drop(dir.region());
    fs::set_permissions(file_of(&dir), Permissions::from_mode(0o640)).unwrap();
    assert_eq!(untrusted(&dir), "others have rights to it");
}

#[test]
fn links_are_not_followed() {
    let dir = TestDir::new("links");
    drop(dir.region());
    let elsewhere = dir.path().join("elsewhere");
    fs::rename(file_of(&dir), &elsewhere).unwrap();
    symlink(&elsewhere, file_of(&dir)).unwrap();
    assert_eq!(untrusted(&dir), "it is a symbolic link");

    fs::rename(dir_of(&dir), dir.path().join("moved")).unwrap();
    symlink(dir.path().join("moved"), dir_of(&dir)).unwrap();
    assert_eq!(untrusted(&dir), "it is not a directory, or a symbolic link");
}

#[test]
fn what_is_no_file_is_refused() {
    let dir = TestDir::new("no-file");
    drop(dir.region());
    fs::remove_file(file_of(&dir)).unwrap();
    let fifo = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(file_of(&dir)).status();
    assert!(fifo.unwrap().success());
    assert_eq!(untrusted(&dir), "it is not a regular file");
}

#[test]
fn another_users_file_is_refused() {
    let dir = TestDir::new("owner");
    drop(dir.region());
    if std::os::unix::fs::chown(file_of(&dir), Some(65_534), None).is_err() {
        println!("SKIP other-owner: only root may give a file away");
        return;
    }
    assert_eq!(untrusted(&dir), "another user owns it");
    std::os::unix::fs::chown(dir_of(&dir), Some(65_534), None).unwrap();
    assert_eq!(untrusted(&dir), "another user owns it");
}

#[test]
fn a_damaged_region_is_refused() {
    let dir = TestDir::new("damaged");
    let before = dir.region().origin();
    let file = File::options().write(true).open(file_of(&dir)).unwrap();
    let bytes = file.metadata().unwrap().len();
    let malformed = || match Region::open(&dir.options()) {
        Err(ConnectError::Malformed { why, .. }) => why,
        other => panic!("opened, or failed otherwise: {other:?}"),
    };
    file.set_len(bytes - 1).unwrap();
    assert_eq!(malformed(), Malformed::Truncated);
    file.write_all_at(&[1], 24).unwrap();
    assert_eq!(malformed(), Malformed::Layout);
    file.write_all_at(b"garbage", 0).unwrap();
    assert_eq!(malformed(), Malformed::Magic);
    file.set_len(10).unwrap();
    assert_eq!(malformed(), Malformed::Short);
    assert!(Region::remove(&dir_of(&dir), "test").unwrap(), "but it can be removed");
    assert!(dir.region().origin() > before);
}

#[test]
fn an_unused_region_alone_is_removed() {
    let dir = TestDir::new("unused");
    let region = dir.region();
    let remove = || Region::remove_unused(&dir_of(&dir), "test");
    let endpoint = region.endpoint().unwrap();
    let refused = remove();
    assert!(matches!(refused, Err(ConnectError::InUse { .. })), "{refused:?}");
    let reset = Region::reset_unused(&dir.options());
    assert!(matches!(reset, Err(ConnectError::InUse { .. })), "{reset:?}");
    block_on(&endpoint, endpoint.faa64(region.heap().0, 1)).unwrap();
    drop(region.endpoint().unwrap());
    // Its header is damaged: a command is seen by what it holds beside the file.
    let command = region.endpoint_tethered().unwrap();
    drop(endpoint);
    let header = File::options().write(true).open(file_of(&dir)).unwrap();
    header.write_all_at(b"garbage", 0).unwrap();
    let refused = remove();
    assert!(matches!(refused, Err(ConnectError::InUse { .. })), "{refused:?}");
    drop(command);
    assert!(remove().unwrap());
    assert!(!remove().unwrap());
}

#[test]
fn a_region_is_not_found_behind_a_directory_that_was_moved() {
    let dir = TestDir::new("moved");
    let region = dir.region();
    let (usual, moved) = (dir_of(&dir), dir_of(&dir).with_extension("moved"));
    fs::rename(&usual, &moved).unwrap();
    assert!(!region.is_deleted(), "nobody finds another one");
    let other = dir.region();
    assert!(region.is_deleted() && !other.is_deleted());
    fs::remove_dir_all(&usual).unwrap();
    fs::rename(&moved, &usual).unwrap();
    assert!(!region.is_deleted() && other.is_deleted());
}

/// An endpoint that is attached when the region is looked at keeps it, and a newcomer meanwhile
/// gets it or another one.
#[test]
fn a_region_is_not_removed_under_who_attaches() {
    let dir = TestDir::new("unused-race");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let users: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut served = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let region = dir.region();
                        let endpoint = match region.endpoint() {
                            Err(ConnectError::Stale) => continue,
                            attached => attached.unwrap(),
                        };
                        for _ in 0..100 {
                            block_on(&endpoint, endpoint.faa64(region.heap().0, 1)).unwrap();
                        }
                        served += 1;
                    }
                    served
                })
            })
            .collect();
        let mut removed = 0;
        let begun = Instant::now();
        while removed < 50 && begun.elapsed() < Duration::from_secs(20) {
            match Region::remove_unused(&dir_of(&dir), "test") {
                Ok(was_there) => removed += u64::from(was_there),
                Err(ConnectError::InUse { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let served: u64 = users.into_iter().map(|user| user.join().unwrap()).sum();
        assert!(removed > 0 && served > 0, "{removed} {served}");
    });
}

#[test]
fn a_size_damaged_later_is_not_believed() {
    let dir = TestDir::new("size-later");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let (at, bytes) = region.heap();
    let file = File::options().write(true).open(file_of(&dir)).unwrap();
    for size in [0, 1 << 20, (1 << 20) + 1, 1 << 40, u64::MAX] {
        file.write_all_at(&u64::to_le_bytes(size), 48).unwrap();
        assert_eq!(block_on(&e, e.faa64(at.plus(bytes), 1)), Err(Fault::OutOfBounds));
        block_on(&e, e.faa64(at, 1)).unwrap();
    }
}

#[test]
fn tokens_of_a_later_region_are_higher() {
    let dir = TestDir::new("durable");
    let first = dir.region().origin();
    assert_eq!(dir.region().origin(), first, "attaching draws none");
    fs::remove_file(file_of(&dir)).unwrap();
    let second = dir.region().origin();
    fs::remove_dir_all(dir_of(&dir)).unwrap();
    let third = dir.region().origin();
    assert!(Region::remove(&dir_of(&dir), "test").unwrap());
    assert!(!Region::remove(&dir_of(&dir), "test").unwrap());
    let fourth = dir.region().origin();
    // What was kept is lost, or out of reach: the clock goes on.
    fs::remove_file(file_of(&dir)).unwrap();
    fs::remove_dir_all(dir.options().state_dir).unwrap();
    let fifth = dir.region().origin();
    fs::remove_file(file_of(&dir)).unwrap();
    fs::set_permissions(dir.options().state_dir, Permissions::from_mode(0o777)).unwrap();
    let sixth = dir.region().origin();
    let drawn = [first, second, third, fourth, fifth, sixth];
    assert!(drawn.is_sorted_by(|a, b| a < b), "{drawn:?}");
}

#[test]
fn a_region_repairs_a_lost_origin() {
    let dir = TestDir::new("repair");
    drop(dir.region());
    let of_region = Region::reset(&dir.options()).unwrap().origin();
    let before = files_in(&dir.options().state_dir);
    assert_eq!(before.len(), 1, "what was drawn before is forgotten");
    fs::remove_dir_all(dir.options().state_dir).unwrap();
    assert_eq!(dir.region().origin(), of_region);
    assert_eq!(files_in(&dir.options().state_dir), before);
}

#[test]
fn exhausted_incarnations_are_an_error() {
    let dir = TestDir::new("exhausted");
    let state = dir.options().state_dir;
    fs::create_dir_all(&state).unwrap();
    fs::write(state.join("test.incarnation.65535-0"), "").unwrap();
    let opened = Region::open(&dir.options());
    assert!(matches!(opened, Err(ConnectError::IncarnationsExhausted { .. })), "{opened:?}");
}

#[test]
fn a_crashed_creator_and_a_crashed_remover_are_in_nobodys_way() {
    let dir = TestDir::new("leftovers");
    drop(dir.region());
    fs::remove_file(file_of(&dir)).unwrap();
    let (dead, living) = [".test.1.new", ".test.2.new"].map(|name| dir_of(&dir).join(name)).into();
    for half in [&dead, &living] {
        fs::write(half, "half a region").unwrap();
        fs::set_permissions(half, Permissions::from_mode(0o600)).unwrap();
    }
    let creator = File::open(&living).unwrap();
    creator.lock().unwrap();
    let before = dir.region().origin();
    assert!(!dead.exists() && living.exists());
    // A remover that died between retiring and removing leaves the word at 56 set.
    let file = File::options().write(true).open(file_of(&dir)).unwrap();
    file.write_all_at(&[1], 56).unwrap();
    let region = dir.region();
    assert!(region.origin() > before);
    assert!(region.endpoint().is_ok());
}

#[test]
fn concurrent_creators_make_one_region() {
    let dir = TestDir::new("creators");
    let regions: Vec<Region> = std::thread::scope(|scope| {
        let openers: Vec<_> = (0..8).map(|_| scope.spawn(|| dir.region())).collect();
        openers.into_iter().map(|opener| opener.join().unwrap()).collect()
    });
    assert!(regions.iter().all(|region| region.origin() == regions[0].origin()));
    let word = regions[0].heap().0;
    for region in &regions {
        let e = region.endpoint().unwrap();
        block_on(&e, e.faa64(word, 1)).unwrap();
    }
    let e = regions[7].endpoint().unwrap();
    block_on(&e, e.read64(word)).unwrap();
    assert_eq!(e.old(), 8);
}

/// An origin is what tokens begin with: another one that looks like one would make them jump.
#[test]
fn an_origin_that_was_overwritten_is_not_believed() {
    let dir = TestDir::new("overwritten-origin");
    let region = dir.region();
    let origin = region.origin();
    let file = File::options().read(true).write(true).open(file_of(&dir)).unwrap();
    let mut header = [0; 120];
    file.read_exact_at(&mut header, 0).unwrap();
    let kept = files_in(&dir.options().state_dir);
    // The origin, that of the region before, and their copies.
    for at in [16, 80, 104, 112] {
        let word = u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
        for other in [word ^ 1 << 47, word ^ 1, word.wrapping_add(1 << 50), 1 << 47, 0] {
            file.write_all_at(&other.to_le_bytes(), at as u64).unwrap();
            let opened = Region::open(&dir.options());
            match opened {
                Err(ConnectError::Malformed { why: Malformed::Incarnation, .. }) => {}
                // The copy says what it was.
                Ok(region) if at == 16 && other == 0 => assert_eq!(region.origin(), origin),
                opened => assert_eq!(other, word, "{other:x} at {at}: {opened:?}"),
            }
        }
        file.write_all_at(&header, 0).unwrap();
    }
    assert_eq!(dir.region().origin(), origin);
    assert_eq!(files_in(&dir.options().state_dir), kept, "what was damaged was not kept");
}

/// The next attacher completes what one left that died between the two: the copy is put there
/// first.
#[test]
fn an_origin_that_is_missing_beside_its_copy_is_put_there() {
    let dir = TestDir::new("copy-alone");
    let origin = dir.region().origin();
    let file = File::options().read(true).write(true).open(file_of(&dir)).unwrap();
    let word = || {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 16).unwrap();
        u64::from_le_bytes(bytes)
    };
    let before = word();
    file.write_all_at(&[0; 8], 16).unwrap();
    let looking = Options { create: false, read_only: true, ..dir.options() };
    assert_eq!(Region::open(&looking).unwrap().origin(), origin);
    assert_eq!(word(), 0, "who only reads mends nothing");
    assert_eq!(dir.region().origin(), origin);
    assert!(before != 0 && word() == before);
    // One without its copy is none that was ever put there.
    file.write_all_at(&[0; 8], 104).unwrap();
    let opened = Region::open(&dir.options());
    assert!(
        matches!(opened, Err(ConnectError::Malformed { why: Malformed::Incarnation, .. })),
        "{opened:?}"
    );
}

/// Who was stopped after a region had its name, and before it had an origin, is waited for by
/// nobody; and what was overwritten is not drawn again.
#[test]
fn a_region_without_an_origin_gets_one_from_its_finder() {
    let dir = TestDir::new("no-origin");
    let before = dir.region().origin();
    let file = File::options().write(true).open(file_of(&dir)).unwrap();
    // The word and its copy.
    file.write_all_at(&[0; 8], 16).unwrap();
    file.write_all_at(&[0; 8], 104).unwrap();
    let looking = Options { create: false, read_only: true, ..dir.options() };
    assert!(matches!(Region::open(&looking), Err(ConnectError::Absent { .. })));
    let region = dir.region();
    assert!(region.origin() > before && dir.region().origin() == region.origin());
    let _inhabitant = region.endpoint().unwrap();
    file.write_all_at(&[0; 8], 16).unwrap();
    file.write_all_at(&[0; 8], 104).unwrap();
    let opened = Region::open(&dir.options());
    assert!(
        matches!(opened, Err(ConnectError::Malformed { why: Malformed::Incarnation, .. })),
        "{opened:?}"
    );
}

#[test]
fn attachers_take_the_capacities_they_find() {
    let dir = TestDir::new("capacities");
    let made = Region::open(&Options { endpoints: 3, slots: 2, ..dir.options() }).unwrap();
    let found = Region::open(&Options { endpoints: 99, slots: 9, ..dir.options() }).unwrap();
    assert_eq!((found.endpoints(), found.slots()), (3, 2));
    assert_eq!(found.heap(), made.heap());
    let e = found.endpoint().unwrap();
    // Beside them there are places for those who only look.
    assert!(Endpoint::endpoints(&e) > 3 && e.slots() == 2);
}

#[test]
fn regions_are_listed_by_name() {
    let dir = TestDir::new("list");
    assert_eq!(Region::list(&dir_of(&dir)).unwrap(), Vec::<String>::new());
    for name in ["b", "a", "c.d"] {
        Region::open(&Options { name: name.into(), ..dir.options() }).unwrap();
    }
    assert_eq!(Region::list(&dir_of(&dir)).unwrap(), ["a", "b", "c.d"]);
}

#[test]
fn a_region_that_shall_not_be_created_is_absent() {
    let dir = TestDir::new("absent");
    let opened = Region::open(&Options { create: false, ..dir.options() });
    assert!(matches!(opened, Err(ConnectError::Absent { .. })), "{opened:?}");
}

#[test]
fn more_than_memory_is_an_error_and_leaves_nothing() {
    let dir = TestDir::new("huge");
    let huge = Options { heap_bytes: 1 << 39, ..dir.options() };
    let opened = Region::open(&huge);
    assert!(matches!(opened, Err(ConnectError::NoSpace { .. })), "{opened:?}");
    assert_eq!(Region::list(&dir_of(&dir)).unwrap(), Vec::<String>::new());
    assert_eq!(files_in(&dir_of(&dir)), Vec::<PathBuf>::new());
}

/// A small filesystem in memory, for a process that may mount one.
struct Mount(PathBuf);

impl Mount {
    fn new(at: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir_all(&at).unwrap();
        let options = format!("size={size},mode=0700");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "farlock-test"])
            .arg(&at)
            .stderr(std::process::Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(at))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn growth_into_a_full_filesystem_is_an_error() {
    let dir = TestDir::new("full");
    let Some(mount) = Mount::new(dir.path().join("small"), "1m") else {
        println!("SKIP small-filesystem: only root may mount one");
        return;
    };
    let region = Region::open(&Options { dir: mount.0.clone(), ..dir.options() }).unwrap();
    let e = region.endpoint().unwrap();
    let before = region.heap();
    assert!(matches!(region.grow(1 << 20), Err(GrowError::NoSpace { .. })));
    assert_eq!(region.heap(), before);
    let data = [7; 512];
    let (at, bytes) = before;
    for start in (0..bytes).step_by(4096) {
        let addr = at.plus(start);
        block_on(&e, e.verb(Verb::Write { addr, data: &data })).unwrap();
    }
    assert!(region.grow(64 << 10).is_ok(), "a smaller growth still fits");
    drop(e);
    drop(region);
    drop(mount);
}
