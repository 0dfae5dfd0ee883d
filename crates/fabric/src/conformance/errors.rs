//! How faults and addresses read. These hold for every back end at once, which proves that a back
//! end's tests speak of the same things.

use super::Stage;
use crate::addr::Mailbox;
use crate::endpoint::Endpoint;
use crate::error::Fault;

const FAULTS: [Fault; 9] = [
    Fault::Lost,
    Fault::OutOfBounds,
    Fault::Misaligned,
    Fault::NoRight,
    Fault::Stale,
    Fault::Revoked,
    Fault::MailboxFull,
    Fault::PeerGone,
    Fault::Unsupported,
];

pub fn a_fault_is_a_sentence<S: Stage>(_: &mut S) {
    for fault in FAULTS {
        let sentence = fault.to_string();
        assert!(sentence.split(' ').count() >= 4, "{fault:?}: {sentence}");
        assert!(!sentence.contains(&format!("{fault:?}")), "{fault:?} has a text of its own");
        assert!(FAULTS.iter().all(|other| *other == fault || other.to_string() != sentence));
    }
}

pub fn only_a_lost_verb_is_unknown<S: Stage>(_: &mut S) {
    for fault in FAULTS {
        assert_eq!(fault.is_refusal(), fault != Fault::Lost, "{fault:?}");
    }
    assert_eq!(size_of::<Result<(), Fault>>(), 1, "an end fits in a register");
}

pub fn addresses_print_as_places<S: Stage>(stage: &mut S) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    let place = format!("{addr:?}");
    assert_eq!(place, format!("{}+{:#x}", addr.region().0, addr.offset()));
    let mailbox = Mailbox { endpoint: e.id(), slot: crate::addr::Slot(0) };
    assert_eq!(Mailbox::from_bits(mailbox.bits()), mailbox);
    assert!(format!("{mailbox:?}").starts_with(&format!("{:?}", e.id())));
}
