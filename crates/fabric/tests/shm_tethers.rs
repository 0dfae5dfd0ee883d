//! Tethers: what a child of an endpoint's owner keeps alive, and what is left of it.
#![cfg(all(feature = "shm", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

#[path = "shm_support/mod.rs"]
mod support;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farlock_fabric::shm::{Options, Region};
use farlock_fabric::{
    ConnectError, Endpoint, EndpointId, Fault, Mailbox, Patience, Slot, Wait, Woken, block_on,
};
use rustix::process::{Pid, Signal, kill_process};
use support::{TestDir, listen, part, say};

/// Plays a part in another process; does nothing in the test run itself.
#[test]
fn child() {
    let Some((part, options)) = part() else { return };
    assert_eq!(part, "tethered");
    let endpoint = Region::open(&options).unwrap().endpoint_tethered().unwrap();
    say(endpoint.id().bits());
    loop {
        match listen().as_str() {
            "orphan" => {
                endpoint.keeper().set_tether_inherited(true).unwrap();
                // Nobody waits for it: this process is killed first.
                #[allow(clippy::zombie_processes)]
                let orphan = std::process::Command::new("sleep").arg("60").spawn().unwrap();
                say(orphan.id());
            }
            "leave" => return,
            other => panic!("not understood: {other:?}"),
        }
    }
}

fn id(said: &str) -> EndpointId {
    EndpointId::from_bits(said.parse().unwrap())
}

/// How many files of tethers there are.
fn tethers(dir: &TestDir) -> usize {
    let names = std::fs::read_dir(dir.options().dir).unwrap().map(|file| file.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().contains("tether")).count()
}

#[test]
fn an_orphan_keeps_a_tethered_endpoint_alive() {
    let dir = TestDir::new("tether");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let mut holder = dir.child("tethered");
    let peer = id(&holder.hear());
    holder.tell("orphan");
    let orphan: i32 = holder.hear().parse().unwrap();
    holder.kill_and_reap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(e.is_alive(peer), "its child lives");
    assert!(region.peers().iter().any(|info| info.id == peer && info.orphaned));
    let to = Mailbox { endpoint: peer, slot: Slot(0) };
    assert_eq!(
        block_on(&e, e.send(to, [0; 4])),
        Err(Fault::PeerGone),
        "nobody is there to receive"
    );
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        let orphan = Pid::from_raw(orphan).unwrap();
        kill_process(orphan, Signal::KILL).unwrap();
    });
    let wait = Wait { peers: &[peer], patience: Patience::PARK, ..Wait::default() };
    assert_eq!(block_on(&e, e.wait(wait)), Woken::PeerGone(peer));
    killer.join().unwrap();
    assert_eq!(tethers(&dir), 0, "that of the dead is removed");
}

/// While others look at the dead owner of a place a newcomer moves in: its tether stays.
#[test]
fn the_tether_of_a_newcomer_is_not_removed_with_that_of_the_dead() {
    const TURNS: u32 = 20;
    let dir = TestDir::new("tether-newcomer");
    // One place beside that of this process.
    let region = Region::open(&Options { endpoints: 2, ..dir.options() }).unwrap();
    let e = region.endpoint().unwrap();
    for turn in 0..TURNS {
        let mut dead = dir.child("tethered");
        let peer = id(&dead.hear());
        let is_over = AtomicBool::new(false);
        let looks = |region: Region| {
            while !is_over.load(Ordering::Relaxed) {
                region.is_alive(peer);
            }
        };
        let newcomer = std::thread::scope(|scope| {
            let _ = [dir.region(), dir.region()].map(|region| scope.spawn(|| looks(region)));
            dead.kill();
            let newcomer = loop {
                match region.endpoint_tethered() {
                    Err(ConnectError::Full { .. }) => {}
                    moved_in => break moved_in.unwrap(),
                }
            };
            dead.wait_for_end();
            is_over.store(true, Ordering::Relaxed);
            newcomer
        });
        assert_eq!(newcomer.id().index, peer.index, "it is the same place");
        assert!(!e.is_alive(peer) && e.is_alive(newcomer.id()));
        assert_eq!(tethers(&dir), 1, "in turn {turn}");
        drop(newcomer);
        assert_eq!(tethers(&dir), 0, "in turn {turn}");
    }
}

/// Another that is tethered need not ask for the dead one to find it.
#[test]
fn what_the_dead_left_of_tethers_is_removed_by_the_next() {
    let dir = TestDir::new("tether-left");
    let region = dir.region();
    for _ in 0..3 {
        let mut dead = dir.child("tethered");
        dead.hear();
        dead.kill_and_reap();
        assert_eq!(tethers(&dir), 1);
    }
    let endpoint = region.endpoint_tethered().unwrap();
    assert_eq!(tethers(&dir), 1, "its own");
    drop(endpoint);
    assert_eq!(tethers(&dir), 0);
}

#[test]
fn who_leaves_in_order_leaves_no_orphan() {
    let dir = TestDir::new("tether-order");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let mut holder = dir.child("tethered");
    let peer = id(&holder.hear());
    holder.tell("orphan");
    let orphan = Pid::from_raw(holder.hear().parse().unwrap()).unwrap();
    holder.tell("leave");
    holder.wait_for_end();
    assert!(!e.is_alive(peer), "its child lives, and holds nothing");
    kill_process(orphan, Signal::KILL).unwrap();
    assert_eq!(tethers(&dir), 0);
}

/// What a command inherits must be of no use to it, whatever it becomes.
#[test]
fn a_tether_opens_nothing() {
    let dir = TestDir::new("tether-use");
    let region = dir.region();
    let endpoint = region.endpoint_tethered().unwrap();
    let mut tether =
        File::from(endpoint.keeper().tether_fd().unwrap().try_clone_to_owned().unwrap());
    let of_region = std::fs::metadata(dir.options().dir.join("test")).unwrap();
    let metadata = tether.metadata().unwrap();
    assert_ne!(metadata.ino(), of_region.ino());
    assert_eq!((metadata.len(), metadata.mode() & 0o077), (0, 0));
    assert!(tether.write_all(b"x").is_err() && tether.set_len(1).is_err());
    // Nor does it reach another place: that one's tether can be taken and told apart.
    rustix::fs::flock(&tether, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let other = region.endpoint_tethered().unwrap();
    assert!(region.is_alive(other.id()) && region.is_alive(endpoint.id()));
}
