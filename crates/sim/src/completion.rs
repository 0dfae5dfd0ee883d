//! Completions: in posting order per queue pair, kept until somebody asks.

use farlock_fabric::{EndpointId, Fault, LinkDone, Ticket};

use crate::core::Core;
use crate::flight::NONE;
use crate::history::{Kind, mix};
use crate::seat::Life;
use crate::world::Mode;

impl Core {
    /// A completion reaches its endpoint. It is seen once those before it are.
    #[inline]
    pub(crate) fn complete(&mut self, head: u32) {
        let flight = self.flights.at_mut(head);
        flight.chain.arrived = true;
        let (owner, pair, queued) =
            (flight.owner, usize::from(flight.chain.pair), flight.chain.queued);
        if !queued || self.seat(owner).id != owner {
            self.flights.remove(head);
            return;
        }
        loop {
            let oldest = self.seat(owner).pairs[pair].oldest;
            if oldest == NONE || !self.flights.at(oldest).chain.arrived {
                return;
            }
            let behind = self.flights.at(oldest).chain.behind;
            let queue = &mut self.seat_mut(owner).pairs[pair];
            queue.oldest = behind;
            if behind == NONE {
                queue.newest = NONE;
            }
            let flight = self.flights.at_mut(oldest);
            flight.chain.done = true;
            let task = flight.task;
            if flight.chain.abandoned {
                self.flights.remove(oldest);
            } else {
                self.wake(task);
            }
        }
    }

    /// What became of a chain; `None` while it is on its way. Asked by the task that is polled.
    #[inline]
    pub(crate) fn outcome(
        &mut self,
        owner: EndpointId,
        ticket: Ticket,
    ) -> Option<Result<(), Fault>> {
        let head = self.ticketed(owner, ticket)?;
        let flight = self.flights.at_mut(head);
        if !flight.chain.done {
            flight.task = self.current;
            return None;
        }
        let lost = flight.chain.lost;
        let explored = self.mode == Mode::Explored;
        let mut told = 0;
        let last = &mut self.seats[usize::from(owner.index)].last;
        last.links.clear();
        let (mut index, mut place, mut result) = (head, 0, Ok(()));
        while index != NONE {
            let link = self.flights.at_mut(index);
            let status = if lost { Err(Fault::Lost) } else { link.status };
            last.links.push(LinkDone { status, old: link.old });
            if last.data.len() == place {
                last.data.push(Vec::new());
            }
            last.data[place].clear();
            if status.is_ok() && !matches!(link.kind, Kind::Write | Kind::Send) {
                last.old = link.old;
            }
            let (next, old, read) = (link.next, link.old, link.kind == Kind::Read);
            if status.is_ok() && read {
                std::mem::swap(&mut last.data[place], &mut self.flights.cargo_mut(index).data);
            }
            if explored {
                told = mix(told, u64::from(status.is_err()));
                told = mix(told ^ old as u64, (old >> 64) as u64);
                told = last.data[place].iter().fold(told, |told, &word| mix(told, word));
            }
            result = result.and(status);
            index = next;
            place += 1;
        }
        self.flights.remove(head);
        self.told(told);
        Some(result)
    }

    /// Nobody will ask for this ticket.
    pub(crate) fn abandon(&mut self, owner: EndpointId, ticket: Ticket) {
        let Some(head) = self.ticketed(owner, ticket) else { return };
        if self.flights.at(head).chain.done {
            self.flights.remove(head);
        } else {
            self.flights.at_mut(head).chain.abandoned = true;
        }
    }

    /// The head of this ticket's chain. A crashed endpoint's tickets mean nothing any more.
    #[inline]
    fn ticketed(&self, owner: EndpointId, ticket: Ticket) -> Option<u32> {
        let seat = self.seat(owner);
        if seat.id != owner || seat.life != Life::Alive {
            return None;
        }
        let head = ticket.0 as u32;
        let generation = (ticket.0 >> 32) as u32;
        assert!(self.flights.at(head).generation == generation, "this ticket is spent");
        Some(head)
    }
}
