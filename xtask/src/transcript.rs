//! Transcripts in Markdown: what a page says you type, and what it says you then see.
//!
//! A fenced block marked `console` holds commands, each a line that begins with `$ ` (continued
//! after a trailing backslash), followed by the lines it prints. In those, `[..]` stands for any
//! text within a line and a line of `...` for any lines. A block that cannot run in a test says
//! so: `<!-- not run: reason -->` stands above it. Nothing is run here.

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

/// What excludes the block below it.
const NOT_RUN: &str = "<!-- not run:";

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
    /// A block that is only read, with the reason.
    NotRun(String),
}

/// The transcripts of a Markdown page.
pub(crate) fn parse(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut excluded: Option<String> = None;
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
                    blocks.push(match excluded.take() {
                        Some(reason) => Block::NotRun(reason),
                        None => Block::Run(entries(line, &text)),
                    });
                }
            }
            Event::Html(html) => {
                if let Some(rest) = html.trim().strip_prefix(NOT_RUN) {
                    excluded = Some(rest.trim_end_matches("-->").trim().to_owned());
                }
            }
            // Only the very next block is excluded: a paragraph between ends the reach.
            Event::Start(Tag::Paragraph) => excluded = None,
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
