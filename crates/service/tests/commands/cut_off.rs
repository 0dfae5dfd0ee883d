//! Specification: connections that are cut off at any byte. Whatever was asked for was done, or its
//! command says that the server is at fault, and nothing that would do harm.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::stage::Stage;
use crate::stage::serving::Serving;

/// Brings this many bytes of a server's to each client, and ends the connection then.
fn cut(proxy: &TcpListener, server: &str, most: usize) {
    for client in proxy.incoming() {
        let (mut client, Ok(mut server)) = (client.unwrap(), TcpStream::connect(server)) else {
            return;
        };
        let (mut from_client, mut to_server) =
            (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
        std::thread::spawn(move || {
            let (mut left, mut bytes) = (most, [0; 4096]);
            while left > 0 {
                let Ok(count @ 1..) = server.read(&mut bytes) else { break };
                let count = count.min(left);
                if client.write_all(&bytes[..count]).is_err() {
                    break;
                }
                left -= count;
            }
            // They may be closed.
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        });
    }
}

fn behind_what_cuts(server: &Serving, most: usize) -> String {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, server) = (proxy.local_addr().unwrap(), server.address.clone());
    std::thread::spawn(move || cut(&proxy, &server, most));
    address.to_string()
}

/// Of the commands that were run, how many were done.
fn run_cut_off(stage: &Stage, server: &Serving, most: usize) -> usize {
    let address = behind_what_cuts(server, most);
    let commands: [&[&str]; 4] = [
        &["lock", "--server", &address, "a", "--", "true"],
        &["ls", "--server", &address],
        &["lock", "--server", &address, "-r", "0:1", "r", "--", "true"],
        &["kv", "put", "--server", &address, "k", "v"],
    ];
    let mut done = 0;
    for command in commands {
        let (status, _, said) = stage.run(command);
        if status == 0 {
            done += 1;
            continue;
        }
        let what = format!("{command:?}, cut off after {most} bytes: {status}: {said}");
        for wrong in ["region reset", "release a lock", "[directory]", "panicked"] {
            assert!(!said.contains(wrong), "{what}");
        }
        assert!(said.contains("hint: "), "{what}");
        assert_eq!(status, 69, "{what}");
    }
    done
}

#[test]
fn a_command_whose_connection_is_cut_off_blames_its_server() {
    let stage = Stage::new();
    // Each is sought for until a lease has ended.
    let server = Serving::listening(&stage, "127.0.0.1:0", &["--lease", "0.5"]);
    let done: Vec<usize> = std::thread::scope(|scope| {
        let (stage, server) = (&stage, &server);
        let runs = (100..1000).step_by(50);
        let runs = runs.map(|most| scope.spawn(move || run_cut_off(stage, server, most)));
        let runs: Vec<_> = runs.collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    let is_cut_off = |done: &&usize| **done < 4;
    assert!(done.iter().filter(is_cut_off).count() > 5, "{done:?}");
    assert!(done.iter().sum::<usize>() > 0, "{done:?}");
}

/// As whom nobody runs anything else.
const ANOTHER_USER: u32 = 54321;

/// The command as another user starts it, whose regions are there; behind this program, if there
/// are words of one. `None`: this user may not do so.
fn as_another_user(dir: &Path, behind: &[&str]) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP other-users: only root can run a command as another user");
        return None;
    }
    let (user, group) = (format!("--reuid={ANOTHER_USER}"), format!("--regid={ANOTHER_USER}"));
    let itself = ["setpriv", &user, &group, "--clear-groups", env!("CARGO_BIN_EXE_farlock")];
    let words = [behind, &itself].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("FARLOCK_DIR", dir).env("FARLOCK_STATE_DIR", dir);
    Some(command)
}

/// A region of another user is said to be that, also by what would only read it.
#[test]
fn what_is_another_users_is_said_to_be() {
    let stage = Stage::new();
    let dir = stage.file("ours");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o700)).unwrap();
    for words in [&["kv", "get", "k"][..], &["lock", "a", "true"], &["serve"]] {
        let Some(mut command) = as_another_user(&dir, &[]) else { return };
        let run = command.args(words).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(said.contains("another user owns it") && said.contains("hint: "), "{said}");
    }
}

/// Where no thread can be made that is said, as whatever else the system refuses.
#[test]
fn where_no_thread_can_be_made_that_is_said() {
    let stage = Stage::new();
    let dir = stage.file("theirs");
    std::fs::create_dir(&dir).unwrap();
    let Some(mut command) = as_another_user(&dir, &["prlimit", "--nproc=1"]) else { return };
    std::os::unix::fs::chown(&dir, Some(ANOTHER_USER), Some(ANOTHER_USER)).unwrap();
    let made = command.args(["serve", "--listen", "127.0.0.1:0"]).output().unwrap();
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(said.contains("hint: ") && !said.contains("panicked"), "{said}");
    assert_eq!(made.status.code(), Some(71), "{said}");
}
