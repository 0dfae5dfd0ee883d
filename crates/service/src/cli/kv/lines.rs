//! Pairs as lines of text: key, tab, value, and what lies beside it, each behind a tab more.
//!
//! ```text
//! KEY<tab>VALUE[<tab>seconds=SECONDS][<tab>token=TOKEN]      a value, which may end
//! KEY<tab><tab>gone[<tab>token=TOKEN]                        none, but for its token
//! index=INDEX                                                which index the store has
//! counted index=INDEX                                        begins a dump: the same, and
//! pairs=PAIRS sum=SUM                                        ends it: how many lines are between,
//!                                                            and what all before it come to
//! ```
//!
//! Tabs, ends of lines and backslashes in keys and values are written as in C, and whatever is no
//! text or what a terminal would obey as `\xHH`.

use std::time::Duration;

use farlock::Token;
use farlock::kv::Index;
use twox_hash::XxHash3_64;

/// A pair, and what lies beside it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Line {
    pub(super) key: Vec<u8>,
    /// `None`: it was removed, and its token stays.
    pub(super) value: Option<Vec<u8>>,
    pub(super) time_left: Option<Duration>,
    pub(super) token: Option<Token>,
}

impl Line {
    /// Writes it, with its end.
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        escape(&self.key, into);
        into.push(b'\t');
        match &self.value {
            Some(value) => escape(value, into),
            None => into.extend_from_slice(b"\tgone"),
        }
        if let Some(left) = self.time_left {
            into.extend_from_slice(format!("\tseconds={}", left.as_secs_f64()).as_bytes());
        }
        if let Some(token) = self.token {
            into.extend_from_slice(format!("\ttoken={token}").as_bytes());
        }
        into.push(b'\n');
    }

    /// Writes it as an object of JSON, with the end of the line. Bytes that are no text are written
    /// in hexadecimal digits, under a name that says so.
    pub(super) fn write_json(&self, into: &mut Vec<u8>) {
        let mut object = serde_json::Map::new();
        let mut put = |name: &str, bytes: &[u8]| match std::str::from_utf8(bytes) {
            Ok(text) => object.insert(name.to_owned(), text.into()),
            Err(_) => object.insert(format!("{name}_hex"), digits(bytes).into()),
        };
        put("key", &self.key);
        self.value.iter().for_each(|value| drop(put("value", value)));
        if let Some(left) = self.time_left {
            object.insert("seconds".to_owned(), left.as_secs_f64().into());
        }
        if let Some(token) = self.token {
            object.insert("token".to_owned(), token.to_string().into());
        }
        into.extend_from_slice(serde_json::Value::Object(object).to_string().as_bytes());
        into.push(b'\n');
    }

    /// What a line without its end says; else what is wrong with it.
    pub(super) fn parse(line: &[u8]) -> Result<Self, &'static str> {
        let mut parts = line.split(|&byte| byte == b'\t');
        let key = unescape(parts.next().unwrap_or_default())?;
        let value = parts.next().ok_or("it has no tab between a key and a value")?;
        let mut found = Self { key, value: Some(unescape(value)?), ..Self::default() };
        for part in parts {
            let part = std::str::from_utf8(part).map_err(|_| UNKNOWN)?;
            let number = part.split_once('=').map_or("", |(_, number)| number);
            match part {
                "gone" if value.is_empty() => found.value = None,
                _ if part.starts_with("seconds=") => {
                    let seconds = number.parse().map_err(|_| "its seconds are no number")?;
                    let left = Duration::try_from_secs_f64(seconds);
                    said_once(&found.time_left)?;
                    found.time_left = Some(left.map_err(|_| "its seconds are no duration")?);
                }
                _ if part.starts_with("token=") => {
                    let token: u64 = number.parse().map_err(|_| "its token is no number")?;
                    said_once(&found.token)?;
                    found.token = Some(Token::from(token));
                }
                _ => return Err(UNKNOWN),
            }
        }
        match (&found.value, found.token) {
            (None, None) => Err("it has neither a value nor a token"),
            _ => Ok(found),
        }
    }
}

fn said_once<T>(found: &Option<T>) -> Result<(), &'static str> {
    if found.is_some() { Err("it says something twice") } else { Ok(()) }
}

/// What the line of an index begins with. A pair has a tab, and this line has none.
const INDEX: &[u8] = b"index=";

/// What it begins with where a dump has its end, by which it is seen to be whole.
const COUNTED: &[u8] = b"counted ";

/// The line that begins a dump, and says which index its store has.
pub(super) fn of_index(index: Index) -> Vec<u8> {
    [COUNTED, INDEX, index.name().as_bytes(), b"\n"].concat()
}

/// Whether a dump begins with this line that is to have an end.
pub(super) fn is_counted(line: &[u8]) -> bool {
    line.starts_with(COUNTED)
}

/// The index that a line without its end says, or what is wrong with it; `None`: it is no such
/// line.
pub(super) fn index_of(line: &[u8]) -> Option<Result<Index, &'static str>> {
    let line = line.strip_prefix(COUNTED).unwrap_or(line);
    let name = line.strip_prefix(INDEX).filter(|name| !name.contains(&b'\t'))?;
    let is_meant = |index: &&Index| index.name().as_bytes() == name;
    Some(Index::ALL.iter().find(is_meant).copied().ok_or("there is no such index"))
}

/// What the line begins with that ends a dump.
const PAIRS: &str = "pairs=";

/// What lines come to, one after the other: another number if one of them is another.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum(u64);

impl Sum {
    /// With one more, with its end.
    pub(super) fn with(self, line: &[u8]) -> Self {
        Self(XxHash3_64::oneshot_with_seed(self.0, line))
    }
}

/// The end of a dump.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) pairs: u64,
    /// Of the lines before, the first one too. Dumps of a version before have none.
    pub(super) sum: Option<Sum>,
}

impl End {
    /// The line that says that a dump has its end here.
    pub(super) fn line(self) -> Vec<u8> {
        let sum = self.sum.map_or_else(String::new, |Sum(sum)| format!(" sum={sum:016x}"));
        format!("{PAIRS}{}{sum}\n", self.pairs).into_bytes()
    }
}

/// What a line without its end says of the end of a dump, or what is wrong with it; `None`: it is
/// no such line.
pub(super) fn end_of(line: &[u8]) -> Option<Result<End, &'static str>> {
    let said = line.strip_prefix(PAIRS.as_bytes()).filter(|said| !said.contains(&b'\t'))?;
    let said = std::str::from_utf8(said).unwrap_or_default();
    let (pairs, sum) = said.split_once(" sum=").map_or((said, None), |(p, sum)| (p, Some(sum)));
    // As it is written, with no letter in the other case: what differs is damage.
    let is_written =
        |text: &&str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let sum_of = |text: &str| u64::from_str_radix(text, 16).ok().map(Sum);
    let sum = sum.map(|text| Some(text).filter(is_written).and_then(sum_of).ok_or(())).transpose();
    let end = pairs.parse().ok().zip(sum.ok()).map(|(pairs, sum)| End { pairs, sum });
    Some(end.ok_or("it says no number of pairs, or no sum"))
}

const UNKNOWN: &str = "what follows its value is neither seconds=, token= nor gone";

fn escape(bytes: &[u8], into: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => into.extend_from_slice(b"\\t"),
                '\n' => into.extend_from_slice(b"\\n"),
                '\r' => into.extend_from_slice(b"\\r"),
                '\\' => into.extend_from_slice(b"\\\\"),
                c if c.is_control() => {
                    c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| hex(byte, into));
                }
                c => into.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        chunk.invalid().iter().for_each(|&byte| hex(byte, into));
    }
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hex(byte: u8, into: &mut Vec<u8>) {
    into.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
}

/// The bytes that a text of a line means; else what is wrong with it.
pub(super) fn unescape(text: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'\\' {
            bytes.push(first);
            continue;
        }
        let (&what, behind) = rest.split_first().ok_or("it ends with a backslash")?;
        rest = behind;
        bytes.push(match what {
            b't' => b'\t',
            b'n' => b'\n',
            b'r' => b'\r',
            b'\\' => b'\\',
            b'x' => {
                let (digits, behind) = rest.split_at_checked(2).ok_or(NO_HEX)?;
                rest = behind;
                let digits = std::str::from_utf8(digits).map_err(|_| NO_HEX)?;
                u8::from_str_radix(digits, 16).map_err(|_| NO_HEX)?
            }
            _ => return Err("what follows a backslash is neither t, n, r, x nor another one"),
        });
    }
    Ok(bytes)
}

const NO_HEX: &str = "two digits, of 0-9 and a-f, do not follow \\x";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_any_bytes_come_back() {
        let every: Vec<u8> = (0..=255).collect();
        let texts = [&b"plain"[..], b"", b"a\tb\nc\r\\x41", "größe\u{9b}".as_bytes(), &every];
        for value in texts {
            for token in [None, Some(Token::from(7))] {
                for time_left in [None, Some(Duration::from_millis(1500))] {
                    let key = [b"k", value].concat();
                    let line = Line { key, value: Some(value.to_vec()), time_left, token };
                    let mut text = Vec::new();
                    line.write(&mut text);
                    let text = text.strip_suffix(b"\n").expect("a line ends");
                    assert!(!text.contains(&b'\n') && std::str::from_utf8(text).is_ok());
                    assert_eq!(Line::parse(text), Ok(line));
                }
            }
        }
        let token = Some(Token::from(9));
        let gone = Line { key: b"k".to_vec(), value: None, time_left: None, token };
        let mut text = Vec::new();
        gone.write(&mut text);
        assert_eq!(text, b"k\t\tgone\ttoken=9\n");
        assert_eq!(Line::parse(b"k\t\tgone\ttoken=9"), Ok(gone));
    }

    #[test]
    fn a_pair_is_an_object_of_json() {
        let json = |line: Line| {
            let mut text = Vec::new();
            line.write_json(&mut text);
            String::from_utf8(text).expect("JSON is text")
        };
        let line = Line { key: b"a\"\n".to_vec(), value: Some(vec![]), ..Line::default() };
        assert_eq!(json(line.clone()), "{\"key\":\"a\\\"\\n\",\"value\":\"\"}\n");
        let (time_left, token) = (Some(Duration::from_millis(1500)), Some(Token::from(7)));
        let line = Line { value: Some(vec![0xff, 1]), time_left, token, ..line };
        let expected = r#"{"key":"a\"\n","seconds":1.5,"token":"7","value_hex":"ff01"}"#;
        assert_eq!(json(line), format!("{expected}\n"));
    }

    #[test]
    fn other_lines_are_refused_with_a_reason() {
        let bad = [
            &b"key"[..],
            b"k\tv\\",
            b"k\tv\\q",
            b"k\t\\x4",
            b"k\t\\xzz",
            b"k\tv\tmore",
            b"k\tv\tgone",
            b"k\t\tgone",
            b"k\tv\tseconds=x",
            b"k\tv\tseconds=-1",
            b"k\tv\ttoken=-1",
            b"k\tv\t\xff",
        ];
        for line in bad {
            assert!(Line::parse(line).is_err(), "{:?}", String::from_utf8_lossy(line));
        }
    }
}
