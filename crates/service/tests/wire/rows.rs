//! Everything wrong that comes by a connection, and what becomes of it.

use super::Then::{Answers, Declines, HangsUp, Refuses, SaysNothing};
use super::*;

/// How far a client has come before it sends what is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Far {
    Fresh,
    Greeted,
    Seated,
}

use Far::{Fresh, Greeted, Seated};

/// What the greeting says of the region: where things begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) heap: u64,
    pub(crate) heap_bytes: u64,
    pub(crate) records: u64,
}

impl Region {
    pub(crate) fn of(welcome: &[u8]) -> Self {
        let number = |at: usize| u64::from_le_bytes(welcome[at..at + 8].try_into().unwrap());
        Self { heap: number(21), heap_bytes: number(29), records: number(37) }
    }
}

/// What is wrong with it, how far the client has come, what it sends, and what follows.
pub(crate) type Row = (&'static str, Far, fn(&Region) -> Vec<u8>, Then);

/// Faults by their numbers on the wire.
const OUT_OF_BOUNDS: u8 = 2;
const MISALIGNED: u8 = 3;
const NO_RIGHT: u8 = 4;
const PEER_GONE: u8 = 8;

/// Codes of verbs.
const READ: u8 = 1;
const WRITE: u8 = 2;
const FAA64: u8 = 4;
const FAA128: u8 = 8;
const SEND: u8 = 9;

const LANE: &[u8] = &[0; 4];
const CALL_NUMBER: &[u8] = &[5; 4];

fn read(addr: u64, words: u16) -> Vec<u8> {
    framed(&verb(READ, &[&addr.to_le_bytes(), &words.to_le_bytes()]))
}

fn add(addr: u64) -> Vec<u8> {
    framed(&verb(FAA64, &[&addr.to_le_bytes(), &[1; 8]]))
}

fn write(addr: u64, words: u16) -> Vec<u8> {
    let data = vec![0xee; usize::from(words) * 8];
    framed(&verb(WRITE, &[&addr.to_le_bytes(), &words.to_le_bytes(), &data]))
}

fn send(index: u16, incarnation: u16, slot: u8) -> Vec<u8> {
    let id = u64::from(index) | u64::from(incarnation) << 16;
    let to = id | u64::from(slot) << 32;
    framed(&verb(SEND, &[&to.to_le_bytes(), &[1; 32]]))
}

/// The version that is spoken.
const SPOKEN: u16 = u16::from_le_bytes(VERSION);

fn hello_of(magic: &[u8; 8], version: u16, name: &[u8]) -> Vec<u8> {
    framed(&body(HELLO, &[magic, &version.to_le_bytes(), name, &home()]))
}

fn tether(magic: &[u8; 8], version: u16, secret: u128) -> Vec<u8> {
    framed(&body(TETHER, &[magic, &version.to_le_bytes(), &secret.to_le_bytes()]))
}

fn resumption(secret: u128, name: &[u8]) -> Vec<u8> {
    framed(&body(RESUME, &[MAGIC, &VERSION, &text(name), &home(), &secret.to_le_bytes()]))
}

/// A verb that may be held back: its patience, and what it is.
fn patient(fields: &[u8]) -> Vec<u8> {
    body(VERBS, &[LANE, &[9, 0, 0, 0], &[254], fields])
}

/// An addition of which only a failure is told, and more.
fn unsignalled(addr: u64, more: &[u8]) -> Vec<u8> {
    let add = [&[FAA64][..], &addr.to_le_bytes(), &[1; 8]].concat();
    body(VERBS, &[LANE, &[9, 0, 0, 0], &[255], &add, more])
}

fn call(fields: &[u8]) -> Vec<u8> {
    framed(&body(CALL, &[CALL_NUMBER, fields]))
}

fn wait(key: u8, watch: &[u8]) -> Vec<u8> {
    framed(&body(WAIT, &[LANE, &[key, 0, 0, 0], watch]))
}

/// A wait for mail that never comes.
fn long_wait(key: u8) -> Vec<u8> {
    wait(key, &[2, 0, 0, 0])
}

/// A frame of each kind, sound where the client has a lane.
pub(crate) fn sound(region: &Region) -> Vec<Vec<u8>> {
    let addr = region.heap.to_le_bytes();
    let word = [&[1][..], &addr, &[0; 8], &[0; 8], &[0; 2]].concat();
    vec![
        hello("default"),
        attach(1),
        body(DETACH, &[&[1, 0, 0, 0]]),
        verb(READ, &[&addr, &[2, 0]]),
        verb(SEND, &[&[0; 8], &[1; 32]]),
        verb(3, &[&addr, &[0xff; 8], &[1; 8]]),
        verb(5, &[&addr, &[0xff; 8], &[0xff; 8], &[1; 8], &[1; 8]]),
        verb(6, &[&addr, &[0; 8], &[0; 8]]),
        verb(7, &[&addr, &[0xff; 16], &[0xff; 16], &[1; 16], &[1; 16]]),
        verb(FAA128, &[&addr, &[0; 16], &[0; 16]]),
        body(PUBLISH, &[LANE, &[0, 0], &[1; 8]]),
        body(WAIT, &[LANE, &[1, 0, 0, 0], &word]),
        body(END_WAIT, &[LANE, &[1, 0, 0, 0]]),
        body(TOOK, &[LANE, &[0], &[0; 8]]),
        body(ASK, &[LANE, &[1, 0], &[0; 4]]),
        body(CALL, &[CALL_NUMBER, &[2], &[0; 8]]),
        body(CALL, &[CALL_NUMBER, &[4], LANE]),
        body(CALL, &[CALL_NUMBER, &[7], &addr, &[8, 0, 0, 0, 0, 0, 0, 0]]),
        body(TETHER, &[MAGIC, &VERSION, &[1; 16]]),
    ]
}

pub(crate) const ROWS: &[Row] = &[
    // No frames.
    ("a length of zero", Fresh, |_| vec![0; 4], HangsUp),
    ("the greatest length", Fresh, |_| vec![0xff; 4], HangsUp),
    ("a length too great by one", Fresh, |_| (FRAME_MAX + 1).to_le_bytes().to_vec(), HangsUp),
    ("a request of HTTP", Fresh, |_| b"GET / HTTP/1.1\r\n\r\n".to_vec(), HangsUp),
    ("a banner of SSH", Fresh, |_| b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), HangsUp),
    (
        "a greeting of TLS",
        Fresh,
        |_| b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        Declines("does not speak TLS"),
    ),
    ("kind 0", Fresh, |_| framed(&[0]), HangsUp),
    ("kind 12", Fresh, |_| framed(&[12]), HangsUp),
    ("kind 255", Fresh, |_| framed(&[255]), HangsUp),
    (
        "more than a greeting has",
        Fresh,
        |_| [&60_000_u32.to_le_bytes(), &[1; 2000][..]].concat(),
        HangsUp,
    ),
    // Greetings.
    ("another magic", Fresh, |_| hello_of(b"farlock\x02", SPOKEN, &text(b"default")), HangsUp),
    ("version 0", Fresh, |_| hello_of(MAGIC, 0, &text(b"default")), Declines("speaks version")),
    (
        "version 65535",
        Fresh,
        |_| hello_of(MAGIC, !0, &text(b"default")),
        Declines("speaks version"),
    ),
    (
        "another region",
        Fresh,
        |_| hello_of(MAGIC, SPOKEN, &text(b"other")),
        Declines("another region"),
    ),
    ("no region", Fresh, |_| hello_of(MAGIC, SPOKEN, &text(b"")), Declines("another region")),
    (
        "a region's path",
        Fresh,
        |_| hello_of(MAGIC, SPOKEN, &text(b"../default")),
        Declines("another region"),
    ),
    (
        "a name with NUL",
        Fresh,
        |_| hello_of(MAGIC, SPOKEN, &text(b"default\0")),
        Declines("another region"),
    ),
    ("a name that is no UTF-8", Fresh, |_| hello_of(MAGIC, SPOKEN, &text(b"def\xffault")), HangsUp),
    ("a name beyond its frame", Fresh, |_| hello_of(MAGIC, SPOKEN, b"\xff\xffdefault"), HangsUp),
    ("a greeting too long by one", Fresh, |_| hello_of(MAGIC, SPOKEN, b"\x01\x00ab"), HangsUp),
    ("a lane before a hello", Fresh, |_| framed(&attach(0)), HangsUp),
    ("an end before a hello", Fresh, |_| framed(&body(DETACH, &[LANE])), HangsUp),
    ("a verb before a hello", Fresh, |region| add(region.heap), HangsUp),
    (
        "a word before a hello",
        Fresh,
        |_| framed(&body(PUBLISH, &[LANE, &[0, 0], &[1; 8]])),
        HangsUp,
    ),
    ("a wait before a hello", Fresh, |_| long_wait(1), HangsUp),
    ("a wait's end before a hello", Fresh, |_| framed(&body(END_WAIT, &[LANE, LANE])), HangsUp),
    ("a receipt before a hello", Fresh, |_| framed(&body(TOOK, &[LANE, &[0], &[0; 8]])), HangsUp),
    ("a question before a hello", Fresh, |_| framed(&body(ASK, &[LANE, &[0; 2]])), HangsUp),
    ("a call before a hello", Fresh, |_| call(&[1]), HangsUp),
    ("a hello again", Greeted, |_| framed(&hello("default")), HangsUp),
    ("another hello", Seated, |_| framed(&hello("other")), HangsUp),
    // Tethers.
    ("a tether of another magic", Fresh, |_| tether(b"farlock\x02", SPOKEN, 7), HangsUp),
    (
        "a tether of another version",
        Fresh,
        |_| tether(MAGIC, SPOKEN - 1, 7),
        Declines("speaks version"),
    ),
    ("a tether of no lane", Fresh, |_| tether(MAGIC, SPOKEN, 7), Declines("no such tether")),
    ("a tether with secret 0", Fresh, |_| tether(MAGIC, SPOKEN, 0), Declines("no such tether")),
    ("a tether behind a hello", Greeted, |_| tether(MAGIC, SPOKEN, 7), HangsUp),
    (
        "too many tethers",
        Seated,
        |_| call(&[4, 0, 0, 0, 0]).repeat(5),
        Declines("too many tethers"),
    ),
    // Lanes.
    ("a lane's number again", Seated, |_| framed(&attach(0)), HangsUp),
    (
        "one lane too many",
        Seated,
        |_| (1..5).flat_map(|n| framed(&attach(n))).collect(),
        Declines("at most 4 lanes"),
    ),
    (
        "a label that is no UTF-8",
        Greeted,
        |_| framed(&body(ATTACH, &[LANE, &[7; 4], &[0; 8], &text(b"\xff")])),
        HangsUp,
    ),
    (
        "a label of 60,000 bytes",
        Greeted,
        |_| framed(&body(ATTACH, &[LANE, &[7; 4], &[0; 18], &text(&[b'x'; 60_000])])),
        Answers(ATTACHED),
    ),
    (
        "a host of 60,000 bytes",
        Greeted,
        |_| {
            let host = text(&[b'x'; 60_000]);
            framed(&body(ATTACH, &[LANE, &[7; 4], &[0; 16], &host, &text(b"a label")]))
        },
        Answers(ATTACHED),
    ),
    ("no lane's end", Greeted, |_| framed(&body(DETACH, &[&[9; 4]])), SaysNothing),
    ("no lane's verb", Greeted, |region| add(region.heap), SaysNothing),
    ("no lane's word", Greeted, |_| framed(&body(PUBLISH, &[LANE, &[0, 0], &[1; 8]])), SaysNothing),
    ("no lane's wait", Greeted, |_| long_wait(1), SaysNothing),
    ("no lane's wait's end", Greeted, |_| framed(&body(END_WAIT, &[LANE, LANE])), SaysNothing),
    ("no lane's receipt", Greeted, |_| framed(&body(TOOK, &[LANE, &[0], &[0; 8]])), SaysNothing),
    ("no lane's question", Greeted, |_| framed(&body(ASK, &[LANE, &[0; 2]])), SaysNothing),
    ("kind 0 of a lane", Seated, |_| framed(&body(0, &[LANE])), HangsUp),
    ("kind 12 of a lane", Seated, |_| framed(&body(12, &[LANE])), HangsUp),
    ("a length of zero of a lane", Seated, |_| vec![0; 4], HangsUp),
    // Records, waits, receipts, questions.
    ("a word of no slot", Seated, |_| framed(&body(PUBLISH, &[LANE, &[2, 0], &[1; 8]])), HangsUp),
    (
        "a word beyond a record",
        Seated,
        |_| framed(&body(PUBLISH, &[LANE, &[0, 8], &[1; 8]])),
        HangsUp,
    ),
    (
        "a word of slot 255",
        Seated,
        |_| framed(&body(PUBLISH, &[LANE, &[255, 255], &[1; 8]])),
        HangsUp,
    ),
    ("a wait for nothing", Seated, |_| wait(1, &[0, 0, 0]), HangsUp),
    ("a wait for no slot's mail", Seated, |_| wait(1, &[2, 9, 0, 0]), HangsUp),
    (
        "a wait for 257 peers",
        Seated,
        |_| wait(1, &[&[0, 1, 1][..], &[0; 257 * 4]].concat()),
        HangsUp,
    ),
    ("a wait for peers that are not named", Seated, |_| wait(1, &[0, 4, 0, 1, 2]), HangsUp),
    (
        "too many waits",
        Seated,
        |_| (0..5).flat_map(long_wait).collect(),
        Declines("at most 4 waits"),
    ),
    ("the end of no wait", Seated, |_| framed(&body(END_WAIT, &[LANE, &[9; 4]])), SaysNothing),
    ("a receipt of no mail", Seated, |_| framed(&body(TOOK, &[LANE, &[0], &[0; 8]])), HangsUp),
    ("a receipt of no slot", Seated, |_| framed(&body(TOOK, &[LANE, &[200], &[0; 8]])), HangsUp),
    (
        "a question of 257 peers",
        Seated,
        |_| framed(&body(ASK, &[LANE, &[1, 1], &[0; 257 * 4]])),
        HangsUp,
    ),
    (
        "a question of peers that never were",
        Seated,
        |_| framed(&body(ASK, &[LANE, &[2, 0], &[0xff; 8]])),
        SaysNothing,
    ),
    // Calls.
    ("call 0", Greeted, |_| call(&[0]), HangsUp),
    ("call 8", Greeted, |_| call(&[8]), HangsUp),
    ("call 6", Greeted, |_| call(&[6]), HangsUp),
    ("a lease with a byte too many", Greeted, |_| call(&[5, 0]), HangsUp),
    // Those that come back.
    ("a return by secret 0", Fresh, |_| resumption(0, b"default"), Declines("no such client")),
    ("a return by a foreign secret", Fresh, |_| resumption(7, b"default"), Declines("no such")),
    ("a return to another region", Fresh, |_| resumption(7, b"o"), Declines("another region")),
    ("a second greeting that returns", Greeted, |_| resumption(7, b"default"), HangsUp),
    ("a lane before a hello", Fresh, |_| framed(&body(LANE_GOES_ON, &[LANE, &[0]])), HangsUp),
    (
        "a lane that is cut",
        Greeted,
        |_| framed(&body(LANE_GOES_ON, &[LANE, &[2], &[0; 9]])),
        HangsUp,
    ),
    (
        "a lane that never was",
        Greeted,
        |_| framed(&body(LANE_GOES_ON, &[LANE, &[0]])),
        Answers(DEAD),
    ),
    ("an end of lanes too long", Greeted, |_| framed(&body(LANES_END, &[LANE, &[0]])), HangsUp),
    ("no call", Greeted, |_| call(&[]), HangsUp),
    ("memory of no words", Greeted, |_| call(&[&[7][..], &[0xff; 16]].concat()), Declines("")),
    ("memory of half a length", Greeted, |_| call(&[&[7][..], &[0xff; 12]].concat()), HangsUp),
    ("a heap of all there is", Greeted, |_| call(&[&[2][..], &[0xff; 8]].concat()), Declines("")),
    (
        "a longer heap, and a byte too many",
        Greeted,
        |region| call(&[&[2][..], &(region.heap_bytes + 1).to_le_bytes(), &[0]].concat()),
        HangsUp,
    ),
    ("peers of half a number", Greeted, |_| call(&[3, 0]), HangsUp),
    // Verbs.
    ("verb 0", Seated, |_| framed(&verb(0, &[&[0; 16]])), HangsUp),
    ("verb 10", Seated, |_| framed(&verb(10, &[&[0; 16]])), HangsUp),
    ("verb 63", Seated, |_| framed(&verb(63, &[&[0; 16]])), HangsUp),
    ("no verb", Seated, |_| framed(&body(VERBS, &[LANE, LANE, &[0]])), HangsUp),
    (
        "a verb and a byte",
        Seated,
        |region| framed(&verb(READ, &[&region.heap.to_le_bytes(), &[1, 0], &[0]])),
        HangsUp,
    ),
    (
        "a chain of 33",
        Seated,
        |region| {
            let link = [&[READ][..], &region.heap.to_le_bytes(), &[1, 0]].concat();
            framed(&body(VERBS, &[LANE, LANE, &[33], &link.repeat(33)]))
        },
        HangsUp,
    ),
    ("a patience of half a number", Seated, |_| framed(&patient(&[0; 12])), HangsUp),
    (
        "two verbs that are patient",
        Seated,
        |region| {
            let link = [&[READ][..], &region.heap.to_le_bytes(), &[1, 0]].concat();
            framed(&patient(&[&[1; 16][..], &link.repeat(2)].concat()))
        },
        HangsUp,
    ),
    ("a chain of 255", Seated, |_| framed(&body(VERBS, &[LANE, LANE, &[255]])), HangsUp),
    (
        "a verb that is unsignalled, and a byte",
        Seated,
        |region| framed(&unsignalled(region.heap, &[0])),
        HangsUp,
    ),
    (
        "a verb that is unsignalled",
        Seated,
        |region| framed(&unsignalled(region.heap, &[])),
        SaysNothing,
    ),
    (
        "a verb that is unsignalled, nowhere",
        Seated,
        |_| framed(&unsignalled(u64::MAX - 7, &[])),
        Refuses(OUT_OF_BOUNDS),
    ),
    (
        "a chain of 2 with one link",
        Seated,
        |region| {
            let link = [&[FAA64][..], &region.heap.to_le_bytes(), &[1; 8]].concat();
            framed(&body(VERBS, &[LANE, LANE, &[2], &link]))
        },
        HangsUp,
    ),
    (
        "a chain whose last link is unknown",
        Seated,
        |region| {
            let link = [&[FAA64][..], &region.heap.to_le_bytes(), &[1; 8]].concat();
            framed(&body(VERBS, &[LANE, LANE, &[2], &link, &[42; 17]]))
        },
        HangsUp,
    ),
    ("a write of 513 words", Seated, |region| write(region.heap, 513), HangsUp),
    (
        "a write of fewer words than it says",
        Seated,
        |region| framed(&verb(WRITE, &[&region.heap.to_le_bytes(), &[9, 0], &[0; 64]])),
        HangsUp,
    ),
    ("a write of nothing", Seated, |region| write(region.heap, 0), Refuses(OUT_OF_BOUNDS)),
    ("a read of nothing", Seated, |region| read(region.heap, 0), Refuses(OUT_OF_BOUNDS)),
    ("a read of 513 words", Seated, |region| read(region.heap, 513), Refuses(OUT_OF_BOUNDS)),
    ("a read of 65535 words", Seated, |region| read(region.heap, !0), Refuses(OUT_OF_BOUNDS)),
    (
        "the word behind the heap",
        Seated,
        |region| add(region.heap + region.heap_bytes),
        Refuses(OUT_OF_BOUNDS),
    ),
    (
        "a read across the heap's end",
        Seated,
        |region| read(region.heap + region.heap_bytes - 8, 2),
        Refuses(OUT_OF_BOUNDS),
    ),
    (
        "a write across the heap's end",
        Seated,
        |region| write(region.heap + region.heap_bytes - 8, 2),
        Refuses(OUT_OF_BOUNDS),
    ),
    ("the greatest address", Seated, |_| add(!7), Refuses(OUT_OF_BOUNDS)),
    ("the greatest offset", Seated, |_| add((1 << 48) | ((1 << 48) - 8)), Refuses(OUT_OF_BOUNDS)),
    ("address 0", Seated, |_| add(0), Refuses(OUT_OF_BOUNDS)),
    ("region 2", Seated, |region| add(region.heap + (1 << 48)), Refuses(OUT_OF_BOUNDS)),
    ("a read of the header", Seated, |_| read(1 << 48, 1), Refuses(OUT_OF_BOUNDS)),
    ("a change of the header", Seated, |_| add(1 << 48), Refuses(OUT_OF_BOUNDS)),
    ("a write over the header", Seated, |_| write(1 << 48, 13), Refuses(OUT_OF_BOUNDS)),
    (
        "a change of the table of places",
        Seated,
        |_| add((1 << 48) + 40_960),
        Refuses(OUT_OF_BOUNDS),
    ),
    ("a change of a record", Seated, |region| add(region.records), Refuses(NO_RIGHT)),
    ("a write over records", Seated, |region| write(region.records, 8), Refuses(NO_RIGHT)),
    (
        "a write into the heap from before it",
        Seated,
        |region| write(region.heap - 8, 2),
        Refuses(NO_RIGHT),
    ),
    ("a word off by one byte", Seated, |region| add(region.heap + 1), Refuses(MISALIGNED)),
    ("a word off by four bytes", Seated, |region| add(region.heap + 4), Refuses(MISALIGNED)),
    ("a read off by four bytes", Seated, |region| read(region.heap + 4, 1), Refuses(MISALIGNED)),
    (
        "a wide word off by a word",
        Seated,
        |region| framed(&verb(FAA128, &[&(region.heap + 8).to_le_bytes(), &[0; 32]])),
        Refuses(MISALIGNED),
    ),
    ("mail for nobody", Seated, |_| send(0, 0, 0), Refuses(PEER_GONE)),
    ("mail for a place beyond all", Seated, |_| send(!0, 1, 0), Refuses(PEER_GONE)),
    ("mail for a life that is over", Seated, |_| send(1, !0, 0), Refuses(PEER_GONE)),
    ("mail for no slot", Seated, |_| send(1, 1, 99), Refuses(OUT_OF_BOUNDS)),
];
