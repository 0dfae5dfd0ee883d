//! What shared memory costs: an uncontended cycle beside bare instructions, and a message's round
//! trip between two processes.
//!
//! Rounds of all subjects are interleaved, so that whatever disturbs the machine disturbs all of
//! them. The minimum says what the code costs, the median what the machine did to it.

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("shared memory is for Linux");
}

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    subjects::main()
}

#[cfg(target_os = "linux")]
mod subjects {
    use std::error::Error;
    use std::hint::black_box;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use farlock_fabric::shm::{Lane, Options, Region, ShmEndpoint, Wide};
    use farlock_fabric::{
        Addr, Endpoint, EndpointId, Mailbox, MaskedCas, Patience, Posted, Slot, Verb, Wait,
        WideAtomics, Woken, block_on,
    };

    const ROUNDS: usize = 31;
    const CYCLES: u32 = 100_000;
    const ROUND_TRIPS: u32 = 20_000;
    /// The argument that makes this program the other side of the ping-pong.
    const ECHO: &str = "--echo-in";
    const HELD: u128 = 1;

    pub(super) fn main() -> Result<(), Box<dyn Error>> {
        let arguments: Vec<String> = std::env::args().collect();
        if let Some(at) = arguments.iter().position(|argument| argument == ECHO) {
            return echo(Path::new(&arguments[at + 1]));
        }
        let dir = Path::new("/dev/shm").join(format!("farlock-bench-{}", std::process::id()));
        let region = Region::open(&options(&dir))?;
        let endpoint = region.endpoint()?;
        let (lane, keeper) = region.lane(false)?;
        cycles(&endpoint, &lane, region.heap().0);
        drop((lane, keeper));
        attaching(&dir)?;
        round_trips(&endpoint, &dir)?;
        deaths(&endpoint, &dir)?;
        drop(endpoint);
        std::fs::remove_dir_all(&dir)?;
        Ok(())
    }

    fn options(dir: &Path) -> Options {
        let mut options = Options::new(dir.join("shm"), dir.join("state"), "bench");
        options.endpoints = 8;
        options
    }

    /// Acquires and releases a word that nobody else touches, in several ways.
    fn cycles(endpoint: &ShmEndpoint, lane: &Lane, word: Addr) {
        type Subject<'a> = (&'a str, Box<dyn Fn() + 'a>);
        let subjects: [Subject<'_>; 9] = [
            ("two bare 16-byte exchanges", Box::new(bare)),
            ("post, hinted", Box::new(move || posted(endpoint, word))),
            ("post, hinted, by a lane", Box::new(move || posted(lane, word))),
            ("publish two words", Box::new(move || published(endpoint))),
            ("post, hinted, behind calls", Box::new(move || called(endpoint, word))),
            ("post, without hint", Box::new(move || unhinted(endpoint, word))),
            ("async, hinted", Box::new(move || awaited(endpoint, word))),
            ("two cas64", Box::new(move || narrow(endpoint, word))),
            ("receive from empty, twice", Box::new(move || received(endpoint))),
        ];
        let mut nanos = vec![Vec::new(); subjects.len()];
        for _ in 0..ROUNDS {
            for ((_, subject), nanos) in subjects.iter().zip(&mut nanos) {
                let begun = Instant::now();
                subject();
                nanos.push(begun.elapsed().as_secs_f64() * 1e9 / f64::from(CYCLES));
            }
        }
        let floor = summary(&mut nanos[0]);
        println!("{:<30} {:>8} {:>8} {:>8}", "acquire and release", "min ns", "median", "x floor");
        for ((name, _), nanos) in subjects.iter().zip(&mut nanos) {
            let (min, median) = summary(nanos);
            println!("{name:<30} {min:>8.1} {median:>8.1} {:>8.2}", min / floor.0);
        }
    }

    fn summary(samples: &mut [f64]) -> (f64, f64) {
        samples.sort_by(f64::total_cmp);
        (samples[0], samples[samples.len() / 2])
    }

    fn bare() {
        #[repr(align(64))]
        struct Line(Wide);
        let line = Line(Wide::new(0));
        for _ in 0..CYCLES {
            assert!(line.0.compare_exchange(0, HELD).is_ok());
            assert!(line.0.compare_exchange(HELD, 0).is_ok());
        }
    }

    const ACQUIRE: MaskedCas<u128> =
        MaskedCas { compare: 0, compare_mask: HELD, swap: HELD, swap_mask: HELD };
    const RELEASE: MaskedCas<u128> =
        MaskedCas { compare: HELD, compare_mask: HELD, swap: 0, swap_mask: HELD };

    #[inline(always)]
    fn compare(e: &impl Endpoint, addr: Addr, op: MaskedCas<u128>, hint: Option<u128>) -> bool {
        let posted = e.post(Verb::MaskedCas128 { addr, op, hint });
        posted == Posted::Done(Ok(())) && (e.old() ^ op.compare) & op.compare_mask == 0
    }

    fn posted(endpoint: &impl Endpoint, word: Addr) {
        for _ in 0..CYCLES {
            let word = black_box(word);
            assert!(compare(endpoint, word, ACQUIRE, Some(0)));
            assert!(compare(endpoint, word, RELEASE, Some(HELD)));
        }
    }

    #[inline(never)]
    fn acquire(endpoint: &ShmEndpoint, word: Addr) -> bool {
        compare(endpoint, word, ACQUIRE, Some(0))
    }

    #[inline(never)]
    fn release(endpoint: &ShmEndpoint, word: Addr) -> bool {
        compare(endpoint, word, RELEASE, Some(HELD))
    }

    fn called(endpoint: &ShmEndpoint, word: Addr) {
        for _ in 0..CYCLES {
            assert!(acquire(endpoint, word));
            assert!(release(endpoint, word));
        }
    }

    fn unhinted(endpoint: &ShmEndpoint, word: Addr) {
        for _ in 0..CYCLES {
            let word = black_box(word);
            assert!(compare(endpoint, word, ACQUIRE, None));
            assert!(compare(endpoint, word, RELEASE, None));
        }
    }

    fn awaited(endpoint: &ShmEndpoint, word: Addr) {
        block_on(endpoint, async {
            for _ in 0..CYCLES {
                let word = black_box(word);
                assert!(endpoint.masked_cas128(word, ACQUIRE, Some(0)).await.is_ok());
                assert!(endpoint.old() & HELD == 0);
                assert!(endpoint.masked_cas128(word, RELEASE, Some(HELD)).await.is_ok());
                assert!(endpoint.old() & HELD == HELD);
            }
        });
    }

    fn narrow(endpoint: &ShmEndpoint, word: Addr) {
        for _ in 0..CYCLES {
            let addr = black_box(word);
            let _ = endpoint.post(Verb::Cas64 { addr, compare: 0, swap: 1 });
            assert!(endpoint.old() == 0);
            let _ = endpoint.post(Verb::Cas64 { addr, compare: 1, swap: 0 });
            assert!(endpoint.old() == 1);
        }
    }

    fn published(endpoint: &ShmEndpoint) {
        let slot = black_box(Slot(0));
        for _ in 0..CYCLES {
            endpoint.publish(slot, 0, 1);
            endpoint.publish(slot, 1, black_box(2));
        }
    }

    fn received(endpoint: &ShmEndpoint) {
        for _ in 0..CYCLES {
            assert!(endpoint.receive(black_box(Slot(0))).is_none());
            assert!(endpoint.receive(black_box(Slot(1))).is_none());
        }
    }

    /// Opening a region that is there, and coming and going, with few and with many there.
    fn attaching(dir: &Path) -> Result<(), Box<dyn Error>> {
        const MANY: usize = 1_500;
        let mut options = options(dir);
        (options.name, options.endpoints, options.slots) = ("wide".to_owned(), 4096, 2);
        let region = Region::open(&options)?;
        let (mut opened, mut few, mut many) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let again = Region::open(&options)?;
            opened.push(begun.elapsed().as_secs_f64() * 1e6);
            drop(again.lane(false)?);
        }
        let attach = |micros: &mut Vec<f64>| -> Result<(), Box<dyn Error>> {
            for _ in 0..ROUNDS * 10 {
                let begun = Instant::now();
                let attached = region.lane(false)?;
                micros.push(begun.elapsed().as_secs_f64() * 1e6);
                drop(attached);
            }
            Ok(())
        };
        attach(&mut few)?;
        let crowd = (0..MANY).map(|_| region.lane(false)).collect::<Result<Vec<_>, _>>()?;
        attach(&mut many)?;
        drop(crowd);
        println!("{:<30} {:>8} {:>8}", "coming to a region", "min us", "median");
        for (name, micros) in
            [("opened again", opened), ("attached, alone", few), ("attached, 1500 there", many)]
        {
            let (min, median) = summary(&mut { micros });
            println!("{name:<30} {min:>8.1} {median:>8.1}");
        }
        Ok(())
    }

    /// Messages to another process and back, spinning and sleeping.
    fn round_trips(endpoint: &ShmEndpoint, dir: &Path) -> Result<(), Box<dyn Error>> {
        let mut peer = Command::new(std::env::current_exe()?)
            .arg(ECHO)
            .arg(dir)
            .stdin(Stdio::null())
            .spawn()?;
        // Its first message says where it is.
        wait_for_mail(endpoint, Patience::PARK, &[]);
        let hello = endpoint.receive(Slot(0)).ok_or("no greeting")?;
        println!("{:<30} {:>8} {:>8}", "round trip of a message", "min ns", "median");
        let spinning = Patience { spins: 100_000, yields: 0 };
        for (name, patience, turns) in
            [("spinning", spinning, ROUND_TRIPS), ("sleeping", Patience::PARK, ROUND_TRIPS / 10)]
        {
            let spins = u64::from(patience.spins);
            let mut nanos: Vec<f64> = (0..turns)
                .map(|_| round_trip(endpoint, hello.from, patience, [spins; 4]))
                .collect();
            let (min, median) = summary(&mut nanos);
            println!("{name:<30} {min:>8.0} {median:>8.0}");
        }
        let to = Mailbox { endpoint: hello.from, slot: Slot(0) };
        block_on(endpoint, endpoint.send(to, [u64::MAX; 4]))?;
        peer.wait()?;
        Ok(())
    }

    /// From the kill of a process to its end being certain.
    fn deaths(endpoint: &ShmEndpoint, dir: &Path) -> Result<(), Box<dyn Error>> {
        let mut takeovers = Vec::new();
        for _ in 0..ROUNDS {
            let mut peer = Command::new(std::env::current_exe()?).arg(ECHO).arg(dir).spawn()?;
            wait_for_mail(endpoint, Patience::PARK, &[]);
            let victim = endpoint.receive(Slot(0)).ok_or("no greeting")?.from;
            let killer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(5));
                let begun = Instant::now();
                (begun, peer.kill(), peer.wait())
            });
            let peers = [victim];
            let wait = Wait { peers: &peers, patience: Patience::PARK, ..Wait::default() };
            assert!(block_on(endpoint, endpoint.wait(wait)) == Woken::PeerGone(victim));
            let noticed = Instant::now();
            let (begun, killed, _) = killer.join().map_err(|_| "the killer failed")?;
            killed?;
            takeovers.push(noticed.duration_since(begun).as_secs_f64() * 1e6);
        }
        println!("{:<30} {:>8} {:>8}", "the end of a process", "min us", "median");
        let (min, median) = summary(&mut takeovers);
        println!("{:<30} {min:>8.0} {median:>8.0}", "killed");
        Ok(())
    }

    fn round_trip(e: &ShmEndpoint, peer: EndpointId, patience: Patience, words: [u64; 4]) -> f64 {
        let to = Mailbox { endpoint: peer, slot: Slot(0) };
        let begun = Instant::now();
        assert!(e.post(Verb::Send { to, message: words }) == Posted::Done(Ok(())));
        wait_for_mail(e, patience, &[peer]);
        assert!(e.receive(Slot(0)).is_some());
        begun.elapsed().as_secs_f64() * 1e9
    }

    fn wait_for_mail(endpoint: &ShmEndpoint, patience: Patience, peers: &[EndpointId]) {
        let wait = Wait { mail: Some(Slot(0)), peers, patience, ..Wait::default() };
        assert!(block_on(endpoint, endpoint.wait(wait)) == Woken::Mail);
    }

    /// The other side: answers every message with its like; its first word says how to wait.
    fn echo(dir: &Path) -> Result<(), Box<dyn Error>> {
        let region = Region::open(&options(dir))?;
        let endpoint = region.endpoint()?;
        let parent = region
            .peers()
            .into_iter()
            .find(|info| info.id != endpoint.id())
            .ok_or("nobody to answer")?;
        let to = Mailbox { endpoint: parent.id, slot: Slot(0) };
        block_on(&endpoint, endpoint.send(to, [0; 4]))?;
        let mut patience = Patience::PARK;
        loop {
            let wait = Wait { mail: Some(Slot(0)), peers: &[parent.id], ..Wait::default() };
            block_on(&endpoint, endpoint.wait(Wait { patience, ..wait }));
            let Some(envelope) = endpoint.receive(Slot(0)) else { continue };
            let message = envelope.message;
            if message[0] == u64::MAX {
                return Ok(());
            }
            patience = Patience { spins: message[0] as u32, yields: 0 };
            block_on(&endpoint, endpoint.send(to, message))?;
        }
    }
}
