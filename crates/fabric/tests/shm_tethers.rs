//! Tethers: what a child of an endpoint's owner keeps alive, and what is left of it.
#![cfg(all(feature = "shm", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

#[path = "shm_support/mod.rs"]
mod support;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use farlock_fabric::shm::Region;
use farlock_fabric::{Endpoint, EndpointId, Fault, Mailbox, Patience, Slot, Wait, Woken, block_on};
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
        let orphan = rustix::process::Pid::from_raw(orphan).unwrap();
        rustix::process::kill_process(orphan, rustix::process::Signal::KILL).unwrap();
    });
    let wait = Wait { peers: &[peer], patience: Patience::PARK, ..Wait::default() };
    assert_eq!(block_on(&e, e.wait(wait)), Woken::PeerGone(peer));
    killer.join().unwrap();
}

#[test]
fn who_leaves_in_order_leaves_no_orphan() {
    let dir = TestDir::new("tether-order");
    let region = dir.region();
    let e = region.endpoint().unwrap();
    let mut holder = dir.child("tethered");
    let peer = id(&holder.hear());
    holder.tell("orphan");
    let orphan = rustix::process::Pid::from_raw(holder.hear().parse().unwrap()).unwrap();
    holder.tell("leave");
    holder.wait_for_end();
    assert!(!e.is_alive(peer), "its child lives, and holds nothing");
    rustix::process::kill_process(orphan, rustix::process::Signal::KILL).unwrap();
    let hidden = std::fs::read_dir(dir.options().dir).unwrap();
    let names: Vec<_> = hidden.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("tether")), "{names:?}");
}

/// What a command inherits must be of no use to it, whoever it becomes.
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
