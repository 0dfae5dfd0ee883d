//! `farlock kv`: a key-value store in memory that the processes of this host share.

mod hold;
mod lines;
mod load;
mod refused;
mod scan;
mod several;
mod unnamed;
mod watch;
mod whole;
mod written;

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Subcommand;
use clap::builder::PossibleValuesParser;
use farlock::kv::{Index, KEY_BYTES_MAX, StoreOptions, VALUE_BYTES_MAX};
use farlock::text::{shown, shown_whole};
use farlock::{ConnectError, DEFAULT_REGION, Kv, KvError, RegionOptions, SessionError};
use farlock_fabric::{Host, chain};

use super::inherited::input_is_open;
use super::lock::seconds;
use super::places::{HereArg, Places, RegionsArg};
use super::report::{Exit, Failure, print, print_done, say};
use refused::{for_people, has_a_value, is_put, no_such_key, no_such_store, refused};
use several::Form;
use written::Written;

/// Store, read and remove values by their keys.
///
/// A store is a file in memory, in .stores of FARLOCK_DIR or else of /dev/shm/farlock-UID. It is
/// made with the first value, grows as it needs to, and lives until it is dropped or the machine
/// restarts: nothing is written to a disk, but by `dump`. Every command and program that uses it
/// reads and writes it by itself, and waits for no other, however that is stopped or killed.
///
/// With several servers, --server A --server B, a store is over all of them: a hash of each key
/// says which server has it, and each does its own. They are named in the same order each time, and
/// all of them; a store has as many as it was made with. To have it over others, `dump` it and
/// `load` the dump into a new one. Several regions of this host, --region A --region B, do as well.
///
/// A key that was written with --token is fenced: it is changed with a token only, and one that is
/// below the highest it was written with is refused. With the token that `farlock lock` gives to
/// its command a holder that was paused while others had the lock writes nothing any more.
///
/// Exit status: 0; 1 if there is no such key or store, if there is one that was not to be, if its
/// value is not the one expected, or no number, if the store has another index or other parts, if a
/// token is out of date, or if a key that is watched does not change; 64 for wrong usage, and for a
/// file of which a line is no pair or that is damaged, 69 if the store cannot be used or is full,
/// 71 if the system refuses, as where a file is not there. Where several keys are given each has
/// its turn, and the highest of these counts.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(subcommand)]
    action: Action,
}

/// Which store.
#[derive(Debug, clap::Args)]
struct StoreArg {
    #[command(flatten)]
    regions: RegionsArg,
    /// The store.
    #[arg(short, long, value_name = "STORE", default_value = "default")]
    store: String,
}

/// Which store, which is made where it is missing.
#[derive(Debug, clap::Args)]
struct MadeArg {
    #[command(flatten)]
    store: StoreArg,
    /// The index that the store has, or gets if it is made: `ordered` keeps the keys in order, and
    /// can be scanned from any of them on. Without this it is any, and if it is made that of the
    /// dump that is loaded, or `hash`.
    #[arg(long, value_name = "INDEX", value_parser = PossibleValuesParser::new(
        Index::ALL.iter().map(|index| index.name())))]
    index: Option<String>,
    /// Make a part of it anew, empty, whose memory is gone, where it has several.
    #[arg(long)]
    remake: bool,
}

/// How a value is stored.
#[derive(Debug, clap::Args)]
struct How {
    /// Only if the key has no value.
    #[arg(long, conflicts_with = "replace")]
    new: bool,
    /// Only if the key has a value.
    #[arg(long)]
    replace: bool,
    /// For so many seconds, fractions allowed.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    ttl: Option<Duration>,
    /// With this fencing token, as FARLOCK_TOKEN has it.
    #[arg(long, value_name = "TOKEN", value_parser = token, allow_negative_numbers = true)]
    token: Option<u64>,
}

/// A fencing token.
fn token(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a token is expected, as FARLOCK_TOKEN is under the lock".to_owned())
}

/// What is added to a number.
fn addend(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "a whole number of 64 bits is expected".to_owned())
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Store a value under a key.
    Put {
        #[command(flatten)]
        store: MadeArg,
        /// The key, 1 to 1024 bytes.
        key: OsString,
        /// The value, up to 1 MiB; `-`: what standard input has.
        #[arg(allow_hyphen_values = true)]
        value: OsString,
        #[command(flatten)]
        how: How,
        #[command(flatten)]
        written: Written,
    },
    /// Store a value under a key for as long as this command runs, which is until a signal ends it:
    /// HUP, INT, QUIT or TERM. However it dies, nobody sees the value any more from then on. Ends
    /// with status 1 if another client gives the key another value, or removes it.
    Hold {
        #[command(flatten)]
        store: MadeArg,
        /// The key.
        key: OsString,
        /// The value; `-`: what standard input has.
        #[arg(allow_hyphen_values = true)]
        value: OsString,
        /// Only if the key has no value: else it ends at once, with status 1.
        #[arg(long)]
        new: bool,
        #[command(flatten)]
        written: Written,
    },
    /// Print the value of a key, and a line's end; of several keys a line each: KEY, a tab, VALUE,
    /// as `scan` writes them. Keys that have no value are named on standard error.
    Get {
        #[command(flatten)]
        store: StoreArg,
        /// The keys.
        #[arg(value_name = "KEY", required = true)]
        keys: Vec<OsString>,
        /// Print the value's bytes and nothing else.
        #[arg(long, conflicts_with = "lines")]
        raw: bool,
        /// Print the key too, also if it is one.
        #[arg(long)]
        lines: bool,
        #[command(flatten)]
        written: Written,
    },
    /// Remove the values of keys. Those that have none are named on standard error.
    Del {
        #[command(flatten)]
        store: StoreArg,
        /// The keys.
        #[arg(value_name = "KEY", required = true)]
        keys: Vec<OsString>,
        /// With this fencing token.
        #[arg(long, value_name = "TOKEN", value_parser = token, allow_negative_numbers = true)]
        token: Option<u64>,
        #[command(flatten)]
        written: Written,
    },
    /// Add to the number of a key, 0 if it has none, and print the sum.
    Incr {
        #[command(flatten)]
        store: MadeArg,
        /// The key.
        key: OsString,
        /// How much.
        #[arg(default_value_t = 1, value_parser = addend, allow_negative_numbers = true)]
        by: i64,
        /// With this fencing token.
        #[arg(long, value_name = "TOKEN", value_parser = token, allow_negative_numbers = true)]
        token: Option<u64>,
        #[command(flatten)]
        written: Written,
    },
    /// Store a value under a key if the key has the one that is expected.
    Cas {
        #[command(flatten)]
        store: StoreArg,
        /// The key.
        key: OsString,
        /// The value that is expected.
        #[arg(allow_hyphen_values = true)]
        expected: OsString,
        /// The new value.
        #[arg(allow_hyphen_values = true)]
        value: OsString,
        /// With this fencing token.
        #[arg(long, value_name = "TOKEN", value_parser = token, allow_negative_numbers = true)]
        token: Option<u64>,
        #[command(flatten)]
        written: Written,
    },
    /// Print for how many seconds a key still has its value, or `forever`.
    Ttl {
        #[command(flatten)]
        store: StoreArg,
        /// The key.
        key: OsString,
        #[command(flatten)]
        written: Written,
    },
    /// Print a key and its value, a line for each change: KEY, a tab, VALUE as `scan` writes them,
    /// or KEY, two tabs and `gone`. The first line is the value it has, if it has one. Of changes
    /// that come quicker than they are printed only the last may be. A store that is not there yet
    /// is waited for, and not made.
    Watch {
        #[command(flatten)]
        store: StoreArg,
        /// The key.
        key: OsString,
        /// Give up, with status 1, when nothing has changed for so many seconds, fractions allowed.
        #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
        wait: Option<Duration>,
        /// End after so many lines.
        #[arg(long, value_name = "LINES")]
        count: Option<u64>,
        #[command(flatten)]
        written: Written,
    },
    /// Print keys and values, a pair a line: in the order of the keys' bytes if the store was made
    /// with --index ordered, and else in no order.
    Scan {
        #[command(flatten)]
        store: StoreArg,
        #[command(flatten)]
        which: scan::Which,
        #[command(flatten)]
        written: Written,
    },
    /// Write all that is in a store into a file, to be loaded later: which index it has, and each
    /// key as it was at some moment meanwhile.
    Dump {
        #[command(flatten)]
        store: StoreArg,
        /// The file; `-` or none: standard output.
        file: Option<PathBuf>,
    },
    /// Store the pairs of a file: KEY, a tab, VALUE a line, with \t, \n, \r, \\ and \xHH in them;
    /// behind a tab each seconds=SECONDS and token=TOKEN, where the value has them. A store that
    /// is made gets the index of the one that was dumped, which the first line says.
    Load {
        #[command(flatten)]
        store: MadeArg,
        /// The file; `-` or none: standard input.
        file: Option<PathBuf>,
    },
    /// Free the memory of values that have ended, by their time or with the process that wrote
    /// them, and print how many there were. A store that is full does so by itself.
    Sweep {
        #[command(flatten)]
        store: StoreArg,
    },
    /// Print which index a store was made with: hash or ordered.
    Index {
        #[command(flatten)]
        store: StoreArg,
    },
    /// List the stores of a region of this host.
    #[command(visible_alias = "list")]
    Ls {
        #[command(flatten)]
        region: HereArg,
    },
    /// Remove a store of this host with all that is in it, also if clients use it.
    Drop {
        #[command(flatten)]
        region: HereArg,
        /// The store.
        store: String,
    },
}

impl From<KvError> for Failure {
    fn from(error: KvError) -> Self {
        let exit = match &error {
            KvError::StaleToken { .. }
            | KvError::Fenced { .. }
            | KvError::NotANumber
            | KvError::Overflow
            | KvError::OtherIndex { .. }
            | KvError::OtherPart { .. }
            | KvError::ForeignPart { .. }
            | KvError::NoPart { .. }
            | KvError::TimedOut { .. } => Exit::CONFLICT,
            KvError::BadName { .. }
            | KvError::BadParts { .. }
            | KvError::BadKey { .. }
            | KvError::TooLong { .. } => Exit::USAGE,
            KvError::Open { source: ConnectError::Name { .. }, .. } => Exit::USAGE,
            KvError::Thread(_) => Exit::SYSTEM,
            _ => Exit::UNAVAILABLE,
        };
        let hint = match &error {
            // For people at a terminal: that of the error is for programs.
            KvError::Fenced { .. } => {
                "change it with --token TOKEN, as FARLOCK_TOKEN is under the lock that guards it"
                    .to_owned()
            }
            _ => error.hint(),
        };
        Self::new(exit, error.code(), chain(&error), hint)
    }
}

impl MadeArg {
    /// The store, which is created where it is missing.
    fn open(&self, places: &Places) -> Result<Kv, Failure> {
        self.store.open(places, self.options(self.wanted()))
    }

    fn options(&self, index: Option<Index>) -> StoreOptions {
        let mut store = StoreOptions::new(&self.store.store);
        (store.index, store.remake) = (index, self.remake);
        store
    }

    /// The index that the store is to have, if any is asked for.
    fn wanted(&self) -> Option<Index> {
        let is_meant = |index: &&Index| self.index.as_deref() == Some(index.name());
        Index::ALL.iter().find(is_meant).copied()
    }

    /// The same to put a value into it. What only replaces one makes no store.
    fn open_to_put(&self, places: &Places, how: &How) -> Result<Kv, Failure> {
        if how.replace {
            self.store.existing_with(places, self.wanted())
        } else {
            self.open(places)
        }
    }

    /// The same to load a dump. If none is asked for it gets the index of the store that was
    /// dumped, or keeps the one it has.
    fn open_to_load(&self, places: &Places, dumped: Option<Index>) -> Result<Kv, Failure> {
        let Some(dumped) = dumped.filter(|_| self.index.is_none()) else {
            return self.open(places);
        };
        let store = self.options(Some(dumped));
        match Kv::open_over(&self.store.regions(places)?, store) {
            Err(KvError::OtherIndex { .. }) => {
                let store = self.open(places)?;
                load::differs(&store, dumped);
                Ok(store)
            }
            opened => Ok(opened?),
        }
    }
}

impl StoreArg {
    /// The regions that it is in.
    fn regions(&self, places: &Places) -> Result<Vec<RegionOptions>, Failure> {
        let regions = places.regions(&self.regions)?.into_iter();
        Ok(regions.map(|region| region.labelled("farlock kv")).collect())
    }

    fn open(&self, places: &Places, store: StoreOptions) -> Result<Kv, Failure> {
        Ok(Kv::open_over(&self.regions(places)?, store)?)
    }

    /// The store, if it is there: to read in it does not make it.
    fn existing(&self, places: &Places) -> Result<Kv, Failure> {
        self.existing_with(places, None)
    }

    /// The same, and it is refused if it has another index than this.
    fn existing_with(&self, places: &Places, index: Option<Index>) -> Result<Kv, Failure> {
        self.found(places, index)?.ok_or_else(|| no_such_store(&self.store))
    }

    fn found(&self, places: &Places, index: Option<Index>) -> Result<Option<Kv>, Failure> {
        let (regions, mut store) = (self.regions(places)?, StoreOptions::new(&self.store));
        store.index = index;
        let store = store.existing();
        store.check_name()?;
        for region in &regions {
            Host::check_name(&region.name).map_err(SessionError::Connect)?;
        }
        match Kv::open_over(&regions, store) {
            Err(KvError::Open { source: ConnectError::Absent { .. }, .. }) => Ok(None),
            opened => Ok(Some(opened?)),
        }
    }

    /// The store, once it is there, within this time; `None` where nobody reads any more what would
    /// be printed of it.
    fn awaited(&self, places: &Places, wait: Option<Duration>) -> Result<Option<Kv>, Failure> {
        let begun = Instant::now();
        loop {
            if let Some(store) = self.found(places, None)? {
                return Ok(Some(store));
            }
            if !watch::nap(begun, wait)? {
                return Ok(None);
            }
        }
    }
}

impl Action {
    /// The same, with the bytes that are meant in the place of keys that are escaped.
    fn decoded(mut self) -> Result<Self, Failure> {
        match &mut self {
            Self::Put { key, written, .. }
            | Self::Hold { key, written, .. }
            | Self::Incr { key, written, .. }
            | Self::Cas { key, written, .. }
            | Self::Ttl { key, written, .. }
            | Self::Watch { key, written, .. } => written.decode(key)?,
            Self::Get { keys, written, .. } | Self::Del { keys, written, .. } => {
                keys.iter_mut().try_for_each(|key| written.decode(key))?;
            }
            Self::Scan { which, written, .. } => {
                which.keys().try_for_each(|key| written.decode(key))?;
            }
            _ => {}
        }
        Ok(self)
    }

    /// Refuses keys that no store can have, before one is made for them.
    fn check_keys(&self) -> Result<(), KvError> {
        let keys = match self {
            Self::Put { key, .. }
            | Self::Hold { key, .. }
            | Self::Incr { key, .. }
            | Self::Cas { key, .. }
            | Self::Ttl { key, .. }
            | Self::Watch { key, .. } => std::slice::from_ref(key),
            // Of several what is amiss with one keeps no other from its turn.
            Self::Get { keys, .. } | Self::Del { keys, .. } if keys.len() == 1 => keys.as_slice(),
            _ => &[],
        };
        let mut lengths = keys.iter().map(|key| key.len());
        let bad = lengths.find(|bytes| !(1..=KEY_BYTES_MAX).contains(bytes));
        bad.map_or(Ok(()), |bytes| Err(KvError::BadKey { bytes }))
    }
}

pub(in crate::cli) fn run(args: Args, places: &Places) -> Result<Exit, Failure> {
    let action = args.action.decoded()?;
    action.check_keys()?;
    match action {
        Action::Put { store, key, value, how, written } => {
            let value = given(value, written)?;
            put(&store.open_to_put(places, &how)?, key.as_bytes(), value, &how)?;
        }
        Action::Hold { store, key, value, new, written } => {
            let (value, told) = (given(value, written)?, hold::Told::listen()?);
            return hold::hold(store.open(places)?, (key.as_bytes(), &value), new, &told);
        }
        Action::Sweep { store } => print_done(store.existing(places)?.sweep()?)?,
        Action::Get { store, keys, raw, lines, .. } => {
            let form = form(raw, lines || keys.len() > 1)?;
            return several::get(&store.existing(places)?, &keys, form);
        }
        Action::Del { store, keys, token, .. } => {
            return several::del(&store.existing(places)?, &keys, token);
        }
        Action::Incr { store, key, by, token, .. } => {
            let store = store.open(places)?;
            print_done(match token {
                Some(token) => store.fenced(token.into()).add(key.as_bytes(), by)?,
                None => store.add(key.as_bytes(), by)?,
            })?;
        }
        Action::Cas { store, key, expected, value, token, written } => {
            let (expected, value) = (written.bytes(expected)?, written.bytes(value)?);
            swap(&store.existing(places)?, key.as_bytes(), [&expected, &value], token)?;
        }
        Action::Ttl { store, key, .. } => {
            let key = key.as_bytes();
            let left = store.existing(places)?.time_left(key)?.ok_or_else(|| no_such_key(key))?;
            let left = left.map(|left| format!("{:.3}\n", left.as_secs_f64()));
            print(&left.unwrap_or_else(|| "forever\n".to_owned()))?;
        }
        Action::Watch { store, key, wait, count, .. } => {
            if let Some(store) = store.awaited(places, wait)? {
                watch::watch(&store, key.as_bytes(), wait, count)?;
            }
        }
        Action::Scan { store, which, .. } => scan::scan(&store.existing(places)?, &which)?,
        Action::Dump { store, file } => {
            load::dump(&store.existing(places)?, named(file.as_deref()))?;
        }
        Action::Load { store, file } => {
            // A file that cannot be read makes no store.
            let pairs = load::Pairs::open(named(file.as_deref()))?;
            load::load(&store.open_to_load(places, pairs.index)?, pairs)?;
        }
        Action::Index { store } => print(&format!("{}\n", store.existing(places)?.index()))?,
        Action::Ls { region } => list(&places.here(&region)?)?,
        Action::Drop { region, store } => {
            let removed = places.here(&region)?.remove_store(&store)?;
            is_put(removed, || no_such_store(&store))?;
        }
    }
    Ok(Exit::OK)
}

/// The file that is meant. `None`: a standard stream.
fn named(file: Option<&Path>) -> Option<&Path> {
    file.filter(|file| *file != Path::new("-"))
}

/// Prints the names of the stores.
fn list(options: &RegionOptions) -> Result<(), Failure> {
    let names = options.store_names().map_err(SessionError::Connect)?;
    let is_known = options.name == DEFAULT_REGION || !names.is_empty();
    // If another one was meant, this tells.
    if !is_known {
        let regions = options.region_names().map_err(SessionError::Connect)?;
        if !regions.contains(&options.name) {
            say(format_args!("farlock: there is no region '{}' yet", shown(&options.name)));
        }
    }
    let names = names.iter().map(|name| format!("{}\n", shown_whole(name)));
    print(&names.collect::<String>())
}

/// How values are printed.
fn form(raw: bool, lines: bool) -> Result<Form, Failure> {
    match (raw, lines) {
        (true, true) => {
            Err(Failure::usage("--raw is for one key", "leave --raw out: each gets a line"))
        }
        (true, false) => Ok(Form::Raw),
        (false, true) => Ok(Form::Line),
        (false, false) => Ok(Form::Value),
    }
}

fn swap(
    store: &Kv,
    key: &[u8],
    [expected, value]: [&[u8]; 2],
    token: Option<u64>,
) -> Result<(), Failure> {
    let done = match token {
        Some(token) => store.fenced(token.into()).compare_and_set(key, expected, value)?,
        None => store.compare_and_set(key, expected, value)?,
    };
    is_put(done, || {
        let what = format!("the key '{}' has another value, or none", for_people(key));
        refused("mismatch", what, "`farlock kv get` prints it, or says that there is none")
    })
}

fn put(store: &Kv, key: &[u8], value: Vec<u8>, how: &How) -> Result<(), Failure> {
    let value = &value;
    match (how.token.map(|token| store.fenced(token.into())), how.ttl) {
        (None, None) => how.put(
            key,
            || store.put(key, value),
            || store.insert(key, value),
            || store.replace(key, value),
        ),
        (None, Some(time)) => how.put(
            key,
            || store.put_for(key, value, time),
            || store.insert_for(key, value, time),
            || store.replace_for(key, value, time),
        ),
        (Some(fenced), None) => how.put(
            key,
            || fenced.put(key, value),
            || fenced.insert(key, value),
            || fenced.replace(key, value),
        ),
        (Some(fenced), Some(time)) => how.put(
            key,
            || fenced.put_for(key, value, time),
            || fenced.insert_for(key, value, time),
            || fenced.replace_for(key, value, time),
        ),
    }
}

impl How {
    /// Stores in the one of these ways that is asked for.
    fn put(
        &self,
        key: &[u8],
        put: impl FnOnce() -> Result<(), KvError>,
        insert: impl FnOnce() -> Result<bool, KvError>,
        replace: impl FnOnce() -> Result<bool, KvError>,
    ) -> Result<(), Failure> {
        match (self.new, self.replace) {
            (true, _) => is_put(insert()?, || has_a_value(key)),
            (_, true) => is_put(replace()?, || no_such_key(key)),
            _ => Ok(put()?),
        }
    }
}

/// A value as it was given.
fn given(value: OsString, written: Written) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    if value == "-" {
        // One byte too many is enough to be refused.
        let most = VALUE_BYTES_MAX as u64 + 1;
        let read =
            input_is_open().and_then(|()| io::stdin().lock().take(most).read_to_end(&mut bytes));
        read.map_err(|error| Failure::system("cannot read standard input", error))?;
    } else {
        bytes = written.bytes(value)?;
    }
    match bytes.len() {
        0..=VALUE_BYTES_MAX => Ok(bytes),
        bytes => Err(KvError::TooLong { bytes }.into()),
    }
}
