//! How long clients live: leases, connections that break, and clients that come back.
//!
//! A client whose connection is over is away: its lease or its tethers keep its endpoints, until it
//! comes back by its secret, or time is up, or its process, if it is one of this host, is seen to
//! end. When the server ends it leaves all endpoints as they are, and the next one finds their
//! clients away.

use rustix::event::epoll;

use super::executor::Executor;
use super::guest::{Guest, Out, Seat, Tethered};
use super::limits::Closed;
use super::served::Served;
use crate::addr::Slot;
use crate::endpoint::{Endpoint, Nanos};
use crate::error::ConnectError;
use crate::tcp::clock::boot_time;
use crate::tcp::wire::{Framing, reply};

impl Executor {
    /// When a lease ends that begins now.
    pub(super) fn lease_from_now(&self) -> Nanos {
        boot_time().saturating_add(self.lease())
    }

    fn lease(&self) -> Nanos {
        self.limits.granted().as_nanos() as Nanos
    }

    /// No lease is due before this time, nor before those that were known.
    pub(super) fn note_lease(&mut self, guest: &Guest) {
        self.due_at = self.due_at.min(guest.due_at(self.lease()).unwrap_or(Nanos::MAX));
    }

    /// The client's connection is over. Where that says that it is dead, those of its endpoints
    /// that have tethers live as long as these; otherwise all live until its lease ends.
    pub(super) fn leave(&mut self, number: usize, mut guest: Guest) {
        if let Some(tethered) = guest.tether {
            self.part(number, guest);
            return self.let_go(tethered);
        }
        let closed = self.limits.closed;
        guest.process = None;
        if guest.lease.is_by_connection && closed == Closed::Auto {
            self.watch_process(number, &mut guest);
        }
        guest.lease.is_by_connection = guest.is_ended_by_connection(closed);
        if guest.lease.is_by_connection {
            self.detach_if(number, &mut guest, |seat| !seat.is_tethered() && !seat.is_in_doubt());
            guest.seats.values().for_each(|seat| seat.endpoint.show_orphaned());
            // What the last server knew of tethers this one does not: their time must pass.
            guest.lease.is_by_connection = !guest.seats.values().any(Seat::is_in_doubt);
        }
        self.await_lease(number, guest);
    }

    /// The connection of a client ended that had nothing between. Where its process lives that may
    /// end later without coming back, and nothing else tells then that it has.
    fn watch_process(&self, number: usize, guest: &mut Guest) {
        guest.process = guest.living_process().filter(|process| {
            let data = epoll::EventData::new_u64(number as u64);
            // Once: it says so all the time. What cannot be watched says nothing, its lease ends.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
            epoll::add(&self.epoll, process, data, flags).is_ok()
        });
    }

    /// The process of a client that is away has ended.
    pub(super) fn leave_if_gone(&mut self, number: usize, guest: Guest) {
        match guest.process.is_some() && guest.is_ended_by_connection(self.limits.closed) {
            true => self.leave(number, guest),
            false => self.guests[number] = Some(guest),
        }
    }

    /// The connection of a client whose certificate is not taken any more is ended here. That says
    /// nothing of its life: so it has lost what it holds when its lease ends, as it knows by then.
    pub(super) fn expel(&mut self, number: usize, mut guest: Guest) {
        if guest.tether.is_some() {
            return self.leave(number, guest);
        }
        guest.lease.is_by_connection = false;
        self.await_lease(number, guest);
    }

    /// What is left of a client that is away lives until its lease ends.
    fn await_lease(&mut self, number: usize, mut guest: Guest) {
        if guest.seats.is_empty() {
            return self.part(number, guest);
        }
        self.disconnect(number, &mut guest);
        self.note_lease(&guest);
        self.guests[number] = Some(guest);
    }

    fn detach_if(&mut self, number: usize, guest: &mut Guest, is_over: impl Fn(&Seat) -> bool) {
        let lane = |(lane, seat): (&u32, &Seat)| is_over(seat).then_some(*lane);
        let lanes: Vec<u32> = guest.seats.iter().filter_map(lane).collect();
        lanes.into_iter().for_each(|lane| self.detach(number, guest, lane));
    }

    /// The client is away: nothing is sent to it, and nothing waits for it.
    fn disconnect(&mut self, number: usize, guest: &mut Guest) {
        for (lane, seat) in &mut guest.seats {
            self.waits.end_all((number, *lane), &seat.waits);
            seat.end_waits();
            if let Some(region) = guest.region {
                self.served[region].seat(seat.endpoint.id(), None);
            }
        }
        self.held_back.forget(|(held, _)| held == number);
        if let Some(region) = guest.region {
            self.served[region].guests.retain(|known| *known != number);
        }
        if let Some(stream) = guest.stream.take() {
            // It is deleted with its descriptor too, but for one that a child has.
            let _ = epoll::delete(&self.epoll, &stream);
            stream.end();
        }
        guest.input.clear();
        self.outs[number] = Out::default();
        self.paused.remove(&number);
        self.is_stale = true;
    }

    /// The last process that had this tether is gone.
    pub(super) fn let_go(&mut self, Tethered { guest: number, serial, lane, .. }: Tethered) {
        let Some(mut guest) = self.guests[number].take_if(|guest| guest.serial == serial) else {
            return;
        };
        let is_last = guest.seats.get_mut(&lane).is_some_and(Seat::lose_tether);
        let is_over = guest.lease.is_by_connection || guest.lease.until <= boot_time();
        if is_last && guest.is_away() && is_over {
            self.detach(number, &mut guest, lane);
            if guest.seats.is_empty() {
                return self.part(number, guest);
            }
        }
        self.guests[number] = Some(guest);
    }

    /// The client is gone, or is to go: its endpoints are dead.
    pub(super) fn part(&mut self, number: usize, mut guest: Guest) {
        let lanes: Vec<u32> = guest.seats.keys().copied().collect();
        lanes.into_iter().for_each(|lane| self.detach(number, &mut guest, lane));
        self.disconnect(number, &mut guest);
        self.promised.retain(|_, tethered| tethered.serial != guest.serial);
        self.vacate(number);
        // Numbers of regions are kept, so only the last ones go.
        while let Some(served) = self.served.last()
            && served.is_gone
            && self.guests.iter().flatten().all(|guest| guest.region != Some(self.served.len() - 1))
        {
            self.served.pop();
        }
    }

    fn vacate(&mut self, number: usize) {
        self.outs[number] = Out::default();
        self.touched.retain(|touched| *touched != number);
        self.vacant.push(number);
    }

    /// Ends the leases of clients that were not heard of. Those of clients that their connections
    /// keep go on.
    pub(super) fn end_leases(&mut self) {
        let (now, lease) = (boot_time(), self.lease());
        if now < self.due_at {
            return;
        }
        for number in 0..self.guests.len() {
            let is_due = |guest: &mut Guest| guest.due_at(lease).is_some_and(|at| at <= now);
            let Some(mut guest) = self.guests[number].take_if(is_due) else { continue };
            if guest.is_kept() && guest.is_seen_to_be_gone() {
                self.leave(number, guest);
                continue;
            }
            if guest.is_kept() {
                // It may be stopped, and is not to be dead as soon as this server is.
                guest.renew(now.saturating_add(lease));
                self.guests[number] = Some(guest);
                continue;
            }
            // While its connection seems to stand its host is silent, and tethers are silent too.
            if guest.is_away() {
                self.detach_if(number, &mut guest, |seat| !seat.is_tethered());
            }
            if !guest.is_away() || guest.seats.is_empty() {
                self.part(number, guest);
            } else {
                guest.lease.is_by_connection = true;
                self.guests[number] = Some(guest);
            }
        }
        let due = self.guests.iter().flatten().filter_map(|guest| guest.due_at(lease));
        self.due_at = due.min().unwrap_or(Nanos::MAX);
    }

    // Those that come back.

    /// Takes over what the last server of a region left there.
    pub(super) fn adopt(&mut self, region: usize) -> Result<(), ConnectError> {
        for (endpoint, lease) in self.served[region].region.adopt()? {
            let known = self.away(region, lease.secret);
            let number = known.unwrap_or_else(|| {
                let number = self.number();
                let mut guest = self.new_guest(None, false);
                guest.region = Some(region);
                guest.lease.secret = lease.secret;
                guest.lease.is_by_connection = false;
                self.guests[number] = Some(guest);
                number
            });
            let guest = self.guests[number].as_mut().expect("a guest that is away is there");
            guest.lease.until = guest.lease.until.max(lease.until);
            guest.seats.insert(lease.lane, Seat::new(endpoint, lease.was_tied));
            self.due_at = self.due_at.min(guest.lease.until);
        }
        Ok(())
    }

    /// The guest that its client alone can name by this secret.
    pub(super) fn away(&self, region: usize, secret: u128) -> Option<usize> {
        let is_it = |guest: &Guest| guest.region == Some(region) && guest.lease.secret == secret;
        let found = |guest: &Option<Guest>| guest.as_ref().is_some_and(is_it);
        if secret == 0 { None } else { self.guests.iter().position(found) }
    }

    /// The client of a guest that is away, or seems to be there, has come by another connection. It
    /// asks for a lease when it has heard that it is back: one that hears nothing may come again
    /// and again, and its lease ends.
    pub(super) fn resume(&mut self, number: usize, mut come: Guest, away: usize) {
        let Some(stream) = come.stream.take() else { return };
        let Some(mut guest) = self.guests[away].take() else { return };
        self.disconnect(away, &mut guest);
        self.vacate(number);
        let data = epoll::EventData::new_u64(away as u64);
        // What cannot be watched says nothing: its lease ends.
        let _ = epoll::modify(&self.epoll, &stream, data, epoll::EventFlags::IN);
        (guest.stream, guest.process) = (Some(stream), None);
        guest.lease.is_by_connection = come.lease.is_by_connection;
        guest.is_of_this_home = come.is_of_this_home;
        guest.unnamed = guest.seats.keys().copied().collect();
        let region = guest.region.expect("a guest that was away has a region");
        for (lane, seat) in &guest.seats {
            self.served[region].seat(seat.endpoint.id(), Some((away, *lane)));
        }
        self.welcome(away, region, &guest);
        guest.comes_back = Some(std::mem::take(&mut guest.lease.is_by_connection));
        self.note_lease(&guest);
        self.guests[away] = Some(guest);
    }

    /// Tells a guest what it must know first.
    pub(super) fn welcome(&mut self, number: usize, region: usize, guest: &Guest) {
        // Newcomers are told to the others first, so that all know the same.
        self.tell_newcomers(region);
        let length = self.lease();
        let served: &mut Served = &mut self.served[region];
        served.welcome(&mut self.outs[number].bytes, &guest.lease, length);
        served.guests.push(number);
        self.touch(number);
    }

    /// The client goes on with this lane, and takes these messages next.
    pub(super) fn go_on_with(
        &mut self,
        number: usize,
        guest: &mut Guest,
        lane: u32,
        next: impl Iterator<Item = u64>,
    ) {
        guest.unnamed.retain(|unnamed| *unnamed != lane);
        let out = &mut self.outs[number].bytes;
        match guest.seats.get_mut(&lane) {
            Some(seat) => {
                for (slot, next) in (0..seat.endpoint.slots()).map(Slot).zip(next) {
                    seat.resume(slot, next);
                }
                seat.forward_mail(lane, out);
            }
            None => Framing::new(out, reply::DEAD).u32(lane).end(),
        }
        self.touch(number);
    }
}
