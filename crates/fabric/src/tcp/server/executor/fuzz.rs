//! Fuzzing of what a server takes from its clients: it answers or hangs up, whatever comes, needs
//! no more memory than frames and answers have, and goes on to serve others.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use super::*;
use crate::addr::{Addr, Slot};
use crate::endpoint::{Publication, RECORD_WORDS, Wait};
use crate::fuzz::{Fuzzer, executions, within};
use crate::home::home_id;
use crate::shm::{Host, Options, Region};
use crate::tcp::wire::{
    FRAME_MAX, Fields, MAGIC, PATIENT, Patience, VERSION, body, call, put_ids, put_link,
    put_publication, put_watch, request,
};
use crate::verb::{Link, MaskedCas, MaskedFaa, Verb};

/// The guest that the others are not to disturb, and the one that sends what is wrong.
const ESTABLISHED: usize = 0;
const HOSTILE: usize = 1;

/// Bytes that a server may need for an input, beside what it answers.
const ROOM: u64 = 256 << 10;

/// Bytes that lie for a client before it is not served any more.
const UNSENT: usize = 64 << 10;

fn framed(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes(), body].concat()
}

fn hello() -> Vec<u8> {
    body(request::HELLO, |frame| {
        frame.u64(MAGIC).u16(VERSION).text("region").u128(home_id()).u16(0)
    })
}

fn attach(lane: u32) -> Vec<u8> {
    body(request::ATTACH, |frame| frame.u32(lane).u32(7).u64(8).u64(5).text("host").text("label"))
}

fn verbs(lane: u32, links: &[Link<'_>]) -> Vec<u8> {
    body(request::VERBS, |frame| {
        frame.u32(lane).u32(9).u8(if links.len() > 1 { links.len() as u8 } else { 0 });
        links.iter().for_each(|link| put_link(frame, link));
        frame
    })
}

fn patient(link: &Link<'_>, patience: Patience, otherwise: Option<Publication>) -> Vec<u8> {
    body(request::VERBS, |frame| {
        patience.put(frame.u32(0).u32(11).u8(PATIENT));
        put_publication(frame, otherwise);
        put_link(frame, link);
        frame
    })
}

/// What a client that has said hello may send: a frame of each kind, and of each verb.
fn requests(word: Addr, to: Mailbox) -> Vec<Vec<u8>> {
    let (addr, hint) = (word, Some(3));
    let op = MaskedCas { compare: 1, compare_mask: 3, swap: 2, swap_mask: 3 };
    let wide = MaskedCas { compare: 1_u128, compare_mask: 3, swap: 2, swap_mask: 3 };
    let links: Vec<Link<'_>> = [
        Verb::Read { addr, words: 8 },
        Verb::Write { addr, data: &[1, 2, 3] },
        Verb::Cas64 { addr, compare: 1, swap: 2 },
        Verb::Faa64 { addr, add: 1 },
        Verb::MaskedCas64 { addr, op },
        Verb::MaskedFaa64 { addr, op: MaskedFaa { add: 1, boundary: 2 } },
        Verb::MaskedCas128 { addr, op: wide, hint },
        Verb::MaskedFaa128 { addr, op: MaskedFaa { add: 1, boundary: 2 }, hint: None },
        Verb::Send { to, message: [5; 4] },
    ]
    .map(Link::from)
    .to_vec();
    let otherwise = Some(Publication { slot: Slot(1), word: 2, value: 3 });
    let ids = [to.endpoint, EndpointId { index: 3, incarnation: 1 }];
    let mut requests: Vec<_> = links.iter().map(|link| verbs(0, &[*link])).collect();
    requests.extend([
        attach(0),
        attach(1),
        verbs(0, &links),
        verbs(1, &links[..3]),
        patient(&links[6], Patience::fixed(u64::MAX), None),
        patient(&links[6], Patience { still: 1, at_most: u64::MAX }, otherwise),
        patient(&links[4], Patience::fixed(1), otherwise),
        patient(&links[0], Patience::fixed(1), otherwise),
        body(request::DETACH, |frame| frame.u32(1)),
        body(request::PUBLISH, |frame| frame.u32(0).u8(1).u8(2).u64(3)),
        body(request::WAIT, |frame| {
            let (word, mail, peers) = (Some((addr, 0)), Some(Slot(0)), &ids);
            put_watch(frame.u32(0).u32(1), &Wait { word, mail, peers, ..Wait::default() });
            frame
        }),
        body(request::WAIT, |frame| {
            let wait = Wait { word: Some((addr, u64::MAX)), ignoring: 7, ..Wait::default() };
            put_watch(frame.u32(0).u32(2), &wait);
            frame
        }),
        body(request::END_WAIT, |frame| frame.u32(0).u32(1)),
        body(request::TOOK, |frame| frame.u32(0).u8(0).u64(0)),
        body(request::ASK, |frame| {
            put_ids(frame.u32(0), &ids);
            frame
        }),
        body(request::LANE, |frame| frame.u32(0).u8(2).u64(1).u64(0)),
        body(request::LANES_END, |frame| frame.u32(0)),
        body(request::RESUME, |frame| frame.u64(MAGIC).u16(VERSION).text("region").u128(1).u128(9)),
        hello(),
        body(request::TETHER, |frame| frame.u64(MAGIC).u16(VERSION).u128(7)),
        body(request::FIND, |frame| frame.u64(MAGIC).u16(VERSION).text("region").u128(1)),
    ]);
    requests.extend(calls(word));
    requests
}

/// A call of each kind.
fn calls(addr: Addr) -> Vec<Vec<u8>> {
    vec![
        body(request::CALL, |frame| frame.u32(5).u8(call::HEAP)),
        body(request::CALL, |frame| frame.u32(5).u8(call::RESERVE).u64(addr.bits()).u64(64)),
        body(request::CALL, |frame| frame.u32(5).u8(call::LENGTHEN).u64(1 << 16)),
        body(request::CALL, |frame| frame.u32(5).u8(call::PEERS).u16(0)),
        body(request::CALL, |frame| frame.u32(5).u8(call::TETHER).u32(0)),
        body(request::CALL, |frame| frame.u32(5).u8(call::RENEW)),
        body(request::CALL, |frame| frame.u32(5).u8(call::TIED).u32(0).u128(1)),
    ]
}

/// A server with two guests, of which one is established.
struct Stand {
    executor: Executor,
    region: Region,
    /// The established client's place.
    id: EndpointId,
    /// The other ends of the guests' streams.
    others: [UnixStream; 2],
    dir: std::path::PathBuf,
}

impl Drop for Stand {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Stand {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("farlock-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory");
        let mut options = Options::new(&dir, dir.join("state"), "region");
        (options.endpoints, options.slots, options.heap_bytes) = (16, 2, 1 << 16);
        options.max_bytes = 4 << 20;
        let region = Region::open(&options).expect("a region");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let interrupt = Arc::new(Interrupt::new().expect("an interrupt"));
        let limits = Limits { lanes: 4, waits: 4, unsent: UNSENT, ..Limits::default() };
        let open = move |name: &str| match name {
            "region" => Host::open(&options),
            _ => Err(crate::ConnectError::Stale),
        };
        let asked = (Box::new(open) as Opener, Box::new(|_: &std::io::Error| {}) as OnShort);
        let executor = Executor::new((listener, None), asked, limits, Vec::new(), interrupt);
        let executor = executor.expect("an executor");
        let others = [UnixStream::pair().expect("a pair").0, UnixStream::pair().expect("a pair").0];
        let id = EndpointId::NOBODY;
        let mut stand = Self { executor, region, id, others, dir };
        stand.seat(ESTABLISHED);
        stand.hear(ESTABLISHED, &[framed(&hello()), framed(&attach(0))].concat());
        stand.id = stand.guest(ESTABLISHED).expect("it is there").seats[&0].endpoint.id();
        stand.seat(HOSTILE);
        stand
    }

    /// A client connects, by this number.
    fn seat(&mut self, number: usize) {
        let (own, other) = UnixStream::pair().expect("a pair");
        own.set_nonblocking(true).expect("it does not block");
        self.others[number] = other;
        let stream = TcpStream::from(OwnedFd::from(own));
        let executor = &mut self.executor;
        if executor.guests.len() <= number {
            executor.guests.push(None);
            executor.outs.push(Out::default());
        }
        executor.vacant.retain(|vacant| *vacant != number);
        let guest = executor.new_guest(Some(Stream::Plain(stream)), true);
        executor.guests[number] = Some(guest);
    }

    fn guest(&self, number: usize) -> Option<&Guest> {
        self.executor.guests[number].as_ref()
    }

    /// What a turn does with what this client sent. Returns what was answered.
    fn hear(&mut self, number: usize, input: &[u8]) -> Vec<u8> {
        use std::io::Write as _;
        self.others[number].write_all(input).expect("the stream takes it");
        self.executor.serve(number, epoll::EventFlags::IN);
        self.executor.look_at_waits();
        for touched in std::mem::take(&mut self.executor.touched) {
            self.executor.outs[touched].is_touched = false;
        }
        let answer = std::mem::take(&mut self.executor.outs[number].bytes);
        self.executor.outs.iter_mut().for_each(|out| out.bytes.clear());
        answer
    }

    /// What is known of the established client, as others see it.
    fn check_established(&mut self) {
        let word = self.region.heap().0;
        let asked = verbs(0, &[Verb::Read { addr: word, words: 1 }.into()]);
        let answer = self.hear(ESTABLISHED, &framed(&asked));
        // What others did comes before the end of its own verb.
        let mut at = 0;
        let mut has_ended = false;
        while let Ok(Some((frame, length))) = next_frame(&answer[at..]) {
            has_ended |= frame[0] == reply::DONE && Fields(&frame[9..]).u16().is_ok();
            at += length;
        }
        assert!(has_ended && at == answer.len(), "it is served: {answer:02x?}");
        assert!(self.region.is_alive(self.id), "its place is its own");
    }

    /// Has the other client send so many inputs made of these.
    fn fuzz(&mut self, seed: u64, count: u64, corpus: &[Vec<u8>], begins: &[u8]) -> (u64, u64) {
        let (mut fuzzer, mut input) = (Fuzzer::new(seed), Vec::new());
        // A buffer that grows is there twice for a moment.
        let room = ROOM + 3 * (UNSENT + FRAME_MAX) as u64;
        let (mut kept, mut hung_up) = (0, 0);
        for round in 0..count {
            if self.guest(HOSTILE).is_none_or(|guest| guest.input.len() > 512) {
                if let Some(guest) = self.executor.guests[HOSTILE].take() {
                    self.executor.part(HOSTILE, guest);
                }
                self.seat(HOSTILE);
                self.hear(HOSTILE, begins);
            }
            fuzzer.frames(corpus, &mut input);
            input.truncate(READ_BYTES);
            within(room, &input, || self.hear(HOSTILE, &input));
            let is_there = self.guest(HOSTILE).is_some();
            *if is_there { &mut kept } else { &mut hung_up } += 1;
            if round % 64 == 0 {
                self.check_established();
            }
        }
        (kept, hung_up)
    }
}

/// The region is there for those that have said hello: what others send changes no word of it.
#[test]
fn what_comes_before_a_hello_changes_nothing() {
    let mut stand = Stand::new("fuzz-strangers");
    let (word, slot) = (stand.region.heap().0, Slot(0));
    let mut corpus = requests(word, Mailbox { endpoint: stand.id, slot });
    // Of a hello something is always wrong.
    corpus.retain(|request| !matches!(request[0], request::HELLO | request::FIND));
    corpus.push(body(request::FIND, |frame| frame.u64(MAGIC).u16(VERSION).text("another").u128(1)));
    corpus
        .push(body(request::HELLO, |frame| frame.u64(MAGIC).u16(VERSION).text("another").u128(1)));
    corpus
        .push(body(request::HELLO, |frame| frame.u64(MAGIC).u16(VERSION + 1).text("none").u128(1)));
    let words = |stand: &Stand| -> Vec<u64> {
        stand.region.words().iter().map(|word| word.load(Ordering::SeqCst)).collect()
    };
    let (before, arrivals) = (words(&stand), stand.region.arrivals());
    let (_, hung_up) = stand.fuzz(5, executions(60_000), &corpus, &[]);
    assert!(hung_up > 1000, "{hung_up}");
    assert_eq!(before, words(&stand));
    assert_eq!(arrivals, stand.region.arrivals(), "none has moved in");
    assert!(stand.executor.promised.is_empty() && stand.executor.waits.is_empty());
}

/// A client that has said hello can change the words of the region, and nothing else of it.
#[test]
fn whatever_a_client_sends_is_answered_or_hung_up_on() {
    let mut stand = Stand::new("fuzz-clients");
    let (word, slot) = (stand.region.heap().0, Slot(0));
    let record = stand.region.records();
    let at = u64::from(stand.id.index - 1) * 2 * RECORD_WORDS as u64 * 8;
    let published = body(request::PUBLISH, |frame| frame.u32(0).u8(0).u8(1).u64(0x5eed));
    stand.hear(ESTABLISHED, &framed(&published));
    let corpus = requests(word, Mailbox { endpoint: stand.id, slot });
    let begins = [framed(&hello()), framed(&attach(0))].concat();
    let (kept, hung_up) = stand.fuzz(6, executions(200_000), &corpus, &begins);
    assert!(kept > 1000 && hung_up > 1000, "{kept} answered, {hung_up} hung up on");
    let asked = verbs(0, &[Verb::Read { addr: record.plus(at + 8), words: 1 }.into()]);
    let answer = stand.hear(ESTABLISHED, &framed(&asked));
    assert!(answer.ends_with(&0x5eed_u64.to_le_bytes()), "its record is as it was: {answer:02x?}");
    // What the clients that are gone had is gone.
    let guest = stand.executor.guests[HOSTILE].take();
    guest.into_iter().for_each(|guest| stand.executor.part(HOSTILE, guest));
    let waits = stand.executor.waits.lanes().filter(|(number, _)| *number == HOSTILE);
    assert_eq!((waits.count(), stand.executor.promised.len()), (0, 0));
    assert_eq!(stand.region.occupants().collect::<Vec<_>>(), [stand.id]);
}
