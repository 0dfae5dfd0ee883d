//! What a timeline calls things: words by their fields, records by whose they are, messages by what
//! they say, deaths and losses by what becomes of the verb.

use std::fmt::Write as _;

use farlock_fabric::endpoint::RECORD_WORDS;
use farlock_fabric::word::Field;
use farlock_fabric::{EndpointId, Mailbox};
use farlock_locks::slot::{self, Phase, SlotWord};
use farlock_locks::{Mode, record::queue::Note};
use farlock_sim::check::Access;
use farlock_sim::{Effect, Fate, Kind, Outcome};

use crate::layout::Layout;

/// Fields that name a client: the last in line, by its mailbox, and the holder, by its index.
const TAIL: &str = "tail";
const HOLDER: &str = "holder";
/// Larger values are shown in hexadecimal.
const DECIMAL_MAX: u64 = 9_999;

/// What is known of a run's words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Words {
    /// The fields of the lock's word.
    pub fields: &'static [Field],
    /// Slots of each endpoint.
    pub slots: u8,
}

impl Words {
    /// A verb that took effect; `name` says who sits where.
    pub fn effect(self, effect: &Effect, layout: Layout, name: impl Fn(u16) -> String) -> String {
        let mut line = format!("{:<14}", effect.kind.name());
        let _ = match (effect.kind, layout.place(effect.addr)) {
            (Kind::Send, _) => write!(line, "{}", message(effect, &name)),
            (_, Some(place @ (_, 0 | 8))) if !self.fields.is_empty() => {
                write!(line, "{}  {}", layout.name(place), self.of_word(effect, place.1, &name))
            }
            (_, Some(place)) => write!(line, "{}  {}", layout.name(place), change(effect)),
            (_, None) => write!(line, "{}", self.of_record(effect, layout, &name)),
        };
        line
    }

    /// A lock's word, or the half of it that is this many bytes behind its beginning.
    fn of_word(self, effect: &Effect, offset: u64, name: impl Fn(u16) -> String) -> String {
        let is_whole = matches!(effect.kind, Kind::MaskedCas128 | Kind::MaskedFaa128);
        let first = offset as u32 * 8;
        let beyond = if is_whole { 128 } else { first + 64 };
        let mut shown = Vec::new();
        for field in self.fields.iter().filter(|f| f.shift >= first && f.shift + f.bits <= beyond) {
            let value = |word: u128| field.of(word << first);
            let say = |value: u64| match field.name {
                TAIL => name(Mailbox::from_bits(value).endpoint.index),
                HOLDER => name(EndpointId::from_bits(value).index),
                _ => number(value),
            };
            let (old, new) = (value(effect.old), value(effect.new));
            if old != new {
                shown.push(format!("{} {} -> {}", field.name, say(old), say(new)));
            } else if old != 0 {
                shown.push(format!("{} {}", field.name, say(old)));
            }
        }
        if shown.is_empty() { "all zero".to_owned() } else { shown.join(", ") }
    }

    /// A word of a slot's record.
    fn of_record(self, effect: &Effect, layout: Layout, name: impl Fn(u16) -> String) -> String {
        let bytes = RECORD_WORDS as u64 * 8;
        let (record, word) = (effect.addr.offset() / bytes, effect.addr.offset() % bytes / 8);
        let slots = u64::from(self.slots.max(1));
        let (index, slot) = ((record / slots) as u16, record % slots);
        let whose = match slots {
            1 => format!("{}'s record", name(index)),
            _ => format!("{}'s record {slot}", name(index)),
        };
        let value = effect.new as u64;
        match word as usize {
            slot::STATE => format!("{whose}: {}", state(SlotWord(value))),
            slot::LOCK => {
                let place = layout.place(slot::lock_of(value));
                let lock = place.map_or_else(|| "no lock".to_owned(), |place| layout.name(place));
                format!("{whose}: at {lock}")
            }
            slot::TOKEN => format!("{whose}: token {value}"),
            other => format!("{whose}: word {other} {}", number(value)),
        }
    }
}

/// How a client is let in.
pub fn access(access: Access) -> &'static str {
    match access {
        Access::Shared => "shared",
        Access::Update => "to update",
        Access::Exclusive => "exclusive",
    }
}

/// How a client is let in, and with which token.
pub fn grant(how: Access, token: Option<u64>) -> String {
    let token = token.map_or_else(|| "no token".to_owned(), |token| format!("token {token}"));
    format!("{}, {token}", access(how))
}

/// What befell an endpoint.
pub fn fate(fate: Fate) -> String {
    let becomes = |outcome| match outcome {
        Outcome::Executed => "takes effect",
        Outcome::Late => "takes effect late",
        Outcome::Never => "never takes effect",
    };
    match fate {
        Fate::Dies => "dies".to_owned(),
        Fate::Strands(outcome) => format!("its verb on the way {}", becomes(outcome)),
        Fate::IsKnownDead => "is known to be dead".to_owned(),
        Fate::Loses(outcome) => {
            format!("will not learn of its next verb, which {}", becomes(outcome))
        }
    }
}

fn message(effect: &Effect, name: impl Fn(u16) -> String) -> String {
    let to = name(Mailbox::from_bits(effect.addr.bits()).endpoint.index);
    match Note::decode(&[effect.old as u64, 0, 0, 0]) {
        Some(note) => format!("to {to}: {:?}", note.kind),
        None => format!("to {to}: {}", number(effect.old as u64)),
    }
}

fn state(word: SlotWord) -> String {
    let Some(phase) = Phase::from_bits(word.phase()) else { return number(word.0) };
    let mode = if word.mode() == Mode::Shared as u64 { "shared" } else { "exclusive" };
    let (generation, ticket) = (word.generation(), word.ticket());
    match phase {
        Phase::Idle => "idle".to_owned(),
        _ => format!("{phase:?}, {mode}, generation {generation}, ticket {ticket}").to_lowercase(),
    }
}

fn change(effect: &Effect) -> String {
    match effect.old == effect.new {
        true => number(effect.old as u64),
        false => format!("{} -> {}", number(effect.old as u64), number(effect.new as u64)),
    }
}

fn number(value: u64) -> String {
    if value > DECIMAL_MAX { format!("{value:#x}") } else { value.to_string() }
}
