//! Fuzzing of what a client takes from a server: it is understood, or refused, whatever it is.

use std::net::TcpListener;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::endpoint::{Endpoint, Posted, Ticket, Wait, WaitState};
use crate::fuzz::{Fuzzer, executions, within};
use crate::tcp::client::calls::{put_peer, take_peers};
use crate::tcp::client::greeting::{READ_BYTES, read_greeting};
use crate::tcp::client::lane::TcpLane;
use crate::tcp::wire::body;
use crate::verb::{Link, Verb};

/// The lane's number on the channel, and that of a call.
const LANE: u32 = 0;
const CALL: u32 = 1;

/// What is posted first by a lane, and a chain of three that is posted behind it.
const SINGLE: Ticket = Ticket(0);
const CHAIN: Ticket = Ticket(64 + 3);

/// Bytes that a client may need for an input beside what it keeps of it.
const ROOM: u64 = 16 << 10;

fn welcome() -> Vec<u8> {
    body(reply::WELCOME, |frame| {
        frame.u64(MAGIC).u16(VERSION).u16(3).u64(9).u64(1 << 48 | 1 << 20).u64(4 << 20);
        frame.u64(1 << 48 | 4096).u16(8).u16(16).u8(2).u64(77).u128(5);
        // By its connection, and for a lease that outlasts the test.
        frame.u128(6).u64(3600 * 1_000_000_000).u8(1)
    })
}

/// A frame of each kind, and of each shape of an end.
fn corpus() -> Vec<Vec<u8>> {
    let id = EndpointId { index: 2, incarnation: 1 };
    let peer = crate::connection::Peer {
        id,
        pid: 7,
        started_ticks: 8,
        since: 9,
        label: "label".to_owned(),
        home: crate::home::Home { id: 5, host: "host".to_owned() },
        tethered: true,
        orphaned: false,
    };
    vec![
        welcome(),
        body(reply::DECLINED, |frame| frame.u32(CALL).text("no").u8(0)),
        body(reply::DECLINED, |frame| frame.u32(CALL).text("it has no room")),
        body(reply::ATTACHED, |frame| frame.u32(CALL).id(id)),
        body(reply::DONE, |frame| frame.u32(LANE).u32(0).u8(0).u8(0).u8(1).u64(5)),
        body(reply::DONE, |frame| frame.u32(LANE).u32(0).u8(0).u8(0).u8(2).u128(5)),
        body(reply::DONE, |frame| frame.u32(LANE).u32(0).u8(0).u8(4).u8(0)),
        body(reply::DONE, |frame| frame.u32(LANE).u32(0).u8(0).u8(0).u8(3).u16(2).u128(7)),
        body(reply::DONE, |frame| {
            frame.u32(LANE).u32(CHAIN.0 as u32).u8(3).u8(0).u8(0).u8(0).u8(1).u64(1);
            frame.u8(0).u8(3).u16(40).words(&[6; 40])
        }),
        body(reply::WOKEN, |frame| frame.u32(LANE).u32(0).u8(2).id(id)),
        body(reply::MAIL, |frame| frame.u32(LANE).u8(1).u64(0).id(id).u64(3).words(&[1; 4])),
        body(reply::PEER, |frame| frame.u8(1).id(id)),
        body(reply::PEER, |frame| frame.u8(0).id(id)),
        body(reply::LIVING, |frame| frame.u16(2).id(id).id(id)),
        body(reply::ANSWER, |frame| frame.u32(CALL).u64(1 << 20)),
        body(reply::ANSWER, |frame| {
            frame.u32(CALL).u16(2);
            put_peer(frame, &peer);
            put_peer(frame, &peer);
            frame
        }),
        body(reply::GONE, |frame| frame),
        body(reply::DEAD, |frame| frame.u32(LANE)),
    ]
}

/// A channel, and the other end of its stream.
fn stand() -> (Arc<Channel>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("its address");
    let stream = TcpStream::connect(address).expect("a connection");
    let (other, _) = listener.accept().expect("its other end");
    other.set_nonblocking(true).expect("it does not block");
    let facts = read_greeting(&welcome(), "server", 0).expect("a sound greeting");
    let names = ("server".to_owned(), "region".to_owned());
    let stream = (Stream::Plain(stream), None);
    let owner = Owner::this(String::new());
    let channel = Channel::new(stream, names, owner, facts, (boot_time(), Vec::new(), 0));
    (channel.expect("a channel"), other)
}

/// What a client does with what came: everything that it may.
fn use_all_of(channel: &Arc<Channel>, lane: &TcpLane, calls: &Inbox) {
    let mut cx = Context::from_waker(Waker::noop());
    for (ticket, links) in [(SINGLE, 1), (CHAIN, 3)] {
        if lane.poll_posted(ticket, &mut cx) == Poll::Ready(Ok(())) {
            for link in 0..links {
                lane.copy_read(link, &mut [0; 64]);
            }
            let _ = (lane.old(), ticket == CHAIN && lane.link(2).status.is_ok());
        }
    }
    while lane.receive(Slot(1)).is_some() {}
    let _ = lane.poll_wait(&Wait { mail: Some(Slot(0)), ..Wait::default() }, &mut begun(), &mut cx);
    let _ = (channel.occupied_from(0), channel.is_gone.swap(false, Ordering::SeqCst));
    let Some(answer) = calls.state().answer.take() else { return };
    let _ = channel.read_answer(&answer, reply::ANSWER, take_peers);
    let _ = channel.read_answer(&answer, reply::ANSWER, |fields| fields.u128());
    let _ = channel.read_answer(&answer, reply::ATTACHED, |fields| fields.id());
}

/// A wait that has begun as the lane's first.
fn begun() -> WaitState {
    WaitState { begun: true, ..WaitState::default() }
}

#[test]
fn whatever_a_server_sends_is_understood_or_refused() {
    let (mut fuzzer, corpus) = (Fuzzer::new(3), corpus());
    let (channel, mut other) = stand();
    let (mut sound, mut garbled, mut input) = (0, 0, Vec::new());
    let stream = Arc::clone(&lock(&channel.incoming).stream);
    let mut incoming = Incoming::behind(vec![0; 4 * READ_BYTES], 0, stream);
    for _ in 0..executions(300_000) {
        fuzzer.frames(&corpus, &mut input);
        let bell = Unparker::default();
        let (inbox, calls) = (Arc::new(Inbox::of(2, bell.clone())), Arc::new(Inbox::default()));
        channel.enter(LANE, &inbox);
        channel.enter(CALL, &calls);
        let id = EndpointId { index: 3, incarnation: 1 };
        let lane = TcpLane::new(&channel, LANE, id, (&inbox, &bell), 1);
        let read = Verb::Read { addr: channel.facts.heap, words: 1 };
        assert!(matches!(lane.post(read), Posted::Pending(SINGLE)));
        let chain = [Link::from(read), Link::from(read), Link::from(read)];
        assert!(matches!(lane.post_chain(&chain), Posted::Pending(CHAIN)));
        incoming.bytes[..input.len()].copy_from_slice(&input);
        incoming.filled = input.len();
        let room = ROOM + 4 * input.len() as u64;
        let taken = within(room, &input, || {
            let taken = channel.dispatch(&mut incoming, (&bell, &mut Wakes::default()));
            use_all_of(&channel, &lane, &calls);
            taken
        });
        *if taken.is_ok() { &mut sound } else { &mut garbled } += 1;
        let mut heard = [0; 4096];
        while std::io::Read::read(&mut other, &mut heard).is_ok_and(|count| count == heard.len()) {}
    }
    assert!(!channel.is_over());
    assert!(sound > 1000 && garbled > 1000, "{sound} sound, {garbled} garbled");
}

/// What a greeting says of a region lies where addresses reach.
#[test]
fn a_greeting_is_of_a_region_or_refused() {
    let (mut fuzzer, corpus) = (Fuzzer::new(4), vec![welcome(), corpus()[1].clone()]);
    let (mut sound, mut bytes) = (0, Vec::new());
    for _ in 0..executions(100_000) {
        bytes.clone_from(&corpus[fuzzer.below(2)]);
        fuzzer.change(&mut bytes, &corpus);
        let room = ROOM + 2 * bytes.len() as u64;
        let Ok(facts) = within(room, &bytes, || read_greeting(&bytes, "server", 0)) else {
            continue;
        };
        sound += 1;
        let _ = facts.heap.plus(facts.heap_bytes);
        let lines = u64::from(facts.all) * u64::from(facts.slots);
        let _ = facts.records.plus(lines * 64);
    }
    assert!(sound > 100, "{sound} were sound");
}
