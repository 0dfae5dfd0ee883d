//! Lines and bodies of servers that speak text, and Redis's protocol among them, RESP 2.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, bail, ensure};

/// A connection to a server of this host.
pub(crate) struct Line {
    stream: BufReader<TcpStream>,
    /// What is asked next.
    pub(crate) request: Vec<u8>,
    answer: Vec<u8>,
}

/// What Redis answers, as far as it is asked here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// A text in one line, as `OK`.
    Said(String),
    /// A number.
    Number(i64),
    /// Some bytes.
    Bytes(Vec<u8>),
    /// Nothing is there.
    Nil,
}

impl Line {
    pub(crate) fn connect(port: u16) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("the server")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), request: Vec::new(), answer: Vec::new() })
    }

    /// Sends what is asked.
    pub(crate) fn send(&mut self) -> anyhow::Result<()> {
        self.stream.get_mut().write_all(&self.request)?;
        self.request.clear();
        Ok(())
    }

    /// Reads the first line of an answer, without its end.
    pub(crate) fn line(&mut self) -> anyhow::Result<&[u8]> {
        self.answer.clear();
        self.stream.read_until(b'\n', &mut self.answer)?;
        self.answer.strip_suffix(b"\r\n").context("the server went away")
    }

    /// Reads so many bytes and the end of a line.
    pub(crate) fn body(&mut self, bytes: usize) -> anyhow::Result<&[u8]> {
        self.answer.resize(bytes + 2, 0);
        self.stream.read_exact(&mut self.answer)?;
        self.answer.strip_suffix(b"\r\n").context("the server's answer makes no sense")
    }

    /// Adds a command of Redis to the request.
    pub(crate) fn words(&mut self, words: &[&[u8]]) {
        // Bytes are written into memory.
        let _ = write!(self.request, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.request, "${}\r\n", word.len());
            self.request.extend_from_slice(word);
            self.request.extend_from_slice(b"\r\n");
        }
    }

    /// Reads an answer of Redis.
    pub(crate) fn answer(&mut self) -> anyhow::Result<Answer> {
        let line = self.line()?;
        let (kind, rest) = line.split_first().context("Redis says nothing")?;
        match kind {
            b'+' => Ok(Answer::Said(String::from_utf8_lossy(rest).into_owned())),
            b':' => Ok(Answer::Number(number(rest)?)),
            b'$' => match usize::try_from(number(rest)?) {
                Ok(length) => Ok(Answer::Bytes(self.body(length)?.to_vec())),
                Err(_) => Ok(Answer::Nil),
            },
            b'-' => bail!("Redis says: {}", String::from_utf8_lossy(rest)),
            _ => bail!("Redis answers with what nobody asked for"),
        }
    }

    /// Asks Redis for one thing.
    pub(crate) fn asked(&mut self, words: &[&[u8]]) -> anyhow::Result<Answer> {
        self.words(words);
        self.send()?;
        self.answer()
    }

    /// Whether another answer has come already.
    pub(crate) fn has_more(&self) -> bool {
        !self.stream.buffer().is_empty()
    }

    /// Gives Redis a script, and returns what it is called by.
    pub(crate) fn script(&mut self, text: &str) -> anyhow::Result<Vec<u8>> {
        match self.asked(&[b"SCRIPT", b"LOAD", text.as_bytes()])? {
            Answer::Bytes(name) => Ok(name),
            other => bail!("Redis does not take a script: {other:?}"),
        }
    }
}

pub(crate) fn number(text: &[u8]) -> anyhow::Result<i64> {
    ensure!(!text.is_empty(), "a number is missing");
    Ok(std::str::from_utf8(text)?.parse()?)
}
