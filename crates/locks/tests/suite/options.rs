//! What a spec may say of a lock, and what it may not.

use farlock_locks::registry::{self, SpecError, Visitor};
use farlock_locks::{Lock, TokenSource};
use farlock_sim::SimEndpoint;

/// An owner of memory, which asks how much a lock takes, or has a table for locks of any kind.
struct Owner {
    asks: bool,
}

impl Visitor<SimEndpoint> for Owner {
    type Output = u64;

    fn asks_for_size(&self) -> bool {
        self.asks
    }

    fn visit<L: Lock<SimEndpoint>>(self, lock: L) -> u64 {
        lock.bytes()
    }
}

/// A word of the lock near its wrap, which shows the options that its counts depend on.
fn near_wrap(spec: &str) -> Result<u128, SpecError> {
    Ok(registry::kind(spec)?.near_wrap(1))
}

#[test]
fn what_no_lock_can_do_is_refused() {
    for spec in [
        "shiftlock:n=0",
        "shiftlock:poll=0",
        "shiftlock:bypass=256",
        "shiftlock:bypass=1:newcomer-yields=256",
        "shiftlock:bypass=1:lease=10000000",
        "shiftlock:max=3",
        "dslr:omega=0",
        "dslr:fixed=0",
        "dslr:lease=9999",
        "dslr:slots=0",
        "dslr:slots=2",
        "dslr:slots-max=1025",
        "dslr-64:max=1",
        "dslr-64:max=32769",
        "dslr-64:slots=1",
        "dslr-64:slots-max=2",
        "dslr-64:lease=9999",
        "dslr-64:lease=10000:slots=2",
        "mcs:spins=many",
        "mcs:n=1",
        "cas:n=1",
        "nothing",
    ] {
        assert!(near_wrap(spec).is_err(), "{spec}");
    }
}

#[test]
fn the_least_and_the_most_are_taken() {
    for spec in [
        "shiftlock:n=1:poll=1:bypass=255:newcomer-yields=255",
        "shiftlock:n=65535",
        "dslr:omega=1:fixed=1",
        "dslr:lease=10000:slots-max=1024:slots=1024",
        "dslr-64:lease=10000:slots-max=1024:slots=1024:max=2",
        "mcs:spins=0:yields=0",
        "citron:leaf=1:k=1:exact=no:refine=no:m=1:tokens=no:back=0:outrun=0:call=0:shelf=1:poll=1",
        "citron-rw:leaf=64:k=5:exact=yes:refine=yes:tokens=yes:back=255:outrun=255:call=255",
    ] {
        assert!(near_wrap(spec).is_ok(), "{spec}");
    }
    // One ticket of each kind less than there may be, taken and given back.
    for (spec, tickets) in [("dslr-64:max=2", 1), ("dslr-64:max=32768", 32_767)] {
        assert_eq!(near_wrap(spec), Ok(tickets * 0x0001_0001_0001_0001), "{spec}");
    }
}

/// What a lock shows near the wrap of its counts is what is explored there: nothing for locks that
/// count nothing. Judges know the count of which tokens are made by its name.
#[test]
fn a_lock_that_counts_can_be_put_before_the_wrap_of_its_counts() {
    struct HasTokens;

    impl Visitor<SimEndpoint> for HasTokens {
        type Output = bool;

        fn visit<L: Lock<SimEndpoint>>(self, _: L) -> bool {
            L::TOKENS == TokenSource::Word
        }
    }

    for info in registry::RECORD_LOCKS {
        let has_tokens = registry::visit(info.name, HasTokens);
        let kind = registry::kind(info.name).expect("it is registered");
        let counts = kind.fields().iter().any(|field| field.name == "count");
        if has_tokens == Ok(true) {
            let at = |steps| kind.near_wrap(steps);
            assert!(counts && at(1) != 0 && at(1) != at(2), "{}", info.name);
        }
    }
}

#[test]
fn what_takes_more_than_a_place_in_a_table_has_memory_of_its_own_or_none() {
    let bytes = |spec, asks| registry::visit(spec, Owner { asks });
    for (spec, own) in [
        ("citron:levels=5", 64 + 8 * 341),
        ("citron:levels=12", 64 + 8 * 5_592_405),
        ("citron-rw:levels=5", 64 + 16 * 341),
        ("segments:n=65", 16 * 65),
        ("segments:n=268435456", 16 << 28),
        // The head, and an entry of each of eight slots.
        ("far-list:clients=1024", 16 * (1 + 8 * 1024)),
    ] {
        assert_eq!(bytes(spec, true), Ok(own), "{spec}");
        assert!(bytes(spec, false).is_err(), "{spec}");
    }
    for spec in ["citron:levels=4", "segments:n=64", "cas"] {
        assert_eq!(bytes(spec, true), bytes(spec, false), "{spec}");
        assert!(bytes(spec, false).is_ok_and(|bytes| bytes <= registry::bytes_max()), "{spec}");
    }
}

/// One that said nothing would not be judged across its wrap.
#[test]
fn locks_that_count_say_what_their_word_is_near_its_wrap() {
    for spec in [
        "mcs",
        "shiftlock",
        "shiftlock:lease=10000000",
        "dslr",
        "dslr-64",
        "dslr-64:lease=10000",
        "ncosed",
        "claim",
        "declock",
        "segments",
        "citron",
        "citron-rw",
    ] {
        let (word, sooner) = (near_wrap(spec), registry::kind(spec).map(|kind| kind.near_wrap(0)));
        assert_ne!(word, sooner, "{spec}");
        assert!(word.is_ok_and(|word| word != 0), "{spec}");
    }
    for (spec, offsets) in
        [("citron", vec![64, 72]), ("citron-rw", vec![64, 72]), ("citron:levels=2", vec![64])]
    {
        let behind = registry::kind(spec).map(|kind| kind.near_wrap_behind(1));
        let behind = behind.expect("it is a lock");
        assert!(behind.iter().all(|&(_, word)| word != 0), "{spec}");
        assert_eq!(behind.into_iter().map(|(offset, _)| offset).collect::<Vec<_>>(), offsets);
    }
}

#[test]
fn locks_that_are_had_in_parts_say_how_many_and_which_words_they_have() {
    let units = |spec| registry::kind(spec).map(|kind| kind.units());
    for (spec, parts) in [("mcs", None), ("claim", None), ("citron", Some(1024))] {
        assert_eq!(units(spec), Ok(parts), "{spec}");
    }
    let citron = registry::kind("citron").expect("it is a lock").fields_at();
    let names = |offset| citron(offset).iter().map(|field| field.name).collect::<Vec<_>>();
    assert_eq!((names(0).len(), names(56).len()), (2, 2), "in front is the count");
    assert_eq!((names(64).len(), names(72)), (8, names(64)), "the root and its first child");
}

/// Judges leave a hold alone for so long, and no longer.
#[test]
fn locks_with_leases_promise_how_long_one_holds() {
    for (spec, lease_ns) in [
        ("dslr", None),
        ("dslr:lease=4000000", Some(4_000_000)),
        ("dslr:lease=4000000:slots-max=4:slots=3", Some(12_000_000)),
        ("dslr-64:lease=4000000", Some(4_000_000)),
        ("shiftlock:lease=4000000", Some(4_000_000)),
        ("drtm:lease=4000000", Some(4_000_000)),
    ] {
        let promises = registry::promises(spec).expect("a lock of the registry");
        assert_eq!(promises.lease_ns, lease_ns, "{spec}");
    }
}

/// Explorations begin there, so that counts come to their ends within a few acquisitions.
#[test]
fn counts_begin_so_many_steps_before_their_ends() {
    for spec in ["dslr", "dslr-64", "ncosed", "claim"] {
        let kind = registry::kind(spec).unwrap();
        let words = [1, 2, 3].map(|steps| kind.near_wrap(steps));
        assert!(words.iter().all(|word| *word != 0), "{spec}: {words:x?}");
        assert!(words[0] != words[1] && words[1] != words[2], "{spec}: {words:x?}");
    }
    for spec in ["citron:leaf=1", "citron-rw:leaf=1"] {
        let kind = registry::kind(spec).unwrap();
        let [one, two] = [1, 2].map(|steps| kind.near_wrap_behind(steps));
        assert!(!one.is_empty() && one.len() == two.len(), "{spec}: {one:x?}, {two:x?}");
        for ((place, word), (same, other)) in one.into_iter().zip(two) {
            assert!(place == same && word != other, "{spec}: {place}, {word:x}, {other:x}");
            // What lies there is a node, not the count before the tree.
            assert_ne!(kind.fields_at()(place), kind.fields_at()(0), "{spec}");
        }
    }
}

#[test]
fn a_lock_of_one_word_has_no_units() {
    for (spec, units) in [("mcs", None), ("claim", None), ("citron:leaf=1:levels=3", Some(16))] {
        assert_eq!(registry::kind(spec).unwrap().units(), units, "{spec}");
    }
}
