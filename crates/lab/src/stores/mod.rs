//! `farlock-lab stores`: what a get or a put takes, by `session.kv`, by the store under it, and by
//! servers that people would use instead, Redis and memcached, which answer over loopback.
//!
//! Clients are processes, each of which asks for one thing after the other, or for several at once:
//! farlock for the gets and then for the puts among them, the servers of text for all in a row, and
//! tasks each for one.
//! They start together, when all have opened the store.

mod pairs;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::value_parser;
use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use farlock_check::{say, tell};
use farlock_fabric::block_on;
use farlock_fabric::shm::{Options, Region};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use crate::daemon::{self, Daemon, free_port};
use crate::latency::Latency;
use crate::provenance::Provenance;
use crate::record::{duration, grouped};
use crate::report::line;
use crate::rounds::Rounds;
use crate::scratch::Scratch;
use crate::storm::region_options;
use crate::{child, face};
pub use pairs::Target;

/// One operation of so many is timed, or each batch.
const TIMED_ONE_IN: u64 = 16;
/// So many pairs are stored at a time before anything is measured.
const LOADED_AT_ONCE: usize = 1_000;

/// What is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct StoresArgs {
    /// The stores [default: all that are installed]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub targets: Vec<Target>,
    /// Processes that use a store at a time
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 16])]
    pub clients: Vec<u16>,
    /// Pairs that are stored before: keys of 8 bytes
    #[arg(long, default_value_t = 1_000_000, value_parser = value_parser!(u64).range(1..))]
    pub records: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u32).range(..=1 << 20))]
    pub value_bytes: u32,
    /// Of a hundred operations so many get a value, the others put one
    #[arg(long, default_value_t = 80, value_parser = value_parser!(u32).range(..=100))]
    pub gets: u32,
    /// How many operations a client asks for at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u32).range(1..=1000))]
    pub at_once: u32,
    /// How long a round takes
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = crate::bench::seconds)]
    pub seconds: f64,
    /// How often
    #[command(flatten)]
    pub rounds: Rounds,
    /// Decides which keys
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// How a client is started.
#[derive(Clone, Debug, clap::Args)]
pub struct StoresClientArgs {
    /// Where the store's memory lies.
    #[arg(long)]
    pub dir: PathBuf,
    /// The process that started it.
    #[arg(long)]
    pub parent: i32,
    /// The store.
    #[arg(long, value_enum)]
    pub target: Target,
    /// Where its server listens.
    #[arg(long)]
    pub port: u16,
    /// Pairs that are stored.
    #[arg(long)]
    pub records: u64,
    /// Bytes of a value.
    #[arg(long)]
    pub value_bytes: u32,
    /// Gets, of a hundred.
    #[arg(long)]
    pub gets: u32,
    /// Operations at once.
    #[arg(long)]
    pub at_once: u32,
    /// How long.
    #[arg(long)]
    pub seconds: f64,
    /// Decides which keys.
    #[arg(long)]
    pub seed: u64,
}

/// What one client did.
#[derive(Debug, Default)]
struct Done {
    operations: u64,
    p50: u64,
    p99: u64,
}

#[derive(Debug, Serialize)]
struct LatencyNs {
    p50: u64,
    p99: u64,
}

#[derive(Debug, Serialize)]
struct Row {
    store: Target,
    clients: u16,
    records: u64,
    value_bytes: u32,
    gets: u32,
    at_once: u32,
    seconds: f64,
    rounds: u16,
    operations_per_s: f64,
    latency_ns: LatencyNs,
    /// Of farlock's: memory beside the pairs, a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead_bytes: Option<f64>,
    seed: u64,
}

/// Measures, and prints a row for each store and number of clients.
pub fn run(args: &StoresArgs, origin: &Provenance) -> anyhow::Result<()> {
    ensure!(args.clients.iter().all(|clients| (1..=256).contains(clients)), "1 to 256 clients");
    let scratch = Scratch::new()?;
    let targets = if args.targets.is_empty() { Target::ALL } else { &args.targets };
    let mut servers = Vec::new();
    for &target in targets {
        match Served::start(args, target, scratch.path())? {
            Some(server) => servers.push(server),
            None => tell(format_args!("{} is not installed, and left out", target.name())),
        }
    }
    let subjects: Vec<(usize, u16)> = (0..servers.len())
        .flat_map(|server| args.clients.iter().map(move |clients| (server, *clients)))
        .collect();
    let measured = args.rounds.of(&subjects, |&(server, clients), round| {
        servers[server].measure(args, scratch.path(), clients, round)
    })?;
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(["store", "clients", "operations a second", "p50", "p99", "beside a pair"]);
    for ((server, clients), rounds) in subjects.into_iter().zip(measured) {
        let row = servers[server].row(args, clients, rounds);
        if args.rounds.json {
            line(origin, &row)?;
        }
        table.add_row([
            row.store.name().to_owned(),
            row.clients.to_string(),
            grouped(row.operations_per_s as u64),
            duration(row.latency_ns.p50),
            duration(row.latency_ns.p99),
            row.overhead_bytes.map_or(String::new(), |bytes| format!("{bytes:.1} bytes")),
        ]);
    }
    if !args.rounds.json {
        say(table)?;
    }
    Ok(())
}

/// A store with its pairs, and the server of it, if it has one.
struct Served {
    target: Target,
    /// It ends with this.
    server: Option<Daemon>,
    port: u16,
    overhead_bytes: Option<f64>,
}

/// How a server is started, if the store has one.
fn command(target: Target, port: u16) -> anyhow::Result<Option<Command>> {
    Ok(match target {
        Target::Redis => Some(daemon::redis(port)),
        Target::Memcached => {
            let mut command = Command::new("memcached");
            command.args(["-l", "127.0.0.1", "-U", "0", "-m", "4096", "-u", "root", "-p"]);
            command.arg(port.to_string());
            Some(command)
        }
        Target::Served | Target::ServedTasks => Some(face::server(port)?),
        Target::Session | Target::SessionTasks | Target::Store => None,
    })
}

impl Served {
    /// Starts a server and stores the pairs. `None`: it is not installed.
    fn start(args: &StoresArgs, target: Target, dir: &Path) -> anyhow::Result<Option<Self>> {
        let port = free_port()?;
        let mut served = Self { target, server: None, port, overhead_bytes: None };
        if let Some(mut command) = command(target, port)? {
            // A region has one server.
            let own = dir.join(target.name());
            std::fs::create_dir(&own)?;
            command.envs(face::environment(&own));
            let Some(server) = Daemon::start(target.name(), command, (dir, port))? else {
                return Ok(None);
            };
            served.server = Some(server);
        }
        if target == Target::Store {
            make_store_below(args, dir)?;
        }
        served.load(args, dir)?;
        Ok(Some(served))
    }

    fn load(&mut self, args: &StoresArgs, dir: &Path) -> anyhow::Result<()> {
        let mut pairs = pairs::open(self.target, dir, self.port)?;
        let value = vec![7; args.value_bytes as usize];
        let all: Vec<[u8; 8]> = (0..args.records).map(u64::to_le_bytes).collect();
        all.chunks(LOADED_AT_ONCE).try_for_each(|keys| pairs.many(&[], keys, &value))?;
        if self.target == Target::Session {
            let kv = farlock::Kv::open(&face::region_options(dir), "measured")?;
            let pairs = args.records * (8 + u64::from(args.value_bytes));
            let beside = kv.bytes() as f64 - pairs as f64;
            self.overhead_bytes = Some(beside / args.records as f64);
        }
        Ok(())
    }

    fn measure(
        &self,
        args: &StoresArgs,
        dir: &Path,
        clients: u16,
        round: u16,
    ) -> anyhow::Result<Vec<Done>> {
        let start = |number: u16| -> anyhow::Result<Client> {
            let mut command = child::command("stores-client")?;
            let seed = args.seed ^ u64::from(round) << 32 ^ u64::from(number) << 48;
            command.arg("--dir").arg(dir).args(["--target", self.target.name()]);
            command.args(["--port", &self.port.to_string()]);
            command.args(["--records", &args.records.to_string()]);
            command.args(["--value-bytes", &args.value_bytes.to_string()]);
            command.args(["--gets", &args.gets.to_string()]);
            command.args(["--at-once", &args.at_once.to_string()]);
            command.args(["--seconds", &args.seconds.to_string()]);
            command.args(["--seed", &seed.to_string()]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn()?;
            let said = BufReader::new(child.stdout.take().context("it has an output")?);
            Ok(Client { child, said })
        };
        let mut started = (0..clients).map(start).collect::<anyhow::Result<Vec<_>>>()?;
        started.iter_mut().try_for_each(|client| client.hear().map(drop))?;
        for client in &mut started {
            let input = client.child.stdin.as_mut().context("it has an input")?;
            input.write_all(b"go\n")?;
        }
        started.iter_mut().map(Client::end).collect()
    }

    fn row(&self, args: &StoresArgs, clients: u16, rounds: Vec<Vec<Done>>) -> Row {
        let rates = rounds.iter().map(|clients| {
            clients.iter().map(|done| done.operations).sum::<u64>() as f64 / args.seconds
        });
        let middle = |of: fn(&Done) -> u64| {
            median(rounds.iter().flatten().map(of).map(|nanos| nanos as f64).collect()) as u64
        };
        Row {
            store: self.target,
            clients,
            records: args.records,
            value_bytes: args.value_bytes,
            gets: args.gets,
            at_once: args.at_once,
            seconds: args.seconds,
            rounds: args.rounds.rounds,
            operations_per_s: median(rates.collect()),
            latency_ns: LatencyNs { p50: middle(|done| done.p50), p99: middle(|done| done.p99) },
            overhead_bytes: self.overhead_bytes,
            seed: args.seed,
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Makes the store of which no session knows, with room for the pairs and what replaces them.
fn make_store_below(args: &StoresArgs, dir: &Path) -> anyhow::Result<()> {
    let pair = u64::from(args.value_bytes) + 64;
    let options = Options {
        create: true,
        heap_bytes: (args.records * pair * 2).next_multiple_of(1 << 20) + (1 << 30),
        ..region_options(dir, pairs::BELOW)
    };
    let region = Region::open(&options.growing_by(0))?;
    let endpoint = region.endpoint()?;
    Ok(block_on(&endpoint, pairs::shape(&region).create(&endpoint))?)
}

struct Client {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Client {
    fn hear(&mut self) -> anyhow::Result<String> {
        let mut said = String::new();
        ensure!(self.said.read_line(&mut said)? > 0, "a client ended before it was done");
        Ok(said)
    }

    fn end(&mut self) -> anyhow::Result<Done> {
        let said = self.hear()?;
        ensure!(self.child.wait()?.success(), "a client failed");
        let numbers: Vec<u64> = said.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let [operations, p50, p99] = numbers[..] else { bail!("a client said {said:?}") };
        Ok(Done { operations, p50, p99 })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It has ended, unless something failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client: uses a store for a while, and says how often.
pub fn client(args: &StoresClientArgs) -> anyhow::Result<()> {
    child::die_with(args.parent, "stores")?;
    let mut pairs = pairs::open(args.target, &args.dir, args.port)?;
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(args.seed);
    let value = vec![9; args.value_bytes as usize];
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let end = Instant::now() + Duration::from_secs_f64(args.seconds);
    let (mut operations, mut latency) = (0, Latency::default());
    let mut draw = || {
        let key = chance.random_range(0..args.records).to_le_bytes();
        (key, chance.random_range(0..100) < args.gets)
    };
    loop {
        let begun = Instant::now();
        if begun >= end {
            break;
        }
        if args.at_once > 1 {
            let all: Vec<([u8; 8], bool)> = (0..args.at_once).map(|_| draw()).collect();
            let of = |wanted: bool| -> Vec<[u8; 8]> {
                all.iter().filter(|(_, is_get)| *is_get == wanted).map(|(key, _)| *key).collect()
            };
            pairs.many(&of(true), &of(false), &value)?;
            latency.record(begun.elapsed().as_nanos() as u64);
            operations += u64::from(args.at_once);
            continue;
        }
        for timed in 0..TIMED_ONE_IN {
            let (key, is_get) = draw();
            if is_get {
                ensure!(pairs.get(&key)?.is_some(), "a value is missing");
            } else {
                pairs.put(&key, &value)?;
            }
            if timed == 0 {
                latency.record(begun.elapsed().as_nanos() as u64);
            }
        }
        operations += TIMED_ONE_IN;
    }
    let summary = latency.summary();
    println!("{operations} {} {}", summary.p50, summary.p99);
    Ok(())
}
