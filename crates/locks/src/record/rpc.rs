//! A lock server: clients ask it by messages, and it alone knows who has what ("Traditional" and
//! "Traditional_RO" of DSLR, SIGMOD'18, sections 6.1 and 6.4).
#![doc = include_str!("../../../../docs/protocols/rpc.md")]

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use farlock_fabric::{
    Addr, Endpoint, EndpointId, Mailbox, Message, Posted, Slot, Verb, Wait, Waiting,
};

use super::letter::{self, Letter, Subject};
use crate::lock::{Serve, Server};
use crate::prelude::*;

/// How many readers may pass a waiting writer at most where they may (section 6.4).
const BYPASSES: u32 = 10;

/// A lock that a server grants.
#[derive(Clone, Debug)]
pub struct Rpc {
    /// The server that grants it; nobody until there is one.
    pub server: EndpointId,
    /// How many readers may pass a waiting writer while others hold the lock.
    pub bypasses: u32,
}

impl Rpc {
    /// First come, first served.
    pub const IN_ORDER: Self = Self { server: EndpointId::NOBODY, bypasses: 0 };
    /// Readers may pass waiting writers.
    pub const REORDERING: Self = Self { bypasses: BYPASSES, ..Self::IN_ORDER };
}

impl<E: Endpoint> Protocol<'_, E, Rpc> {
    /// Where the server takes letters about this lock: all about one in the order they come in.
    fn counter(self) -> Mailbox {
        // Locks may lie 8 bytes apart.
        let number = self.lock.offset() / 8 % u64::from(self.endpoint.slots());
        Mailbox { endpoint: self.rules.server, slot: Slot(number as u8) }
    }

    /// Asks for the lock, and waits for the answer.
    async fn request(self, subject: Subject, mode: Mode) -> Outcome<Subject> {
        letter::write(&self, self.counter(), subject, mode as u64).await?;
        Ok(letter::read(&self, &[subject as u64]).await?.subject)
    }
}

impl LockKind for Rpc {
    const BYTES: u64 = 8;
    const SHARES: bool = true;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    /// `server=BITS`: the server's [`EndpointId::bits`].
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        (name == "server").then(|| Setting::endpoint(&mut self.server))
    }

    fn promises(&self) -> Promises {
        let writers_before_reader = (self.bypasses == 0).then_some(u16::MAX);
        Promises {
            outlives_clients: false,
            order: Order { writers_before_reader, ..Order::FIFO },
            served: true,
            proof: Proof::SLEEPER,
            ..Promises::EXCLUSION
        }
    }
}

impl<E: Endpoint> Lock<E> for Rpc {
    type Want = Mode;
    type Grant = ();

    fn server(&mut self) -> Option<&mut dyn Serve<E>> {
        Some(self)
    }

    fn opening(&self, _: &Site<'_, E>, _: Mode) -> Verb<'static> {
        unreachable!("no verb opens it")
    }

    /// Nothing is posted: who asks must be able to ask again, where the server has no room.
    fn open(&self, _: &Site<'_, E>, _: Mode) -> Posted {
        Posted::Done(Ok(()))
    }

    fn opened(&self, _: &Site<'_, E>, _: Mode, _: u128) -> Option<()> {
        None
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, mode: Mode, _: u128) -> Outcome<()> {
        site.publish(Phase::Waiting, mode, 0);
        site.by(self).request(Subject::Request, mode).await.map(|_| ())
    }

    fn closing(&self, _: &Site<'_, E>, _: Mode, (): ()) -> Option<Verb<'static>> {
        None
    }

    fn closed(&self, _: &Site<'_, E>, _: Mode, (): (), _: u128) -> bool {
        unreachable!("no verb closes it")
    }

    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        (): (),
        _: Option<u128>,
    ) -> Outcome<()> {
        letter::write(site, site.by(self).counter(), Subject::Release, mode as u64).await
    }

    fn trying(&self, _: &Site<'_, E>, _: Mode, _: Option<u128>) -> Option<Verb<'static>> {
        None
    }

    async fn attempt(&self, site: &Site<'_, E>, mode: Mode) -> Outcome<Option<()>> {
        let answer = site.by(self).request(Subject::Try, mode).await?;
        Ok((answer == Subject::Granted).then_some(()))
    }
}

impl<E: Endpoint> Serve<E> for Rpc {
    fn serve(&mut self, endpoint: Rc<E>) -> Server {
        self.server = endpoint.id();
        Box::pin(serve(endpoint, self.bypasses))
    }
}

/// Answers clients for ever.
async fn serve<E: Endpoint>(endpoint: Rc<E>, bypasses: u32) {
    let mut table = LockTable { bypasses, locks: BTreeMap::new() };
    loop {
        for slot in (0..endpoint.slots()).map(Slot) {
            let mut answers = Vec::new();
            while let Some(envelope) = endpoint.receive(slot) {
                table.take(&envelope.message, &mut answers);
            }
            let from = Mailbox { endpoint: endpoint.id(), slot };
            for (to, letter) in answers {
                // A client has room for its only answer. If it is gone, nobody asks for it.
                let answer = Letter { from, ..letter }.encode();
                if let Posted::Pending(sent) = endpoint.post(Verb::Send { to, message: answer }) {
                    endpoint.abandon(sent);
                }
            }
        }
        endpoint.checkpoint(&table.survivors());
        any_mail(&*endpoint).await;
    }
}

/// Waits until a message lies in any mailbox.
async fn any_mail<E: Endpoint>(endpoint: &E) {
    let wait = |slot| endpoint.wait(Wait { mail: Some(Slot(slot)), ..Wait::default() });
    let mut waits: Vec<Waiting<'_, E>> = (0..endpoint.slots()).map(wait).collect();
    poll_fn(|cx| {
        let woken = waits.iter_mut().any(|wait| Pin::new(wait).poll(cx).is_ready());
        if woken { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// What the server knows.
struct LockTable {
    bypasses: u32,
    /// The locks that are held.
    locks: BTreeMap<Addr, Held>,
}

/// A lock that is held, by a writer or by readers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Held {
    writer: bool,
    readers: u32,
    line: VecDeque<Asked>,
}

/// A waiter in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    who: Mailbox,
    mode: Mode,
    /// Readers that came later and were granted before.
    passed: u32,
}

type Answers = Vec<(Mailbox, Letter)>;

impl LockTable {
    /// Takes a message, and says what is to be answered.
    fn take(&mut self, message: &Message, answers: &mut Answers) {
        let Some(letter) = Letter::decode(message) else { return };
        let mode = if letter.count == 0 { Mode::Shared } else { Mode::Exclusive };
        let held = self.locks.entry(letter.lock).or_default();
        let mut answer = |who, subject| answers.push((who, Letter { subject, ..letter }));
        match letter.subject {
            Subject::Request | Subject::Try if held.admits(mode, self.bypasses) => {
                held.enters(mode);
                answer(letter.from, Subject::Granted);
            }
            Subject::Request => {
                held.line.push_back(Asked { who: letter.from, mode, passed: 0 });
            }
            Subject::Try => answer(letter.from, Subject::Refused),
            Subject::Release => {
                held.leaves(mode);
                while let Some(next) = held.next() {
                    answer(next, Subject::Granted);
                }
            }
            // Not a server's business.
            _ => {}
        }
        if *held == Held::default() {
            self.locks.remove(&letter.lock);
        }
    }

    /// All that it knows, as numbers.
    fn survivors(&self) -> Vec<u64> {
        let mut all = Vec::new();
        for (lock, held) in &self.locks {
            let inside = u64::from(held.writer) << 32 | u64::from(held.readers);
            all.extend([lock.bits(), inside]);
            let asked = |asked: &Asked| {
                asked.who.bits() | (asked.mode as u64) << 40 | u64::from(asked.passed) << 41
            };
            all.extend(held.line.iter().map(asked));
        }
        all
    }
}

impl Held {
    /// Whether it is granted at once to a client that asks now. Readers may pass the waiters in
    /// line while others are inside, each writer in line `bypasses` times.
    fn admits(&mut self, mode: Mode, bypasses: u32) -> bool {
        match mode {
            Mode::Exclusive => !self.writer && self.readers == 0 && self.line.is_empty(),
            Mode::Shared if self.line.is_empty() => !self.writer,
            Mode::Shared => {
                let mut writers = self.line.iter().filter(|asked| asked.mode == Mode::Exclusive);
                let passes = self.readers > 0 && writers.all(|asked| asked.passed < bypasses);
                if passes {
                    self.line.iter_mut().for_each(|asked| asked.passed += 1);
                }
                passes
            }
        }
    }

    fn enters(&mut self, mode: Mode) {
        match mode {
            Mode::Exclusive => self.writer = true,
            Mode::Shared => self.readers += 1,
        }
    }

    /// A holder leaves. One that was never granted changes nothing.
    fn leaves(&mut self, mode: Mode) {
        match mode {
            Mode::Exclusive => self.writer = false,
            Mode::Shared => self.readers = self.readers.saturating_sub(1),
        }
    }

    /// Lets the first in line in, if it may come in.
    fn next(&mut self) -> Option<Mailbox> {
        let first = *self.line.front()?;
        let free = match first.mode {
            Mode::Exclusive => !self.writer && self.readers == 0,
            Mode::Shared => !self.writer,
        };
        if !free {
            return None;
        }
        self.line.pop_front();
        self.enters(first.mode);
        Some(first.who)
    }
}

#[cfg(test)]
mod tests {
    use farlock_fabric::RegionId;

    use super::*;

    fn who(index: u16) -> Mailbox {
        Mailbox { endpoint: EndpointId { index, incarnation: 1 }, slot: Slot(0) }
    }

    /// Who is granted when these things are said, one after another.
    fn granted(bypasses: u32, said: &[(u16, Subject, Mode)]) -> Vec<u16> {
        let mut table = LockTable { bypasses, locks: BTreeMap::new() };
        let mut answers = Vec::new();
        for &(index, subject, mode) in said {
            let lock = Addr::new(RegionId(1), 64);
            let letter = Letter { subject, count: mode as u64, from: who(index), lock };
            table.take(&letter.encode(), &mut answers);
        }
        let granted = answers.iter().filter(|(_, letter)| letter.subject == Subject::Granted);
        granted.map(|(to, _)| to.endpoint.index).collect()
    }

    use Mode::{Exclusive, Shared};
    use Subject::{Release, Request, Try};

    #[test]
    fn first_come_first_served() {
        let said = [
            (1, Request, Shared),
            (2, Request, Exclusive),
            (3, Request, Shared),
            (4, Request, Shared),
            (5, Try, Shared),
            (1, Release, Shared),
        ];
        assert_eq!(granted(0, &said), [1, 2]);
        let all = [&said[..], &[(2, Release, Exclusive), (6, Try, Shared)]].concat();
        assert_eq!(granted(0, &all), [1, 2, 3, 4, 6]);
    }

    #[test]
    fn a_writer_is_passed_ten_times_and_only_while_readers_are_inside() {
        let mut said = vec![(1, Request, Shared), (2, Request, Exclusive)];
        said.extend((3..20).map(|index| (index, Request, Shared)));
        let expected: Vec<u16> = [1].into_iter().chain(3..13).collect();
        assert_eq!(granted(BYPASSES, &said), expected);
        let said = [(1, Request, Exclusive), (2, Request, Exclusive), (3, Request, Shared)];
        assert_eq!(granted(BYPASSES, &said), [1]);
    }

    #[test]
    fn what_nobody_has_is_forgotten() {
        let mut table = LockTable { bypasses: 0, locks: BTreeMap::new() };
        for subject in [Request, Release, Release] {
            let lock = Addr::new(RegionId(1), 64);
            let letter = Letter { subject, count: 1, from: who(1), lock };
            table.take(&letter.encode(), &mut Vec::new());
        }
        assert!(table.locks.is_empty());
    }
}
