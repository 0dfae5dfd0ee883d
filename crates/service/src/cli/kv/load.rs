//! Stores out of files, and into them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use farlock::kv::Index;
use farlock::text::shown;
use farlock::{Kv, KvError};
use indicatif::{ProgressBar, ProgressStyle};

use super::lines::{self, End, Line, Sum};
use super::unnamed::Unnamed;
use super::whole::Whole;
use crate::cli::inherited::input_is_open;
use crate::cli::report::{Exit, Failure, say, written};

/// The bar is told of so many lines at a time.
const LINES_A_TICK: u64 = 1000;

/// Pairs that are to be stored, and how many bytes they are, where that is known.
pub(super) struct Pairs {
    first: Vec<u8>,
    rest: BufReader<Box<dyn Read>>,
    bytes: Option<u64>,
    /// Of the store that was dumped, where its first line says so.
    pub(super) index: Option<Index>,
}

impl Pairs {
    /// Those of a file, or of standard input.
    pub(super) fn open(file: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = file else {
            input_is_open().map_err(unread)?;
            return Self::beginning(Box::new(io::stdin().lock()), None, unread);
        };
        let failed = |error| Failure::system(format_args!("cannot read {path:?}"), error);
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_file() && metadata.len() == 0 {
            return Err(empty(path));
        }
        let bytes = metadata.is_file().then_some(metadata.len());
        // A directory can be opened, and not be read.
        Self::beginning(Box::new(file), bytes, failed)
    }

    /// Looks what the first line says.
    fn beginning(
        input: Box<dyn Read>,
        bytes: Option<u64>,
        failed: impl FnOnce(io::Error) -> Failure,
    ) -> Result<Self, Failure> {
        let (mut first, mut rest) = (Vec::new(), BufReader::with_capacity(1 << 16, input));
        rest.read_until(b'\n', &mut first).map_err(failed)?;
        let line = without_end(&first);
        let index = match lines::index_of(line) {
            Some(index) => index.map(Some),
            None if first.is_empty() => Ok(None),
            // It is stored later: by then there is a store, which what is no dump must not make.
            None => Line::parse(line).map(|_| None),
        };
        let index = index.map_err(|why| bad_line(why, "nothing is stored").at("line 1"))?;
        Ok(Self { first, rest, bytes, index })
    }

    /// The next line, with its end; none behind the last.
    fn next_line(&mut self, line: &mut Vec<u8>) -> Result<(), Failure> {
        line.clear();
        line.append(&mut self.first);
        if line.is_empty() {
            self.rest.read_until(b'\n', line).map_err(unread)?;
        }
        Ok(())
    }

    /// Whether another whole line came along with the last one.
    fn has_more(&self) -> bool {
        self.rest.buffer().contains(&b'\n')
    }
}

fn unread(error: io::Error) -> Failure {
    Failure::system("cannot read the pairs", error)
}

fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// Of what is wrong behind the first line.
const STORED: &str = "pairs before it are stored";

/// The same behind another hint.
const STORED_TOO: &str = "; pairs before it are stored, and some of those behind it may be";

/// What to do where a line has no token and its key has one.
const FENCED: &str = "write it as a dump does: KEY<tab>VALUE<tab>token=TOKEN";

fn bad_line(why: &str, hint: &str) -> Failure {
    Failure::new(Exit::USAGE, "bad-line", why.to_owned(), hint.to_owned())
}

/// Says that a store has another index than the one that was dumped.
pub(super) fn differs(store: &Kv, dumped: Index) {
    let (name, index) = (shown(store.name()), store.index());
    say(format_args!("farlock: the store '{name}' is {index}, and that of the dump was {dumped}"));
}

/// Stores pairs.
pub(super) fn load(store: &Kv, pairs: Pairs) -> Result<(), Failure> {
    let bar = bar(pairs.bytes);
    let loaded = store_lines(store, pairs, &bar);
    bar.finish_and_clear();
    let pairs = loaded?;
    // Of those with the same key the last one is there.
    let were = if pairs == 1 { "pair was" } else { "pairs were" };
    say(format_args!("farlock: {pairs} {were} stored in '{}'", shown(store.name())));
    Ok(())
}

/// Shows how far it is where a person looks, and nothing else.
fn bar(bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match bytes {
        Some(bytes) => {
            (ProgressBar::new(bytes), "{bar:40} {percent}% {bytes_per_sec} {msg} pairs, {eta} left")
        }
        None => (ProgressBar::new_spinner(), "{spinner} {msg} pairs"),
    };
    let style = ProgressStyle::with_template(template).expect("the template is sound");
    bar.with_style(style)
}

/// Stores the pairs, and returns how many there were.
fn store_lines(store: &Kv, mut input: Pairs, bar: &ProgressBar) -> Result<u64, Failure> {
    let (mut line, mut number) = (Vec::new(), 0_u64);
    let mut batch = Batch { store, waiting: Vec::new(), pairs: 0 };
    // How many there were before the dump that has begun and not ended, and what its lines come to;
    // and whether one has ended before this line.
    let (mut before, mut sum, mut has_ended) = (None, Sum::default(), false);
    loop {
        input.next_line(&mut line)?;
        // Half of a value is none.
        if line.is_empty() || before.is_some() && !line.ends_with(b"\n") {
            let pairs = batch.store_waiting()?;
            return if before.is_none() { Ok(pairs) } else { Err(cut_off(pairs)) };
        }
        number += 1;
        let at = |failure: Failure| failure.at(format_args!("line {number}"));
        let part = part_of(without_end(&line));
        if !matches!(part, Ok(Part::Pair(_))) {
            batch.store_waiting()?;
        }
        match part.map_err(|why| at(bad_line(why, STORED)))? {
            // Where several dumps are in one file the first one has decided of the index.
            Part::Begin { .. } if before.is_some() => return Err(at(cut_off(batch.pairs))),
            Part::Begin { is_counted } => {
                (before, sum) = (is_counted.then_some(batch.pairs), Sum::default().with(&line));
                has_ended = false;
            }
            Part::End(end) => match before.take() {
                Some(before) if batch.pairs - before == end.pairs => {
                    if end.sum.is_some_and(|said| said != sum) {
                        return Err(at(damaged()));
                    }
                    has_ended = true;
                }
                _ => return Err(at(bad_line("another number of pairs is before it", STORED))),
            },
            Part::Pair(_) if has_ended => {
                return Err(at(bad_line("a pair is behind the end of a dump", STORED)));
            }
            Part::Pair(pair) => {
                sum = sum.with(&line);
                batch.add(number, pair)?;
            }
        }
        if !input.has_more() {
            batch.store_waiting()?;
        }
        bar.inc(line.len() as u64);
        if number % LINES_A_TICK == 1 {
            bar.set_message(batch.pairs.to_string());
        }
    }
}

/// Pairs that came together, and are stored together: by a server that takes a fraction of the
/// time.
struct Batch<'k> {
    store: &'k Kv,
    /// Pairs without more, and the lines where they stand.
    waiting: Vec<(u64, Line)>,
    /// How many are stored.
    pairs: u64,
}

impl Batch<'_> {
    /// One more is to be stored, behind all before it.
    fn add(&mut self, number: u64, pair: Line) -> Result<(), Failure> {
        if pair.token.is_none() && pair.time_left.is_none() {
            self.waiting.push((number, pair));
            return Ok(());
        }
        self.store_waiting()?;
        store_pair(self.store, pair).map_err(|error| refused(number, error))?;
        self.pairs += 1;
        Ok(())
    }

    /// Stores those that wait for it; how many are stored by then.
    fn store_waiting(&mut self) -> Result<u64, Failure> {
        let pairs = self.waiting.iter().map(|(_, pair)| {
            let value = pair.value.as_deref().unwrap_or_default();
            (&pair.key, value)
        });
        let stored = self.store.put_many(pairs);
        for ((number, _), stored) in self.waiting.drain(..).zip(stored) {
            stored.map_err(|error| refused(number, error))?;
            self.pairs += 1;
        }
        Ok(self.pairs)
    }
}

/// The pair of this line is not stored.
fn refused(number: u64, error: KvError) -> Failure {
    let failure = match error {
        KvError::Fenced { .. } => Failure::from(error).hinting(FENCED),
        error => error.into(),
    };
    failure.at(format_args!("line {number}")).hinting_too(STORED_TOO)
}

/// What a line is.
enum Part {
    /// A dump begins, and is to have an end, or need not.
    Begin {
        is_counted: bool,
    },
    /// It ends, and says that it has so many pairs.
    End(End),
    Pair(Line),
}

fn part_of(line: &[u8]) -> Result<Part, &'static str> {
    if let Some(index) = lines::index_of(line) {
        return index.map(|_| Part::Begin { is_counted: lines::is_counted(line) });
    }
    match lines::end_of(line) {
        Some(pairs) => pairs.map(Part::End),
        None => Line::parse(line).map(Part::Pair),
    }
}

/// The last line of a dump is missing.
fn cut_off(pairs: u64) -> Failure {
    let what =
        format!("the dump has no end: {pairs} of its pairs are stored, and others may be lost");
    let hint = "it was cut off: dump the store again, or see how the file came here";
    Failure::new(Exit::USAGE, "cut-off", what, hint.to_owned())
}

/// A file that is named and has nothing in it was to be a dump, which has a first and a last line.
fn empty(path: &Path) -> Failure {
    let what = format!("{path:?} is empty: nothing is stored");
    let hint = "dump the store again, or see how the file came here; what is piped in may be empty";
    Failure::new(Exit::USAGE, "cut-off", what, hint.to_owned())
}

/// The lines of a dump do not come to what its last one says.
fn damaged() -> Failure {
    let what = "the dump is damaged: what was stored of it may be wrong";
    let hint = "load another dump, or dump the store again: a byte of it is another one than was \
                written";
    Failure::new(Exit::USAGE, "damaged-dump", what.to_owned(), hint.to_owned())
}

/// Stores one that has a token or a time.
fn store_pair(store: &Kv, pair: Line) -> Result<(), KvError> {
    match (pair.value, pair.token) {
        (Some(value), Some(token)) => match pair.time_left {
            Some(time) => store.fenced(token).put_for(pair.key, value, time)?,
            None => store.put_fenced(pair.key, value, token)?,
        },
        (None, Some(token)) => drop(store.remove_fenced(pair.key, token)?),
        (value, None) => {
            let (value, time) = (value.unwrap_or_default(), pair.time_left.unwrap_or_default());
            store.put_for(pair.key, value, time)?;
        }
    }
    Ok(())
}

/// Writes every pair of a store into a file, or to standard output.
pub(super) fn dump(store: &Kv, file: Option<&Path>) -> Result<(), Failure> {
    match file {
        None => {
            let mut output = BufWriter::with_capacity(1 << 16, io::stdout().lock());
            write_pairs(store, &mut output, written)?.end()
        }
        Some(path) => {
            let failed =
                |error: io::Error| Failure::system(format_args!("cannot write {path:?}"), error);
            let old = std::fs::metadata(path).ok();
            if old.as_ref().is_some_and(|old| !old.is_file() && !old.is_dir()) {
                // A device or a pipe is written to as it is.
                let file = File::options().write(true).open(path).map_err(failed)?;
                let mut output = BufWriter::with_capacity(1 << 16, file);
                let check = |outcome: io::Result<()>| outcome.map_err(failed);
                return write_pairs(store, &mut output, check)?.end();
            }
            let mut new = Unnamed::at(path).map_err(failed)?;
            if let Some(old) = &old {
                new.file.set_permissions(old.permissions()).map_err(failed)?;
            }
            let mut output = BufWriter::with_capacity(1 << 16, &mut new.file);
            let whole = write_pairs(store, &mut output, |outcome| outcome.map_err(failed))?;
            drop(output);
            new.name().map_err(failed)?;
            whole.end()
        }
    }
}

/// Writes the pairs that are whole; what is to be said of the others is in what this returns.
fn write_pairs<'k>(
    store: &'k Kv,
    output: &mut impl Write,
    check: impl Fn(io::Result<()>) -> Result<(), Failure>,
) -> Result<Whole<'k>, Failure> {
    let mut line = lines::of_index(store.index());
    check(output.write_all(&line))?;
    let (mut whole, mut pairs) = (Whole::of(store.scan()), 0);
    let mut sum = Sum::default().with(&line);
    while let Some(pair) = whole.next()? {
        // What ends with a process is no pair of another time.
        if pair.is_ephemeral || pair.value.is_none() && pair.token.is_none() {
            continue;
        }
        line.clear();
        let (time_left, token) = (pair.time_left, pair.token);
        Line { key: pair.key, value: pair.value, time_left, token }.write(&mut line);
        check(output.write_all(&line))?;
        (pairs, sum) = (pairs + 1, sum.with(&line));
    }
    check(output.write_all(&End { pairs, sum: Some(sum) }.line()))?;
    check(output.flush())?;
    Ok(whole)
}
