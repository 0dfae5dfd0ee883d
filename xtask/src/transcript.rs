//! Transcripts in Markdown: what a page says you type, and what it says you then see.
//!
//! A fenced block marked `console` holds commands, each a line that begins with `$ ` (continued
//! after a trailing backslash), followed by the lines it prints. In those, `[..]` stands for any
//! text within a line and a line of `...` for any lines. A block that cannot run in a test says
//! so: `<!-- not run: reason -->` stands above it. One that starts a server, whose address need not
//! be free, is run as one script at another: `<!-- run at another address: 127.0.0.1:4747 -->`.
//! Nothing is run here.

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

/// What excludes the block below it.
const NOT_RUN: &str = "<!-- not run:";
/// What has the block below it run at another address.
const ELSEWHERE: &str = "<!-- run at another address:";

/// One command and what it shall print.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// The line of the page the command stands in, from 1.
    pub(crate) line: usize,
    /// What is handed to the shell.
    pub(crate) command: String,
    /// The patterns of its output.
    pub(crate) expected: Vec<String>,
}

/// A block: commands that build on each other.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Block {
    /// Its commands, in order.
    Run(Vec<Entry>),
    /// Its commands, in order, of which the first ones start a server at this address.
    Elsewhere(String, Vec<Entry>),
    /// A block that is only read, with the reason.
    NotRun(String),
}

impl Block {
    /// The commands of one that starts a server, as one script by which that is at this address.
    pub(crate) fn script(entries: &[Entry], address: &str, free: &str) -> Entry {
        let moved = |line: &str| line.replace(address, free);
        let mut command =
            "cd \"$HOME\"; trap 'kill $(jobs -p) 2>/dev/null || :; wait' EXIT; set -e".to_owned();
        for entry in entries {
            command.push('\n');
            let at_free = format!("{SERVE} --listen {free} ");
            command += &moved(&entry.command).replace(&format!("{SERVE} "), &at_free);
            if command.ends_with('&') {
                command.truncate(command.len() - 1);
                // As a person would, who sees its line. The file is there before it is looked into.
                command.insert_str(command.rfind('\n').map_or(0, |end| end + 1), ": >said\n");
                command += ">said 2>&1 &\nuntil grep -q 'is served' said\ndo kill -0 $!; \
                            sleep 0.05; done\ncat said";
            }
        }
        let line = entries.first().map_or(0, |entry| entry.line);
        let expected = entries.iter().flat_map(|entry| &entry.expected);
        Entry { line, command, expected: expected.map(|line| moved(line)).collect() }
    }
}

/// The command that starts a server.
const SERVE: &str = "farlock serve";

/// The transcripts of a Markdown page.
pub(crate) fn parse(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut excluded: Option<String> = None;
    let mut elsewhere: Option<String> = None;
    let mut inside: Option<(usize, String)> = None;
    for (event, range) in Parser::new(page).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) if &*info == "console" => {
                let fence = page[..range.start].matches('\n').count() + 1;
                inside = Some((fence + 1, String::new()));
            }
            Event::Text(text) => {
                if let Some((_, block)) = &mut inside {
                    block.push_str(&text);
                }
            }
            Event::End(TagEnd::CodeBlock) => {
                if let Some((line, text)) = inside.take() {
                    blocks.push(match (excluded.take(), elsewhere.take()) {
                        (Some(reason), _) => Block::NotRun(reason),
                        (None, Some(address)) => Block::Elsewhere(address, entries(line, &text)),
                        (None, None) => Block::Run(entries(line, &text)),
                    });
                }
            }
            Event::Html(html) => {
                let said = |mark: &str| {
                    let rest = html.trim().strip_prefix(mark)?;
                    Some(rest.trim_end_matches("-->").trim().to_owned())
                };
                (excluded, elsewhere) = (said(NOT_RUN), said(ELSEWHERE));
            }
            // Only the very next block is meant: a paragraph between ends the reach.
            Event::Start(Tag::Paragraph) => (excluded, elsewhere) = (None, None),
            _ => {}
        }
    }
    blocks
}

fn entries(first_line: usize, text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut continued = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(command) = line.strip_prefix("$ ") {
            let line = first_line + index;
            entries.push(Entry { line, command: command.to_owned(), expected: Vec::new() });
        } else if let Some(entry) = entries.last_mut() {
            if continued {
                entry.command.push('\n');
                entry.command.push_str(line.strip_prefix("> ").unwrap_or(line));
            } else {
                entry.expected.push(line.to_owned());
            }
        }
        let open = entries.last().is_some_and(|e| e.expected.is_empty());
        continued = open && line.ends_with('\\');
    }
    entries
}

/// Whether `actual` is what `expected` describes. Blanks at the end of lines do not count, nor do
/// empty lines at the end.
pub(crate) fn matches(expected: &[String], actual: &[String]) -> bool {
    match_lines(without_tail(expected), without_tail(actual))
}

fn without_tail(lines: &[String]) -> &[String] {
    let end = lines.iter().rposition(|line| !line.trim().is_empty()).map_or(0, |last| last + 1);
    &lines[..end]
}

fn match_lines(expected: &[String], actual: &[String]) -> bool {
    match expected.split_first() {
        None => actual.is_empty(),
        Some((first, rest)) if first.trim() == "..." => {
            (0..=actual.len()).any(|skipped| match_lines(rest, &actual[skipped..]))
        }
        Some((first, rest)) => actual.split_first().is_some_and(|(line, others)| {
            match_line(first.trim_end(), line.trim_end()) && match_lines(rest, others)
        }),
    }
}

fn match_line(pattern: &str, line: &str) -> bool {
    let Some((head, rest)) = pattern.split_once("[..]") else { return pattern == line };
    let Some(line) = line.strip_prefix(head) else { return false };
    let starts = line.char_indices().map(|(at, _)| at).chain([line.len()]);
    starts.into_iter().any(|at| match_line(rest, &line[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    fn fits(expected: &str, actual: &str) -> bool {
        matches(&lines(expected), &lines(actual))
    }

    #[test]
    fn a_console_block_is_commands_and_their_output() {
        let page =
            "# T\n\n```console\n$ echo a \\\n    b\na b\n\n$ true\n```\n\n```sh\n$ no\n```\n";
        let [Block::Run(entries)] = &parse(page)[..] else { panic!("one block") };
        assert_eq!(entries[0].command, "echo a \\\n    b");
        assert_eq!((entries[0].line, entries[0].expected.join("|")), (4, "a b|".to_owned()));
        assert_eq!((entries[1].line, &*entries[1].command), (8, "true"));
    }

    #[test]
    fn a_block_says_why_it_is_not_run() {
        let block = "```console\n$ reboot\n```\n";
        let marked = format!("<!-- not run: it ends the machine -->\n\n{block}");
        assert_eq!(parse(&marked), [Block::NotRun("it ends the machine".to_owned())]);
        let far = format!("<!-- not run: too far -->\n\nText.\n\n{block}");
        assert!(matches!(parse(&far)[..], [Block::Run(_)]));
    }

    #[test]
    fn a_block_that_starts_a_server_is_run_at_another_address() {
        let block = "```console\n$ farlock serve &\nat here:1\n$ farlock ls here:1\n```\n";
        let marked = format!("<!-- run at another address: here:1 -->\n\n{block}");
        let [Block::Elsewhere(address, entries)] = &parse(&marked)[..] else { panic!("one block") };
        let script = Block::script(entries, address, "there:2");
        assert_eq!(script.expected, ["at there:2"]);
        let lines: Vec<&str> = script.command.lines().collect();
        assert_eq!(lines[1..3], [": >said", "farlock serve --listen there:2 >said 2>&1 &"]);
        assert_eq!(lines.last(), Some(&"farlock ls there:2"));
    }

    #[test]
    fn patterns_stand_for_what_changes() {
        assert!(fits("a [..] c", "a b c"));
        assert!(fits("[..] ms, [..] ms", "12 ms, 13 ms  "));
        assert!(fits("a\n...\nd", "a\nb\nc\nd\n\n"));
        assert!(fits("a\n...", "a"));
        assert!(fits("", ""));
    }

    #[test]
    fn other_output_does_not_pass() {
        assert!(!fits("a", "b"));
        assert!(!fits("a", "a\nb"));
        assert!(!fits("a\nb", "a"));
        assert!(!fits("a [..] c", "a b d"));
        assert!(!fits("", "surprise"));
    }
}
