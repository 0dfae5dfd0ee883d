//! Runs the project's own programs as a newcomer would: the examples, and what pages show.
//!
//! Every run has a home and a region directory of its own, empty, gone afterwards. Nothing of the
//! caller's farlock is read or changed.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::child::{self, End, Stream};
use crate::figures::{self, LABORATORY, TOYS, Toy};
use crate::transcript::{self, Block, Entry};

/// The package whose examples are run.
const PACKAGE: &str = "farlock";
/// What one example may take.
const EXAMPLE_MAX: Duration = Duration::from_secs(60);
/// What one toy run of the laboratory may take.
const TOY_MAX: Duration = Duration::from_secs(40);
/// What one command of a page may take.
const COMMAND_MAX: Duration = Duration::from_secs(90);
/// What cargo may take to bring the programs up to date.
const BUILD_MAX: Duration = Duration::from_secs(600);

/// The caller's environment, as far as programs see it; `main` reads it.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    /// Where programs are looked for.
    pub(crate) path: OsString,
    /// Where cargo keeps its registry, which must not move with the home.
    pub(crate) cargo_home: PathBuf,
    /// Where rustup keeps its toolchains, likewise.
    pub(crate) rustup_home: PathBuf,
}

/// The workspace, with all that is needed to run what it builds.
pub(crate) struct Programs<'a> {
    root: &'a Path,
    stop: &'a AtomicBool,
    surroundings: Surroundings,
    target: PathBuf,
    metadata: Value,
}

/// A home and a region directory for one run.
struct Home {
    home: TempDir,
    regions: TempDir,
}

impl Home {
    fn new() -> Result<Self> {
        let shared_memory = Path::new("/dev/shm");
        let regions = if shared_memory.is_dir() {
            tempfile::tempdir_in(shared_memory)?
        } else {
            tempfile::tempdir()?
        };
        Ok(Self { home: tempfile::tempdir()?, regions })
    }
}

impl<'a> Programs<'a> {
    /// Asks cargo about the workspace at `root`.
    ///
    /// # Errors
    /// cargo does not answer.
    pub(crate) fn new(
        root: &'a Path,
        stop: &'a AtomicBool,
        surroundings: Surroundings,
    ) -> Result<Self> {
        let metadata = metadata(root)?;
        let target = target(&metadata)?;
        Ok(Self { root, stop, surroundings, target, metadata })
    }

    /// Runs every example of the product, without arguments. Each must end well and in time.
    ///
    /// # Errors
    /// The examples do not build, or one cannot be started.
    pub(crate) fn examples(&self) -> Result<ExitCode> {
        let names = example_names(&self.metadata);
        if names.is_empty() {
            println!("SKIP examples: {PACKAGE} has none");
            return Ok(ExitCode::SUCCESS);
        }
        // As tests are built, with which they share nearly all: for another profile, though it says
        // the same, cargo would build all that anew.
        self.cargo(
            "build --profile=test --workspace --exclude=farlock-lab-command \
                    --all-features --examples",
        )?;
        let mut failed = Vec::new();
        for name in &names {
            let home = Home::new()?;
            let program = self.target.join("debug/examples").join(name);
            let begun = Instant::now();
            let mut command = Command::new(program);
            self.at_home(&mut command, &home);
            let end = child::run(&mut command, EXAMPLE_MAX, self.stop, |_, line| {
                println!("{line}");
            });
            let outcome = complaint(&end?, EXAMPLE_MAX);
            let seconds = begun.elapsed().as_secs_f64();
            println!("example {name}: {} in {seconds:.1} s", outcome.as_deref().unwrap_or("ok"));
            failed.extend(outcome.map(|_| name.as_str()));
        }
        println!("{} examples run, {} failed {}", names.len(), failed.len(), failed.join(" "));
        Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Runs the laboratory small, and judges what it prints.
    ///
    /// # Errors
    /// The laboratory does not build, or cannot be started.
    pub(crate) fn figures(&self) -> Result<ExitCode> {
        if !figures::is_there(&self.metadata) {
            println!("SKIP figures: {LABORATORY} is a library only");
            return Ok(ExitCode::SUCCESS);
        }
        self.build()?;
        let mut failed = 0;
        for toy in TOYS {
            let mut complaints = Vec::new();
            let first = self.toy(toy, &mut complaints)?;
            complaints.extend(toy.complaints(&first));
            if toy.repeats && complaints.is_empty() && self.toy(toy, &mut complaints)? != first {
                complaints.push("a second run printed something else".to_owned());
            }
            println!("{}: {}", toy.title, if complaints.is_empty() { "ok" } else { "FAILED" });
            for complaint in &complaints {
                println!("  {complaint}");
            }
            failed += usize::from(!complaints.is_empty());
        }
        println!("{} toy runs, {failed} failed", TOYS.len());
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Runs a toy once; the answer is what it printed.
    fn toy(&self, toy: &Toy, complaints: &mut Vec<String>) -> Result<Vec<String>> {
        let home = Home::new()?;
        let mut command = Command::new(self.target.join("release").join(LABORATORY));
        command.args(toy.args.split_whitespace());
        self.at_home(&mut command, &home);
        let mut printed = Vec::new();
        let end = child::run(&mut command, TOY_MAX, self.stop, |stream, line| match stream {
            Stream::Out => printed.push(line.to_owned()),
            Stream::Err => eprintln!("{line}"),
        })?;
        complaints.extend(complaint(&end, TOY_MAX));
        Ok(printed)
    }

    /// Runs the console blocks of Markdown pages and compares what they print. The commands of a
    /// page share a home and a region directory.
    ///
    /// # Errors
    /// A page cannot be read, or the programs do not build.
    pub(crate) fn transcripts(&self, pages: &[String]) -> Result<ExitCode> {
        ensure!(!pages.is_empty(), "which pages?");
        self.build()?;
        let mut run = 0;
        let mut faults = Vec::new();
        for page in pages {
            let text = std::fs::read_to_string(self.root.join(page)).context(page.clone())?;
            let home = Home::new()?;
            for block in transcript::parse(&text) {
                let entries = match block {
                    Block::NotRun(reason) => {
                        println!("{page}: a block is not run: {reason}");
                        continue;
                    }
                    Block::Run(entries) => entries,
                    Block::Elsewhere(address, entries) => {
                        let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
                        vec![Block::script(&entries, &address, &free)]
                    }
                };
                for entry in entries {
                    run += 1;
                    faults.extend(self.entry(page, &entry, &home)?);
                }
            }
        }
        if run == 0 {
            println!("SKIP transcripts: {} shows no command", pages.join(" "));
        }
        // At the end, where people look first.
        println!("{run} commands run, {} failed{}", faults.len(), faults.concat());
        Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Runs one command of a page; the answer is what there is to say if it did not do what the
    /// page says.
    fn entry(&self, page: &str, entry: &Entry, home: &Home) -> Result<Option<String>> {
        let mut command = Command::new("bash");
        command.arg("-c").arg(format!("exec 2>&1\n{}", entry.command));
        self.at_home(&mut command, home);
        let mut printed = Vec::new();
        let end = child::run(&mut command, COMMAND_MAX, self.stop, |_, line| {
            printed.push(line.to_owned());
        })?;
        let complaint = complaint(&end, COMMAND_MAX).or_else(|| {
            let same = transcript::matches(&entry.expected, &printed);
            (!same).then(|| "printed something else".to_owned())
        });
        let Some(complaint) = complaint else {
            println!("{page}:{}: ok: {}", entry.line, entry.command);
            return Ok(None);
        };
        println!("{page}:{}: {complaint}", entry.line);
        let (expected, printed) = (entry.expected.join("\n"), printed.join("\n"));
        Ok(Some(format!(
            "\n\n{page}:{}: {complaint}: {}\n--- the page says\n{expected}\n\
             --- it printed\n{printed}\n---",
            entry.line, entry.command
        )))
    }

    /// Brings the laboratory up to date, and the command with the features that people build it
    /// with.
    fn build(&self) -> Result<()> {
        self.cargo("build --release --bin=farlock-lab")?;
        self.cargo("build --release --package=farlock")
    }

    /// Brings programs up to date by this command of cargo's.
    fn cargo(&self, build: &str) -> Result<()> {
        let mut command = Command::new("cargo");
        command.args(build.split_whitespace()).current_dir(self.root);
        let end = child::run(&mut command, BUILD_MAX, self.stop, |_, line| println!("{line}"))?;
        match complaint(&end, BUILD_MAX) {
            None => Ok(()),
            Some(complaint) => bail!("cargo {build}: {complaint}"),
        }
    }

    fn at_home(&self, command: &mut Command, home: &Home) {
        let mut path = self.target.join("release").into_os_string();
        path.push(":");
        path.push(&self.surroundings.path);
        command
            .current_dir(self.root)
            .env("PATH", path)
            .env("HOME", home.home.path())
            .env("FARLOCK_DIR", home.regions.path())
            .env("FARLOCK_STATE_DIR", home.home.path().join("state"))
            .env("CARGO_HOME", &self.surroundings.cargo_home)
            .env("RUSTUP_HOME", &self.surroundings.rustup_home)
            .env("CARGO_TERM_QUIET", "true");
    }
}

/// What cargo says about the workspace at `root`.
///
/// # Errors
/// cargo does not answer.
pub(crate) fn metadata(root: &Path) -> Result<Value> {
    let out = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version=1"])
        .current_dir(root)
        .output()
        .context("cargo does not start")?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Ok(serde_json::from_slice(&out.stdout)?)
}

/// Where cargo builds.
///
/// # Errors
/// The metadata do not say.
pub(crate) fn target(metadata: &Value) -> Result<PathBuf> {
    Ok(metadata["target_directory"].as_str().context("no target directory")?.into())
}

/// The names of the product's examples, as `cargo metadata` tells them.
fn example_names(metadata: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let of_product = |package: &Value| package["name"] == PACKAGE;
    list(&metadata["packages"])
        .into_iter()
        .filter(of_product)
        .flat_map(|package| list(&package["targets"]))
        .filter(|target| target["kind"][0] == "example")
        .filter_map(|target| target["name"].as_str().map(str::to_owned))
        .collect()
}

/// What is wrong about this end; `None` for a success.
fn complaint(end: &End, limit: Duration) -> Option<String> {
    match end {
        End::Exited(status) if status.success() => None,
        End::Exited(status) => Some(status.to_string()),
        End::OverLimit => Some(format!("killed after {} s", limit.as_secs())),
        End::LeftBehind => Some("left processes behind".to_owned()),
        End::Interrupted => Some("interrupted".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs<'a>(root: &'a Path, stop: &'a AtomicBool) -> Programs<'a> {
        let surroundings = Surroundings {
            path: "/usr/bin:/bin".into(),
            cargo_home: PathBuf::new(),
            rustup_home: PathBuf::new(),
        };
        Programs { root, stop, surroundings, target: PathBuf::new(), metadata: Value::Null }
    }

    fn outcome(command: &str, expected: &str) -> bool {
        let stop = AtomicBool::new(false);
        let expected = expected.lines().map(str::to_owned).collect();
        let entry = Entry { line: 1, command: command.to_owned(), expected };
        let home = Home::new().unwrap();
        programs(Path::new("/"), &stop).entry("PAGE", &entry, &home).unwrap().is_none()
    }

    #[test]
    fn a_command_must_end_well_and_print_what_the_page_says() {
        assert!(outcome("echo a; echo b >&2", "a\nb"));
        assert!(!outcome("echo a", "b"));
        assert!(!outcome("echo a; false", "a"));
    }

    #[test]
    fn a_command_sees_an_empty_home_and_an_empty_region_directory() {
        assert!(outcome("ls -A \"$HOME\" \"$FARLOCK_DIR\" | grep -v ':$'; echo end", "...\nend"));
        assert!(outcome("ls -A \"$FARLOCK_DIR\"", ""));
    }

    #[test]
    fn examples_are_found_by_their_kind() {
        let metadata = serde_json::json!({"packages": [
            {"name": "farlock", "targets": [
                {"kind": ["lib"], "name": "farlock"},
                {"kind": ["example"], "name": "counter"}]},
            {"name": "other", "targets": [{"kind": ["example"], "name": "else"}]}]});
        assert_eq!(example_names(&metadata), ["counter"]);
    }
}
