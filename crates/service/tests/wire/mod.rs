//! Frames as any program could send them: this shares no code with what is tested.

pub(crate) mod rows;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

/// Longer than anything here is waited for.
const LIMIT: Duration = Duration::from_secs(3);

pub(crate) const MAGIC: &[u8; 8] = b"farlock\x01";
pub(crate) const VERSION: [u8; 2] = [11, 0];

/// Kinds of what clients send.
pub(crate) const HELLO: u8 = 1;
pub(crate) const ATTACH: u8 = 2;
pub(crate) const DETACH: u8 = 3;
pub(crate) const VERBS: u8 = 4;
pub(crate) const PUBLISH: u8 = 5;
pub(crate) const WAIT: u8 = 6;
pub(crate) const END_WAIT: u8 = 7;
pub(crate) const TOOK: u8 = 8;
pub(crate) const ASK: u8 = 9;
pub(crate) const CALL: u8 = 10;
pub(crate) const TETHER: u8 = 11;
pub(crate) const RESUME: u8 = 12;
pub(crate) const LANE_GOES_ON: u8 = 13;
pub(crate) const LANES_END: u8 = 14;

/// Kinds of what a server sends.
pub(crate) const WELCOME: u8 = 1;
pub(crate) const DECLINED: u8 = 2;
pub(crate) const ATTACHED: u8 = 3;
pub(crate) const DONE: u8 = 4;
pub(crate) const ANSWER: u8 = 8;
pub(crate) const DEAD: u8 = 10;

/// The length of the longest frame.
pub(crate) const FRAME_MAX: u32 = 32 * (512 * 8 + 32) + 64;

/// The fields of a frame, one behind the other.
pub(crate) fn body(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
    [&[kind][..], &fields.concat()].concat()
}

/// A body behind its length.
pub(crate) fn framed(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes(), body].concat()
}

pub(crate) fn text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u16).to_le_bytes(), text].concat()
}

/// The boot of this kernel and the namespace of this process, as a client of it says them, and no
/// port: it comes by a tunnel.
pub(crate) fn home() -> Vec<u8> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let boot = u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap();
    let namespace = |path: &str| std::fs::metadata(path).map_or(0, |file| u128::from(file.ino()));
    let home = boot ^ namespace("/proc/self/ns/pid") ^ namespace("/proc/self/ns/time") << 64;
    [&home.to_le_bytes()[..], &[0; 2]].concat()
}

pub(crate) fn hello(region: &str) -> Vec<u8> {
    body(HELLO, &[MAGIC, &VERSION, &text(region.as_bytes()), &home()])
}

pub(crate) fn attach(lane: u32) -> Vec<u8> {
    let process = [&[7; 4][..], &[0; 8], &[5; 8], &text(b"a host")].concat();
    body(ATTACH, &[&lane.to_le_bytes(), &process, &text(b"a label")])
}

/// A single verb of lane 0: its code and its fields.
pub(crate) fn verb(code: u8, fields: &[&[u8]]) -> Vec<u8> {
    body(VERBS, &[&[0; 4], &[9, 0, 0, 0], &[0], &[code], &fields.concat()])
}

/// What a server does then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// It closes the connection.
    HangsUp,
    /// It says something like that, and closes the connection.
    Declines(&'static str),
    /// It answers by a frame of this kind.
    Answers(u8),
    /// It ends the verb by this fault, by its number on the wire.
    Refuses(u8),
    /// It says nothing, and goes on to serve.
    SaysNothing,
}

/// A connection.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    /// The server has neither answered nor hung up for too long.
    is_silent: bool,
}

impl Wire {
    pub(crate) fn to(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self { stream, is_silent: false }
    }

    /// A connection that has said hello.
    pub(crate) fn greeted(address: &str) -> Self {
        let mut wire = Self::to(address);
        wire.say(&framed(&hello("default")));
        assert_eq!(wire.hear().unwrap()[0], WELCOME);
        wire
    }

    /// A connection with a lane, of number 0.
    pub(crate) fn seated(address: &str) -> Self {
        let mut wire = Self::greeted(address);
        wire.say(&framed(&attach(0)));
        assert_eq!(wire.hear_of(ATTACHED).unwrap()[0], ATTACHED);
        wire
    }

    /// Sends bytes; a server may have hung up meanwhile.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// The next frame, without its length; `None` once the server has hung up.
    pub(crate) fn hear(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        self.fill(&mut length)?;
        let mut body = vec![0; u32::from_le_bytes(length) as usize];
        self.fill(&mut body)?;
        Some(body)
    }

    /// The next frame of this kind, or that declines.
    pub(crate) fn hear_of(&mut self, kind: u8) -> Option<Vec<u8>> {
        loop {
            let body = self.hear()?;
            if body[0] == kind || body[0] == DECLINED {
                return Some(body);
            }
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Option<()> {
        match self.stream.read_exact(bytes) {
            Ok(()) => Some(()),
            Err(error) => match error.kind() {
                ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionReset
                | ErrorKind::BrokenPipe
                | ErrorKind::ConnectionAborted => None,
                _ => {
                    self.is_silent = true;
                    None
                }
            },
        }
    }

    /// Whether the server does this; if not, what it does.
    pub(crate) fn sees(&mut self, then: Then) -> Result<(), String> {
        let heard = match then {
            Then::HangsUp => self.hear_of(0),
            Then::Declines(_) => self.hear_of(DECLINED),
            Then::Answers(kind) => self.hear_of(kind),
            Then::Refuses(_) => self.hear_of(DONE),
            Then::SaysNothing => {
                self.say(&framed(&body(CALL, &[&[5; 4], &[1]])));
                self.hear_of(ANSWER)
            }
        };
        let is_right = match (then, &heard) {
            (Then::HangsUp, None) => !self.is_silent,
            (Then::Declines(why), Some(body)) => {
                body[0] == DECLINED && String::from_utf8_lossy(&body[7..]).contains(why)
            }
            (Then::Answers(kind), Some(body)) => body[0] == kind,
            (Then::Refuses(fault), Some(body)) => body[0] == DONE && body[10..12] == [fault, 0],
            (Then::SaysNothing, Some(body)) => body[0] == ANSWER && body[1..5] == [5; 4],
            _ => false,
        };
        let found = || format!("{then:?} is not {heard:02x?}, silent: {}", self.is_silent);
        if is_right { Ok(()) } else { Err(found()) }
    }
}
