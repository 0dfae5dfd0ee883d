//! `farlock tls`: certificates for servers and clients.

mod authority;
mod revoke;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use farlock::text::shown_whole;

use super::report::{Exit, Failure, print_done};
use authority::{Authority, Issued, take};

/// Make certificates, by which `farlock serve --tls` and its clients trust each other, and revoke
/// them.
///
/// `init` makes an authority, that certifies servers and clients, and one of each. A client's
/// certificate says which regions it may use. A user who has authority.key can make certificates
/// for every region: keep it where no server and no client runs, if you can. Nothing but the list
/// of revoked ones is ever overwritten.
///
/// Exit status: 0; 1 if a file is there already; 64 for wrong usage, 69 if a file cannot be used,
/// 71 if the system refuses, or standard output cannot be written: then the files are there.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make an authority, a certificate for a server, and one for a client of every region.
    Init {
        #[command(flatten)]
        dir: Dir,
        #[command(flatten)]
        hosts: Hosts,
        #[command(flatten)]
        time: Time,
    },
    /// Make another certificate for a server: where the last one's time is nearly over, or its
    /// hosts have other names.
    Server {
        #[command(flatten)]
        dir: Dir,
        #[command(flatten)]
        hosts: Hosts,
        #[command(flatten)]
        time: Time,
    },
    /// Make a certificate for another client, in the directory NAME beside the authority: all that
    /// this client needs.
    Client {
        /// What the client is called.
        #[arg(value_parser = file_name)]
        name: String,
        /// A region that it may use; may be said several times. `*` is every region.
        #[arg(long = "region", value_name = "REGION", required = true)]
        regions: Vec<String>,
        /// Where the authority is.
        #[arg(long, value_name = "DIR", default_value = DIR)]
        dir: PathBuf,
        #[command(flatten)]
        time: Time,
    },
    /// Take back what certificates give a right to: write them down in revoked.pem, beside the
    /// authority.
    ///
    /// A server that runs with this directory, or with a copy of revoked.pem in its own, takes none
    /// of them from a second or two later on, and ends the connections that they were shown by.
    /// What such a client holds is lost when its lease ends, as it is told before.
    Revoke {
        /// A client that `client` has made a certificate for, or the file of a certificate of any
        /// kind: a path with a slash, or that ends with .pem.
        #[arg(value_name = "CLIENT|FILE", required = true)]
        which: Vec<String>,
        /// Where the authority is.
        #[arg(long, value_name = "DIR", default_value = DIR)]
        dir: PathBuf,
    },
}

/// Where `farlock tls` keeps what it makes, where nothing else is said.
const DIR: &str = "farlock-tls";

#[derive(Debug, clap::Args)]
struct Dir {
    /// Where the files are to be.
    #[arg(value_name = "DIR", default_value = DIR)]
    dir: PathBuf,
    /// The same, as for `client`.
    #[arg(long = "dir", value_name = "DIR", conflicts_with = "dir")]
    said: Option<PathBuf>,
}

impl Dir {
    fn path(&self) -> &Path {
        self.said.as_ref().unwrap_or(&self.dir)
    }
}

#[derive(Debug, clap::Args)]
struct Hosts {
    /// A name or address by which clients reach the server; may be said several times.
    #[arg(
        long = "host",
        value_name = "HOST",
        value_parser = host,
        default_values = ["localhost", "127.0.0.1", "::1"]
    )]
    hosts: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct Time {
    /// How long the certificates are valid.
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = 365,
        value_parser = clap::value_parser!(u32).range(1..=36_500)
    )]
    days: u32,
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.action {
        Action::Init { dir, hosts, time } => init(dir.path(), &hosts.hosts, time.days),
        Action::Server { dir, hosts, time } => {
            let authority = Authority::load(dir.path())?;
            authority.certify_server(&hosts.hosts, time.days)?.write(dir.path())?;
            print_done("a server that runs uses it soon; its clients need nothing new")?;
            Ok(Exit::OK)
        }
        Action::Client { name, regions, dir, time } => client(name, regions, dir, time.days),
        Action::Revoke { which, dir } => revoke::run(which, dir),
    }
}

fn init(dir: &Path, hosts: &[String], days: u32) -> Result<Exit, Failure> {
    let authority = Authority::new()?;
    let issued: [Issued; 3] = [
        authority.certificate()?,
        authority.certify_server(hosts, days)?,
        authority.certify_client("client", &["*".to_owned()], days)?,
    ];
    make_dir(dir)?;
    issued.iter().try_for_each(|issued| issued.is_new(dir))?;
    issued.iter().try_for_each(|issued| issued.write(dir))?;
    let name = dir.to_string_lossy();
    let shown = shown_whole(&name);
    print_done(format_args!(
        "{shown} has an authority, a server's certificate for {}, and a client's for every region\n\
         on the server:  farlock serve --tls {shown}\n\
         as a client:    farlock lock --tls {shown} --server {}:4747 NAME -- COMMAND\n\
         other clients:  farlock tls client NAME --region REGION --dir {shown}",
        hosts.join(", "),
        hosts[0],
    ))?;
    Ok(Exit::OK)
}

fn client(name: &str, regions: &[String], dir: &Path, days: u32) -> Result<Exit, Failure> {
    let authority = Authority::load(dir)?;
    let issued = authority.certify_client(name, regions, days)?;
    let own = dir.join(name);
    make_dir(&own)?;
    let known = Issued::copied(dir, "authority.pem")?;
    [&issued, &known].iter().try_for_each(|issued| issued.is_new(&own))?;
    [&issued, &known].iter().try_for_each(|issued| issued.write(&own))?;
    print_done(format_args!(
        "{} is all that the client needs, to use {}",
        shown_whole(&own.to_string_lossy()),
        regions.join(", "),
    ))?;
    Ok(Exit::OK)
}

/// Makes a directory for its owner alone, unless there is one.
fn make_dir(dir: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| take(dir, error))
}

/// What can be the name of a directory beside the authority.
fn file_name(name: &str) -> Result<String, String> {
    match name {
        "" => Err("it is empty".to_owned()),
        name if name.starts_with(['.', '-']) || name.contains(['/', '\0']) => {
            Err("it begins with a dot or hyphen, or has a slash in it".to_owned())
        }
        name => Ok(name.to_owned()),
    }
}

/// An address, or the name of a host.
fn host(host: &str) -> Result<String, String> {
    let is_name = !host.is_empty()
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte));
    if is_name || host.parse::<std::net::IpAddr>().is_ok() {
        Ok(host.to_owned())
    } else {
        Err("it is neither an address nor a host's name, without a port".to_owned())
    }
}
