//! What leaves the world: writes to something that is no part of the region.
//!
//! The fabric's promises end at its memory. A verb takes effect before its client releases, and
//! never once the client is known to be dead; a write to anything else, a disk or another service,
//! may arrive at any later time, whatever has become of its sender. That is what fencing tokens are
//! for.

use farlock_fabric::EndpointId;

/// A write to something outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Who sent it.
    pub from: EndpointId,
    /// What it says.
    pub words: [u64; 3],
}

/// Is shown every packet that arrives. It must not touch the world.
pub type Receiver = Box<dyn FnMut(&Packet)>;

/// The packets on their way, and who receives them.
#[derive(Default)]
pub(crate) struct Outside {
    pub(crate) packets: Vec<Packet>,
    /// Places of packets that have arrived.
    pub(crate) free: Vec<u32>,
    pub(crate) receiver: Option<Receiver>,
}

impl Outside {
    pub(crate) fn packet(&self, index: u32) -> &Packet {
        &self.packets[index as usize]
    }

    pub(crate) fn put(&mut self, packet: Packet) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.packets[index as usize] = packet;
                index
            }
            None => {
                self.packets.push(packet);
                (self.packets.len() - 1) as u32
            }
        }
    }
}
