//! PostgreSQL: a server of its own in a directory of the measurement, and what a client of its
//! advisory locks says: the protocol, version 3, with statements that are prepared once.

use std::fs::Permissions;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use rustix::process::{Signal, geteuid};

use crate::daemon::Daemon;

/// Where distributions put its programs, each version into a directory of its own.
const INSTALLED: &str = "/usr/lib/postgresql";
/// Whose server it is where this program is root's, for whom PostgreSQL does not run.
const USER: &str = "postgres";

/// Starts a server at this port. `None`: it is not installed.
pub(super) fn start(scratch: &Path, dir: &Path, port: u16) -> anyhow::Result<Option<Daemon>> {
    let Some(programs) = programs() else { return Ok(None) };
    let data = dir.join("data");
    std::fs::create_dir(&data)?;
    let user = if geteuid().is_root() { Some(user()?) } else { None };
    if let Some((uid, gid)) = user {
        chown(&data, Some(uid), Some(gid))?;
        // It is to reach its own directory, and can list no other.
        for above in [scratch, dir] {
            std::fs::set_permissions(above, Permissions::from_mode(0o711))?;
        }
    }
    let program = |name: &str| {
        let mut command = Command::new(programs.join(name));
        command.arg("-D").arg(&data);
        if let Some((uid, gid)) = user {
            command.uid(uid).gid(gid);
        }
        command
    };
    let mut init = program("initdb");
    init.args(["--auth=trust", "--username", USER, "--no-sync", "--encoding=UTF8"]);
    init.args(["--no-instructions", "--locale=C"]).current_dir(&data).stdin(Stdio::null());
    let made = init.output().context("initdb")?;
    ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
    let mut server = program("postgres");
    server.args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
    server.args(["-c", "unix_socket_directories=", "-c", "fsync=off"]);
    let daemon = Daemon::start("postgres", server, (dir, port))?;
    // Its own children end before it does.
    Ok(daemon.map(|daemon| daemon.ended_by(Signal::INT)))
}

/// The directory of the newest version's programs.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(INSTALLED).ok()?.flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(number)?;
    let programs = newest.join("bin");
    programs.join("postgres").is_file().then_some(programs)
}

/// The user and group of the server.
fn user() -> anyhow::Result<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd")?;
    let line = users.lines().find(|line| line.split(':').next() == Some(USER));
    let fields: Vec<&str> = line.context("there is no user postgres")?.split(':').collect();
    let [_, _, uid, gid, ..] = fields[..] else { bail!("/etc/passwd cannot be read") };
    Ok((uid.parse()?, gid.parse()?))
}

/// A connection, and so a holder of locks.
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
    body: Vec<u8>,
}

/// The statements that are prepared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Statement {
    Lock,
    Unlock,
}

impl Statement {
    const fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Unlock => "unlock",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Lock => "SELECT pg_advisory_lock($1)",
            Self::Unlock => "SELECT pg_advisory_unlock($1)",
        }
    }
}

impl Connection {
    pub(super) fn open(port: u16) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let (request, body) = (Vec::new(), Vec::new());
        let mut connection = Self { stream: BufReader::new(stream), request, body };
        let startup = format!("\0\x03\0\0user\0{USER}\0database\0postgres\0\0");
        let length = startup.len() as u32 + 4;
        connection.request.extend_from_slice(&length.to_be_bytes());
        connection.request.extend_from_slice(startup.as_bytes());
        connection.until_ready()?;
        for statement in [Statement::Lock, Statement::Unlock] {
            /// The number of the type of integers of 64 bits.
            const INT8: u32 = 20;
            let mut parse = format!("{}\0{}\0", statement.name(), statement.text()).into_bytes();
            parse.extend_from_slice(&1_u16.to_be_bytes());
            parse.extend_from_slice(&INT8.to_be_bytes());
            connection.say(b'P', &parse);
            connection.say(b'S', &[]);
            connection.until_ready()?;
        }
        Ok(connection)
    }

    /// Runs a statement with this number.
    pub(super) fn run(&mut self, statement: Statement, number: i64) -> anyhow::Result<()> {
        let mut bind = [b"\0", statement.name().as_bytes(), b"\0"].concat();
        // One format, binary; one value, of 8 bytes; what is answered is text.
        for field in [1_u16, 1, 1] {
            bind.extend_from_slice(&field.to_be_bytes());
        }
        bind.extend_from_slice(&8_u32.to_be_bytes());
        bind.extend_from_slice(&number.to_be_bytes());
        bind.extend_from_slice(&0_u16.to_be_bytes());
        self.say(b'B', &bind);
        self.say(b'E', &[0; 5]);
        self.say(b'S', &[]);
        self.until_ready()
    }

    fn say(&mut self, kind: u8, body: &[u8]) {
        self.request.push(kind);
        self.request.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        self.request.extend_from_slice(body);
    }

    /// Sends what was said, and reads until the server waits for more.
    fn until_ready(&mut self) -> anyhow::Result<()> {
        self.stream.get_mut().write_all(&self.request)?;
        self.request.clear();
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head).context("PostgreSQL went away")?;
            let [kind, length @ ..] = head;
            let length = u32::from_be_bytes(length).checked_sub(4).context("a message's length")?;
            self.body.resize(length as usize, 0);
            self.stream.read_exact(&mut self.body)?;
            match kind {
                b'Z' => return Ok(()),
                b'E' => bail!("PostgreSQL says: {}", String::from_utf8_lossy(&self.body)),
                _ => {}
            }
        }
    }
}
