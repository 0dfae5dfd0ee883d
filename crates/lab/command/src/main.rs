//! `farlock-lab`: the laboratory's command. It is a package of its own, so that a commit compiles
//! this file and nothing else.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farlock_check as check;
use farlock_lab::bench::{self, BenchArgs, worker};
use farlock_lab::leases::{drift, long_reads};
use farlock_lab::provenance::Provenance;
use farlock_lab::{
    arrbench, client, connections, face, figure, fs, growing, restarts, served, service_times,
    speed, spreading, stores, storm, takeover,
};

/// The laboratory of farlock: measures locks for far memory, side by side.
#[derive(Parser)]
#[command(name = "farlock-lab", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures locks under a workload, a row each.
    Bench(Box<BenchArgs>),
    /// Explores schedules and faults of the locks in the simulator, before judges.
    Check(check::CheckArgs),
    /// What connections cost a server, and those that use it.
    Connections(connections::ConnectionsArgs),
    /// A server that is measured.
    #[command(hide = true)]
    ConnectionsServer(connections::ServingArgs),
    /// A year of leases, on clocks that go apart, in the simulator.
    Drift(drift::DriftArgs),
    /// A paper's figure or table, ours beside theirs.
    Figure(figure::FigureArgs),
    /// A file system in far memory, under range locks and others: OLTP and BT-IO.
    Fs(fs::FsArgs),
    /// Long reads among short transactions, with leases of one length and of several.
    LongReads(long_reads::LongReadsArgs),
    /// Shows a run that `check` found, verb by verb.
    Replay(check::ReplayArgs),
    /// Kills a server under load and starts it again: how long all stand still.
    Restarts(restarts::RestartsArgs),
    #[command(flatten)]
    Local(arrbench::LocalCommand),
    /// How fast the simulated world turns: events, acquisitions, schedules a second of one core.
    Speed(speed::SpeedArgs),
    /// Measures locks and ranges by a server beside Redis and PostgreSQL.
    Served(served::ServedArgs),
    /// A client of what is measured by a server.
    #[command(hide = true)]
    ServedClient(served::ServedClientArgs),
    /// What the structures of range servers take on this processor.
    ServiceTimes(service_times::ServiceTimesArgs),
    /// Kills and stops real processes that hold and await locks, and judges the survivors.
    Storm(storm::StormArgs),
    /// Kills and stops holders of locks on shared memory, and measures when the next one holds.
    Takeover(takeover::TakeoverArgs),
    /// The key-value store under the workloads of YCSB, in the simulator.
    #[cfg(feature = "ycsb")]
    Ycsb(farlock_lab::ycsb::YcsbArgs),
    /// A client in a storm or a takeover, in a process of its own.
    #[command(hide = true)]
    Client(client::ClientArgs),
    /// Sessions that are idle while another one is measured.
    #[command(hide = true)]
    Attached(face::AttachedArgs),
    /// The process under a lock that a command took.
    #[command(hide = true)]
    Inside(face::InsideArgs),
    /// A process in a storm over sessions.
    #[command(hide = true)]
    FaceWorker(storm::faces::start::FaceWorkerArgs),
    /// Fills a store while another client uses it, and tells what took longest.
    Growing(growing::GrowingArgs),
    /// Has ever more units of a table of ranges asked for, and tells what that costs its users.
    Spreading(spreading::SpreadingArgs),
    /// Measures a store of sessions beside Redis and memcached.
    Stores(stores::StoresArgs),
    /// A client of a store that is measured.
    #[command(hide = true)]
    StoresClient(stores::StoresClientArgs),
    /// A process in a storm over a store.
    #[command(hide = true)]
    KvWorker(storm::kv::worker::KvWorkerArgs),
    /// The process under a command's lock in a storm.
    #[command(hide = true)]
    FaceInside(storm::faces::inside::InsideArgs),
    /// A client of a bench, in a process of its own.
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
}

fn main() -> ExitCode {
    let origin = || Provenance::of(env!("FARLOCK_LAB_COMMIT"));
    let done = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args, &origin()),
        Command::Check(args) => check::run(&args),
        Command::Connections(args) => connections::run(&args, &origin()),
        Command::ConnectionsServer(args) => connections::serve(&args),
        Command::Drift(args) => drift::run(&args, &origin()),
        Command::Figure(args) => figure::run(&args, &origin()),
        Command::Fs(args) => fs::run(&args, &origin()),
        Command::Growing(args) => growing::run(&args, &origin()),
        Command::LongReads(args) => long_reads::run(&args, &origin()),
        Command::Replay(args) => check::replay(&args),
        Command::Restarts(args) => restarts::run(&args, &origin()),
        Command::Local(command) => arrbench::run(&command, &origin()),
        Command::Served(args) => served::run(&args, &origin()),
        Command::Spreading(args) => spreading::run(&args, &origin()),
        Command::ServedClient(args) => served::client(&args),
        Command::ServiceTimes(args) => service_times::run(&args, &origin()),
        Command::Speed(args) => speed::run(&args, &origin()),
        Command::Stores(args) => stores::run(&args, &origin()),
        Command::StoresClient(args) => stores::client(&args),
        Command::Storm(args) => storm::run(&args, &origin()),
        Command::Takeover(args) => takeover::run(&args, &origin()),
        #[cfg(feature = "ycsb")]
        Command::Ycsb(args) => farlock_lab::ycsb::run(&args, &origin()),
        Command::Client(args) => client::run(&args),
        Command::Attached(args) => face::attached(&args),
        Command::Inside(args) => face::inside(&args),
        Command::FaceWorker(args) => storm::faces::worker::run(&args),
        Command::KvWorker(args) => storm::kv::worker::run(&args),
        Command::FaceInside(args) => storm::faces::inside::run(&args),
        Command::Worker(args) => worker::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            check::tell(format_args!("farlock-lab: {error:#}"));
            check::status(&error)
        }
    }
}
