//! `farlock-lab served`: locks and ranges by a server, beside what people use: Redis's locks and
//! PostgreSQL's advisory locks, of servers on the same machine that the command starts and ends.
//! And locks by shared memory, in a region that is served and in one that is not.
//!
//! Clients are processes, or threads or tasks of one. They hold for no time, and what is held is
//! judged elsewhere: by `storm`, and by the tests of the service.

mod postgres;
mod relay;
mod systems;
mod worker;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::value_parser;
use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use farlock::Session;
use farlock_check::tell;
use serde::Serialize;

use self::relay::Relay;
use self::systems::Place;
pub use self::systems::{Scene, System};
use self::worker::{Done, GO};
pub use self::worker::{ServedClientArgs, client};
use crate::daemon::{self, Daemon, free_port};
use crate::latency::Latency;
use crate::provenance::Provenance;
use crate::record::{duration, grouped};
use crate::report::show;
use crate::rounds::Rounds;
use crate::scratch::Scratch;
use crate::{child, face};

/// What is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct ServedArgs {
    /// The systems [default: all that are installed]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub systems: Vec<System>,
    /// Which scenes [default: all of them]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub scenes: Vec<Scene>,
    /// Processes, threads or tasks, where there are several
    #[arg(long, default_value_t = 16, value_parser = value_parser!(u16).range(1..=64))]
    pub clients: u16,
    /// Threads of the executor of tasks: those of Redis are one thread's
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u16).range(1..=64))]
    pub executor_threads: u16,
    /// How long one waits whom Redis has refused a lock, in microseconds
    #[arg(long, value_name = "US", default_value_t = 1000)]
    pub pause_us: u64,
    /// How long a round takes
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = crate::bench::seconds)]
    pub seconds: f64,
    /// How often
    #[command(flatten)]
    pub rounds: Rounds,
}

/// The middle of some rounds, and the quarters around it.
#[derive(Clone, Copy, Debug, Serialize)]
struct Quartiles {
    q1: f64,
    median: f64,
    q3: f64,
}

impl Quartiles {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
        Self { q1: at(0.25), median: at(0.5), q3: at(0.75) }
    }
}

#[derive(Debug, Serialize)]
struct LatencyNs {
    p50: u64,
    p99: u64,
}

/// Round trips.
#[derive(Clone, Copy, Debug, Serialize)]
struct Trips {
    acquisition: f64,
    release: f64,
}

#[derive(Debug, Serialize)]
struct Row {
    scene: Scene,
    system: System,
    clients: u16,
    seconds: f64,
    rounds: u16,
    /// An acquisition and its release, by all clients.
    cycles_per_s: Quartiles,
    /// Round by round, how many times as many as these others, of servers or at hand as it is.
    ratio_to: BTreeMap<System, Quartiles>,
    latency_ns: LatencyNs,
    /// Jain's index of the clients' shares: 1 where they are equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    fairness: Option<f64>,
    /// Counted on the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trips: Option<Trips>,
    /// How long one waits whom Redis has refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_us: Option<u64>,
}

/// Measures, and prints a row for each scene and system.
///
/// # Errors
/// Something could not be measured.
pub fn run(args: &ServedArgs, origin: &Provenance) -> anyhow::Result<()> {
    let scratch = Scratch::new()?;
    let wanted = if args.systems.is_empty() { &System::ALL[..] } else { &args.systems };
    let scenes = if args.scenes.is_empty() { &Scene::ALL[..] } else { &args.scenes };
    let mut stages: Vec<Stage> = Vec::new();
    for &system in wanted {
        match Stage::set(system, &stages, scratch.path())? {
            Some(stage) => stages.push(stage),
            None => tell(format_args!("{} is not installed, and left out", system.name())),
        }
    }
    let subjects: Vec<(Scene, usize)> = scenes
        .iter()
        .flat_map(|scene| (0..stages.len()).map(|stage| (*scene, stage)))
        .filter(|(scene, stage)| scene.is_of(stages[*stage].system))
        .collect();
    let measured =
        args.rounds.of(&subjects, |&(scene, stage), _| stages[stage].measure(args, scene))?;
    let mut rows = Vec::with_capacity(subjects.len());
    for (&(scene, stage), rounds) in subjects.iter().zip(&measured) {
        let is_at_hand = |stage: usize| stages[stage].system.is_at_hand();
        let others = subjects.iter().zip(&measured).filter(|((other, at), _)| {
            *other == scene && *at != stage && is_at_hand(*at) == is_at_hand(stage)
        });
        let others = others.map(|((_, at), rounds)| (stages[*at].system, &rounds[..]));
        rows.push(stages[stage].row(args, scene, rounds, others)?);
    }
    show(origin, args.rounds.json, &rows, table)
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    let head = ["scene", "system", "cycles a second", "quartiles", "p50", "p99", "fairness"];
    table.set_header(head.into_iter().chain(["round trips", "times as many as"]));
    for row in rows {
        let rate = row.cycles_per_s;
        let trips = |trips: Trips| format!("{:.2} + {:.2}", trips.acquisition, trips.release);
        let ratio =
            |(other, ratio): (&System, &Quartiles)| format!("{} {:.2}", other.name(), ratio.median);
        table.add_row([
            row.scene.name().to_owned(),
            row.system.name().to_owned(),
            grouped(rate.median as u64),
            format!("{} {}", grouped(rate.q1 as u64), grouped(rate.q3 as u64)),
            duration(row.latency_ns.p50),
            duration(row.latency_ns.p99),
            row.fairness.map_or(String::new(), |index| format!("{index:.2}")),
            row.round_trips.map_or(String::new(), trips),
            row.ratio_to.iter().map(ratio).collect::<Vec<_>>().join(", "),
        ]);
    }
    table
}

/// A system that can be measured.
struct Stage {
    system: System,
    port: u16,
    dir: PathBuf,
    /// A session by the server, which uses the region too.
    _guest: Option<Session>,
    /// It ends last.
    _server: Option<Daemon>,
}

impl Stage {
    /// Starts what it needs. `None`: it is not installed.
    fn set(system: System, before: &[Self], scratch: &Path) -> anyhow::Result<Option<Self>> {
        if system == System::MemoryServed
            && let Some(served) = before.iter().find(|stage| stage.system == System::Served)
        {
            let guest = Some(systems::session(System::Served, served.place(Duration::ZERO))?);
            let (port, dir) = (served.port, served.dir.clone());
            return Ok(Some(Self { system, port, dir, _guest: guest, _server: None }));
        }
        let (port, dir) = (free_port()?, scratch.join(system.name()));
        std::fs::create_dir(&dir)?;
        let mut stage = Self { system, port, dir, _guest: None, _server: None };
        let command = match system {
            System::Memory => return Ok(Some(stage)),
            System::Redis => daemon::redis(port),
            System::Postgres => {
                stage._server = postgres::start(scratch, &stage.dir, port)?;
                return Ok(stage._server.is_some().then_some(stage));
            }
            System::Served | System::ServedRiding | System::MemoryServed => face::server(port)?,
        };
        let mut command = command;
        command.envs(face::environment(&stage.dir));
        stage._server = Daemon::start(system.name(), command, (&stage.dir, port))?;
        if system == System::MemoryServed {
            stage._guest = Some(systems::session(System::Served, stage.place(Duration::ZERO))?);
        }
        Ok(stage._server.is_some().then_some(stage))
    }

    fn place(&self, pause: Duration) -> Place<'_> {
        Place { port: self.port, dir: &self.dir, pause }
    }

    fn measure(&self, args: &ServedArgs, scene: Scene) -> anyhow::Result<Done> {
        let processes = if scene.is_of_processes() { args.clients } else { 1 };
        let start = |number: u16| Client::start(self, args, (scene, number));
        let mut started = (0..processes).map(start).collect::<anyhow::Result<Vec<_>>>()?;
        started.iter_mut().try_for_each(|client| client.hear().map(drop))?;
        started.iter_mut().try_for_each(Client::go)?;
        let mut all = Done { rates: Vec::new(), latency: Latency::default() };
        for client in &mut started {
            let done: Done = serde_json::from_str(&client.hear()?)?;
            ensure!(client.child.wait()?.success(), "a client failed");
            all.rates.extend(done.rates);
            all.latency.add(&done.latency);
        }
        Ok(all)
    }

    fn row<'m>(
        &self,
        args: &ServedArgs,
        scene: Scene,
        rounds: &[Done],
        others: impl Iterator<Item = (System, &'m [Done])>,
    ) -> anyhow::Result<Row> {
        let rates: Vec<f64> = rounds.iter().map(sum).collect();
        let ratio = |theirs: &[Done]| {
            Quartiles::of(rates.iter().zip(theirs).map(|(own, other)| own / sum(other)).collect())
        };
        let mut latency = Latency::default();
        rounds.iter().for_each(|done| latency.add(&done.latency));
        let latency = latency.summary();
        let fairness = || Quartiles::of(rounds.iter().map(|done| jain(&done.rates)).collect());
        let round_trips = match scene.is_single() && !self.system.is_at_hand() {
            true => Some(self.round_trips(scene)?),
            false => None,
        };
        Ok(Row {
            scene,
            system: self.system,
            clients: if scene.is_single() { 1 } else { args.clients },
            seconds: args.seconds,
            rounds: args.rounds.rounds,
            ratio_to: others.map(|(other, theirs)| (other, ratio(theirs))).collect(),
            cycles_per_s: Quartiles::of(rates.clone()),
            latency_ns: LatencyNs { p50: latency.p50, p99: latency.p99 },
            fairness: (scene == Scene::Together).then(|| fairness().median),
            round_trips,
            pause_us: (self.system == System::Redis).then_some(args.pause_us),
        })
    }

    fn round_trips(&self, scene: Scene) -> anyhow::Result<Trips> {
        let relay = Relay::to(self.port)?;
        let place = Place { port: relay.port(), ..self.place(Duration::ZERO) };
        let trips = worker::trips_of((self.system, scene), place, || relay.trips());
        trips.map(|(acquisition, release)| Trips { acquisition, release })
    }
}

fn sum(done: &Done) -> f64 {
    done.rates.iter().sum()
}

/// Jain's index of these shares.
fn jain(shares: &[f64]) -> f64 {
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * squares)
}

struct Client {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Client {
    fn start(
        stage: &Stage,
        args: &ServedArgs,
        (scene, number): (Scene, u16),
    ) -> anyhow::Result<Self> {
        let mut command = child::command("served-client")?;
        command.args(["--system", stage.system.name(), "--scene", scene.name()]);
        command.args(["--number", &number.to_string(), "--clients", &args.clients.to_string()]);
        command.args(["--executor-threads", &args.executor_threads.to_string()]);
        command.args(["--port", &stage.port.to_string()]).arg("--dir").arg(&stage.dir);
        command.args(["--pause-us", &args.pause_us.to_string()]);
        command.args(["--seconds", &args.seconds.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let said = BufReader::new(child.stdout.take().context("it has an output")?);
        Ok(Self { child, said })
    }

    fn hear(&mut self) -> anyhow::Result<String> {
        let mut said = String::new();
        ensure!(self.said.read_line(&mut said)? > 0, "a client ended before it was done");
        Ok(said)
    }

    fn go(&mut self) -> anyhow::Result<()> {
        let input = self.child.stdin.as_mut().context("it has an input")?;
        Ok(input.write_all(GO)?)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It has ended, unless something failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::{Quartiles, jain};

    #[test]
    fn shares_that_are_equal_are_fair_and_those_of_one_are_not() {
        assert_eq!(jain(&[5.0; 4]), 1.0);
        assert_eq!(jain(&[8.0, 0.0, 0.0, 0.0]), 0.25);
    }

    #[test]
    fn quartiles_are_of_what_was_measured() {
        let quartiles = Quartiles::of(vec![4.0, 1.0, 5.0, 3.0, 2.0]);
        assert_eq!((quartiles.q1, quartiles.median, quartiles.q3), (2.0, 3.0, 4.0));
        let one = Quartiles::of(vec![7.0]);
        assert_eq!((one.q1, one.median, one.q3), (7.0, 7.0, 7.0));
    }
}
