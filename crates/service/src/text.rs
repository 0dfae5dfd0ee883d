//! Names and durations as people read them, in the messages of this crate and beside them.

use std::time::Duration;

/// A duration for people: three digits and a unit.
pub fn in_words(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 60.0 => format!("{s:.1} s"),
        s if s < 3600.0 => format!("{:.0} min {:.0} s", (s / 60.0).floor(), s % 60.0),
        s => format!("{:.0} h {:.0} min", (s / 3600.0).floor(), s % 3600.0 / 60.0),
    }
}

/// The longest that a name is shown, in characters.
const SHOWN_MAX: usize = 64;

/// A name for people: characters that a terminal would obey are escaped, and a long one is cut.
pub fn shown(name: &str) -> String {
    shown_within(name, SHOWN_MAX)
}

/// The same, but whole: for programs, and to be copied.
pub fn shown_whole(name: &str) -> String {
    shown_within(name, usize::MAX)
}

/// The same, at another length.
pub fn shown_within(name: &str, longest: usize) -> String {
    let mut text = String::new();
    let escaped = |c: char| match c {
        // What a shell quotes needs no quotes here.
        '\'' | '"' => c.to_string(),
        _ => c.escape_debug().to_string(),
    };
    let mut length = 0;
    for piece in name.chars().map(escaped) {
        length += piece.chars().count();
        text.push_str(&piece);
    }
    if length <= longest {
        return text;
    }
    text.chars().take(longest.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_so_that_a_terminal_obeys_nobody() {
        let rows = [
            ("orders", "orders"),
            ("it's \"quoted\"", "it's \"quoted\""),
            ("a\u{1b}[31mb\n", "a\\u{1b}[31mb\\n"),
            ("left\u{202e}right", "left\\u{202e}right"),
            ("größe 大", "größe 大"),
        ];
        for (name, text) in rows {
            assert_eq!(shown(name), text);
        }
        let long = shown(&"n".repeat(255));
        assert_eq!((long.chars().count(), long.chars().last()), (SHOWN_MAX, Some('…')));
    }

    #[test]
    fn durations_read_like_speech() {
        let rows = [(0, "0 µs"), (999, "999 µs"), (30_000, "30 ms"), (3_200_000, "3.2 s")];
        for (micros, text) in rows {
            assert_eq!(in_words(Duration::from_micros(micros)), text);
        }
        assert_eq!(in_words(Duration::from_secs(125)), "2 min 5 s");
        assert_eq!(in_words(Duration::from_secs(7_320)), "2 h 2 min");
    }
}
