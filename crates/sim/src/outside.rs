//! Packets on their way out of the world.

use farlock_fabric::Nanos;

use crate::core::Core;
use crate::packet::Packet;
use crate::queue::Event;

impl Core {
    /// Sends a packet on its way.
    pub(crate) fn send_outside(&mut self, packet: Packet) {
        if !self.seat(packet.from).is_acting(packet.from) {
            return;
        }
        let index = self.outside.put(packet);
        let way_ns = Nanos::from(self.nic.message_rtt_ns / 2) + self.lateness();
        self.push(self.now + way_ns, Event::Reach(index));
    }

    /// A packet arrives.
    pub(crate) fn reach(&mut self, index: u32) {
        let packet = *self.outside.packet(index);
        self.outside.free.push(index);
        let [first, second, third] = packet.words;
        self.history.note(self.now, packet.from.bits() ^ first ^ second << 32 ^ third << 56);
        if let Some(receiver) = &mut self.outside.receiver {
            receiver(&packet);
        }
    }
}
