//! What is done for each frame of a client.

use crate::addr::{Addr, EndpointId, Slot};
use crate::connection::{Connection, Peer};
use crate::endpoint::{Endpoint, Posted, Publication};
use crate::error::{ConnectError, Fault, Garbled, chain};
use crate::home::home_id;
use crate::shm::serving::{Before, Lease, LeasedEndpoint, Owner};
use crate::tcp::client::{put_peer, take_home};
use crate::tcp::wire::{
    self, Fields, Framing, MAGIC, PATIENT, Patience, UNSIGNALLED, VERSION, call, put_end, reply,
    request, status_code, status_of, take_link, take_publication, take_watch,
};
use crate::verb::{CHAIN_MAX, Verb, WORDS_MAX, masked_cas64, masked_cas128};

use super::executor::{Executor, HangUp};
use super::guest::{Guest, Seat, Tethered, Waiting};
use super::held_back::Asked;
use super::limits::Closed;
use super::served::Served;

/// Whether the endpoint has this word in a record of its own.
fn check_publication(endpoint: &LeasedEndpoint, said: Publication) -> Result<(), HangUp> {
    let is_own = said.slot.0 < endpoint.slots() && said.word < crate::endpoint::RECORD_WORDS;
    if is_own { Ok(()) } else { Err(HangUp::Garbled) }
}

/// Whether the comparison of this verb, which the endpoint has just executed, has failed.
fn has_failed(verb: &Verb<'_>, endpoint: &LeasedEndpoint) -> bool {
    let old = endpoint.old();
    match verb {
        Verb::MaskedCas64 { op, .. } => masked_cas64(old as u64, op).is_none(),
        Verb::MaskedCas128 { op, .. } => masked_cas128(old, op).is_none(),
        _ => false,
    }
}

impl Executor {
    pub(super) fn handle(
        &mut self,
        number: usize,
        guest: &mut Guest,
        frame: &[u8],
    ) -> Result<(), HangUp> {
        let mut fields = Fields(frame);
        let kind = fields.u8()?;
        if kind == request::HELLO || kind == request::FIND {
            return self.greet(number, guest, fields, kind == request::HELLO);
        }
        if kind == request::TETHER {
            return self.tether(number, guest, fields);
        }
        if kind == request::RESUME {
            return self.greet_again(guest, fields);
        }
        let region = guest.region.ok_or(HangUp::Garbled)?;
        let lane = fields.u32()?;
        if self.held_back.has((number, lane)) {
            // What a lane posted before takes effect before.
            self.end_patience_of(number, guest, lane);
        }
        match kind {
            request::ATTACH => self.attach(number, guest, region, lane, fields),
            request::DETACH => {
                fields.end()?;
                self.detach(number, guest, lane);
                Ok(())
            }
            request::VERBS => self.execute(number, guest, region, lane, fields),
            request::PUBLISH => self.publish(guest, lane, fields),
            request::WAIT => self.begin_wait(number, guest, lane, fields),
            request::END_WAIT => self.forget_wait(number, guest, lane, fields),
            request::TOOK => self.took(number, guest, lane, fields),
            request::ASK => self.tell_lives(number, guest, lane, fields),
            request::CALL => self.call(number, guest, region, lane, fields),
            request::LANE => self.hear_of_a_lane(number, guest, lane, fields),
            request::LANES_END => self.hear_of_no_more_lanes(number, guest, fields),
            _ => Err(HangUp::Garbled),
        }
    }

    fn greet(
        &mut self,
        number: usize,
        guest: &mut Guest,
        mut fields: Fields<'_>,
        makes: bool,
    ) -> Result<(), HangUp> {
        let region = self.heed_greeting(guest, &mut fields, makes, |fields| fields.end())?;
        guest.region = Some(region);
        guest.lease.secret = draw_secret().map_err(HangUp::Declined)?;
        guest.lease.until = self.lease_from_now();
        self.welcome(number, region, guest);
        self.note_lease(guest);
        Ok(())
    }

    /// A client comes back whose connection broke.
    fn greet_again(&mut self, guest: &mut Guest, mut fields: Fields<'_>) -> Result<(), HangUp> {
        let mut secret = 0;
        let region = self.heed_greeting(guest, &mut fields, true, |mut fields| {
            secret = fields.u128()?;
            fields.end()
        })?;
        let unknown = || HangUp::Declined("it knows of no such client any more".to_owned());
        Err(HangUp::Resumes(self.away(region, secret).ok_or_else(unknown)?))
    }

    /// What all greetings begin with, and the rest. Returns the region, which is made where it is
    /// missing and the client wants that.
    fn heed_greeting<'f>(
        &mut self,
        guest: &mut Guest,
        fields: &mut Fields<'f>,
        makes: bool,
        rest: impl FnOnce(Fields<'f>) -> Result<(), Garbled>,
    ) -> Result<usize, HangUp> {
        let (magic, version) = (fields.u64()?, fields.u16()?);
        check_greeting(guest, magic, version)?;
        let (name, home, port) = (fields.text()?, fields.u128()?, fields.u16()?);
        rest(*fields)?;
        check_right(guest, name)?;
        // From another home, or another port than its own, it came by a tunnel, whose end is not
        // the client's, and which may stand for longer.
        guest.is_of_this_home = home != 0 && home == home_id();
        let is_itself = guest.is_of_this_home && guest.port() == Some(port);
        guest.lease.is_by_connection &= is_itself || self.limits.closed != Closed::Auto;
        self.served_by_name(name, makes).map_err(|error| match error {
            ConnectError::Absent { .. } if !makes => HangUp::Absent,
            error => HangUp::Declined(chain(&error)),
        })
    }

    fn hear_of_a_lane(
        &mut self,
        number: usize,
        guest: &mut Guest,
        lane: u32,
        mut fields: Fields<'_>,
    ) -> Result<(), HangUp> {
        let count = fields.u8()?;
        let next = (0..count).map(|_| fields.u64()).collect::<Result<Vec<_>, _>>()?;
        fields.end()?;
        self.go_on_with(number, guest, lane, next.into_iter());
        Ok(())
    }

    fn hear_of_no_more_lanes(
        &mut self,
        number: usize,
        guest: &mut Guest,
        fields: Fields<'_>,
    ) -> Result<(), HangUp> {
        fields.end()?;
        for lane in std::mem::take(&mut guest.unnamed) {
            self.detach(number, guest, lane);
        }
        if let Some(is_by_connection) = guest.comes_back.take() {
            guest.lease.is_by_connection = is_by_connection;
            self.note_lease(guest);
        }
        Ok(())
    }

    /// Every process that had a tether of this lane by the last server has this one, or is gone: if
    /// it stands.
    fn hear_of_a_tether(
        &mut self,
        number: usize,
        guest: &mut Guest,
        call_number: u32,
        mut fields: Fields<'_>,
    ) -> Result<(), HangUp> {
        let (lane, secret) = (fields.u32()?, fields.u128()?);
        fields.end()?;
        let tethered = Tethered { guest: number, serial: guest.serial, lane, secret };
        let stands = self.guests.iter().flatten().any(|other| other.tether == Some(tethered));
        if let Some(seat) = guest.seats.get_mut(&lane).filter(|_| stands) {
            seat.end_doubt();
        }
        Framing::new(&mut self.outs[number].bytes, reply::ANSWER).u32(call_number).end();
        self.touch(number);
        Ok(())
    }

    /// A connection that says nothing more: while it stands, the lane's endpoint lives.
    fn tether(
        &mut self,
        number: usize,
        guest: &mut Guest,
        mut fields: Fields<'_>,
    ) -> Result<(), HangUp> {
        let (magic, version, secret) = (fields.u64()?, fields.u16()?, fields.u128()?);
        fields.end()?;
        check_greeting(guest, magic, version)?;
        let unknown = || HangUp::Declined("it knows of no such tether".to_owned());
        let tethered = self.promised.remove(&secret).ok_or_else(unknown)?;
        let owner = self.guest_mut(tethered.guest);
        let owner = owner.filter(|owner| owner.serial == tethered.serial && !owner.is_away());
        let seat = owner.and_then(|owner| owner.seats.get_mut(&tethered.lane));
        seat.ok_or_else(unknown)?.add_tether();
        guest.tether = Some(tethered);
        Framing::new(&mut self.outs[number].bytes, reply::ANSWER).u32(0).end();
        self.touch(number);
        Ok(())
    }

    fn served_by_name(&mut self, name: &str, makes: bool) -> Result<usize, ConnectError> {
        let is_it = |served: &Served| !served.host.is_deleted() && served.name == name;
        if let Some(region) = self.served.iter().position(is_it) {
            return Ok(region);
        }
        let open = self.find.as_mut().filter(|_| !makes).unwrap_or(&mut self.open);
        self.served.push(Served::new(name, open(name)?)?);
        let region = self.served.len() - 1;
        self.adopt(region)?;
        Ok(region)
    }

    fn attach(
        &mut self,
        number: usize,
        guest: &mut Guest,
        region: usize,
        lane: u32,
        mut fields: Fields<'_>,
    ) -> Result<(), HangUp> {
        let (pid, started_ticks, home) = (fields.u32()?, fields.u64()?, take_home(&mut fields)?);
        let label = fields.text()?.to_owned();
        fields.end()?;
        let home = home.seen_at(|| guest.address());
        let owner = Owner { pid, started_ticks, label, home };
        let limit = self.limits.lanes;
        let attached = if guest.seats.contains_key(&lane) {
            return Err(HangUp::Garbled);
        } else if guest.seats.len() >= limit {
            Err(format!("a connection has at most {limit} lanes"))
        } else {
            let (secret, until) = (guest.lease.secret, guest.lease.until);
            let lease = Lease { secret, lane, was_tied: false, until };
            let endpoint = self.served[region].region.leased_endpoint(lease);
            endpoint.map_err(|error| chain(&error))
        };
        match attached {
            Ok(endpoint) => {
                endpoint.show_as(&owner);
                let id = endpoint.id();
                self.served[region].seat(id, Some((number, lane)));
                guest.seats.insert(lane, Seat::new(endpoint, false));
                self.tell_newcomers(region);
                let out = &mut self.outs[number].bytes;
                Framing::new(out, reply::ATTACHED).u32(lane).id(id).end();
            }
            Err(why) => {
                let out = &mut self.outs[number].bytes;
                Framing::new(out, reply::DECLINED).u32(lane).text(&why).end();
            }
        }
        self.touch(number);
        Ok(())
    }

    /// Whether a verb, or as many links, do nothing but read. Nothing of them is executed before
    /// all are understood.
    fn check_links(&mut self, mut fields: Fields<'_>, count: u8) -> Result<bool, HangUp> {
        if usize::from(count) > CHAIN_MAX {
            return Err(HangUp::Garbled);
        }
        let mut only_reads = true;
        for _ in 0..count.max(1) {
            let link = take_link(&mut fields, &mut self.data)?;
            only_reads &= matches!(link.verb, Verb::Read { .. });
        }
        fields.end()?;
        Ok(only_reads)
    }

    /// Executes a verb or chain, tells the lane what it must know by then, and how it ended: that
    /// only if it failed where it is unsignalled.
    fn execute(
        &mut self,
        number: usize,
        guest: &mut Guest,
        region: usize,
        lane: u32,
        mut fields: Fields<'_>,
    ) -> Result<(), HangUp> {
        let (ticket, asked_for) = (fields.u32()?, fields.u8()?);
        let (patience, otherwise) = match asked_for {
            PATIENT => (Some(Patience::take(&mut fields)?), take_publication(&mut fields)?),
            _ => (None, None),
        };
        let count = if asked_for < PATIENT { asked_for } else { 0 };
        let is_signalled = asked_for != UNSIGNALLED;
        let only_reads = self.check_links(fields, count)?;
        if let (Some(said), Some(seat)) = (otherwise, guest.seats.get(&lane)) {
            check_publication(&seat.endpoint, said)?;
        }
        let asked = Asked { lane, ticket, count, is_signalled, only_reads, otherwise };
        if let (Some(patience), Some(seat)) = (patience, guest.seats.get(&lane))
            && self.holds_back(number, seat, (asked, patience), region, fields)?
        {
            return Ok(());
        }
        self.execute_links(number, guest, region, asked, fields)?;
        self.go_on_with_held_back(number, guest);
        Ok(())
    }

    /// The same of what was understood.
    pub(super) fn execute_links(
        &mut self,
        number: usize,
        guest: &mut Guest,
        region: usize,
        asked: Asked,
        mut fields: Fields<'_>,
    ) -> Result<(), HangUp> {
        let Asked { lane, ticket, count, is_signalled, only_reads, otherwise } = asked;
        // A lane that has gone hears nothing.
        let Some(seat) = guest.seats.get(&lane) else { return Ok(()) };
        let endpoint = &seat.endpoint;
        // What only reads may be done twice.
        let before =
            if only_reads { Before::Nothing } else { endpoint.begin_verb(ticket, count > 0) };
        let is_new = before == Before::Nothing;
        if !is_new && self.answers_again(number, seat, ticket) {
            return Ok(());
        }
        let (mut data, mut bytes) =
            (std::mem::take(&mut self.data), std::mem::take(&mut self.answer));
        let mut answer = Framing::new(&mut bytes, reply::DONE);
        answer.u32(lane).u32(ticket).u8(count);
        let (mut ended, mut dead) = (Ok(()), None);
        for _ in 0..count.max(1) {
            let verb = take_link(&mut fields, &mut data)?.verb;
            dead = dead.or_else(|| self.served[region].dead_looked_at(&verb));
            ended = if is_new {
                let ended = self.execute_verb(endpoint, &verb, &mut answer);
                if let Some(said) =
                    otherwise.filter(|_| ended.is_ok() && has_failed(&verb, endpoint))
                {
                    self.publish_for(endpoint, said);
                }
                endpoint.end_verb(status_code(ended), endpoint.old());
                ended
            } else {
                put_end_again(before, asked, &verb, &mut answer)?
            }
        }
        answer.end();
        self.data = data;
        self.tell_effects(number, guest, region, dead);
        if is_signalled && let Some(seat) = guest.seats.get_mut(&lane) {
            seat.forward_mail(lane, &mut self.outs[number].bytes);
            if count > 0 && !only_reads && is_new {
                seat.has_answered(ticket, &bytes);
            }
        }
        if is_signalled || ended.is_err() {
            self.outs[number].bytes.extend_from_slice(&bytes);
        }
        bytes.clear();
        self.answer = bytes;
        self.touch(number);
        Ok(())
    }

    /// Answers a chain that has come again as before. `false`: how is not known.
    fn answers_again(&mut self, number: usize, seat: &Seat, ticket: u32) -> bool {
        let Some(answer) = seat.answer_to(ticket) else { return false };
        self.outs[number].bytes.extend_from_slice(answer);
        self.touch(number);
        true
    }

    /// Tells what all must know before a verb's end is known. A reader of an endpoint's record
    /// wants to know whether it lives, and perhaps nobody here has waited for its death.
    fn tell_effects(
        &mut self,
        number: usize,
        guest: &mut Guest,
        region: usize,
        dead: Option<EndpointId>,
    ) {
        self.tell_newcomers(region);
        if let Some(dead) = dead {
            self.tell_death(region, dead);
        }
        if !self.sent.is_empty() {
            self.forward_sent(region, number, guest);
        }
    }

    /// Executes one verb of a lane, and writes how it ended.
    fn execute_verb(
        &mut self,
        endpoint: &LeasedEndpoint,
        verb: &Verb<'_>,
        answer: &mut Framing<'_>,
    ) -> Result<(), Fault> {
        let Posted::Done(ended) = endpoint.post(*verb) else {
            unreachable!("a verb of shared memory completes within its post")
        };
        let mut words = [0; WORDS_MAX];
        let read = match *verb {
            Verb::Read { words: count, .. } if ended.is_ok() => {
                endpoint.copy_read(0, &mut words[..usize::from(count)])
            }
            _ => 0,
        };
        put_end(answer, verb, ended, endpoint.old(), &words[..read]);
        self.waits.heed(verb);
        self.held_back.heed(verb);
        if let Verb::Send { to, .. } = *verb {
            self.sent.push(to);
        }
        ended
    }

    fn publish(
        &mut self,
        guest: &mut Guest,
        lane: u32,
        mut fields: Fields<'_>,
    ) -> Result<(), HangUp> {
        let (slot, word, value) = (Slot(fields.u8()?), fields.u8()?.into(), fields.u64()?);
        fields.end()?;
        let Some(seat) = guest.seats.get(&lane) else { return Ok(()) };
        let said = Publication { slot, word, value };
        check_publication(&seat.endpoint, said)?;
        self.publish_for(&seat.endpoint, said);
        Ok(())
    }

    fn publish_for(&mut self, endpoint: &LeasedEndpoint, said: Publication) {
        let Publication { slot, word, value } = said;
        endpoint.publish(slot, word, value);
        let record = endpoint.record(endpoint.id().index, slot);
        self.waits.heed_words(record.plus(word as u64 * 8), 1);
    }

    fn begin_wait(
        &mut self,
        number: usize,
        guest: &mut Guest,
        lane: u32,
        mut fields: Fields<'_>,
    ) -> Result<(), HangUp> {
        let (key, watch) = (fields.u32()?, take_watch(&mut fields)?);
        fields.end()?;
        let region = guest.region;
        let Some(seat) = guest.seats.get_mut(&lane) else { return Ok(()) };
        if watch.mail.is_some_and(|slot| slot.0 >= seat.endpoint.slots()) {
            return Err(HangUp::Garbled);
        }
        if seat.waits.len() >= self.limits.waits {
            let limit = self.limits.waits;
            return Err(HangUp::Declined(format!("a lane has at most {limit} waits")));
        }
        if seat.forward_mail(lane, &mut self.outs[number].bytes) {
            self.touch(number);
        }
        let mut wait = Waiting::new(key, watch);
        match wait.poll(&seat.endpoint) {
            Some(woken) => self.end_wait(number, region, (lane, key), woken),
            None => {
                self.waits.begin((number, lane), &wait);
                seat.waits.push(wait);
                self.is_stale = true;
            }
        }
        Ok(())
    }

    fn forget_wait(
        &mut self,
        number: usize,
        guest: &mut Guest,
        lane: u32,
        mut fields: Fields<'_>,
    ) -> Result<(), HangUp> {
        let key = fields.u32()?;
        fields.end()?;
        let Some(seat) = guest.seats.get_mut(&lane) else { return Ok(()) };
        // It may have ended here meanwhile.
        if let Some(at) = seat.waits.iter().position(|wait| wait.key == key) {
            let mut wait = seat.waits.swap_remove(at);
            wait.end(&seat.endpoint);
            self.waits.end((number, lane), &wait, &seat.waits);
            self.is_stale = true;
        }
        Ok(())
    }

    fn took(
        &mut self,
        number: usize,
        guest: &mut Guest,
        lane: u32,
        mut fields: Fields<'_>,
    ) -> Result<(), HangUp> {
        let (slot, message) = (Slot(fields.u8()?), fields.u64()?);
        fields.end()?;
        let Some(seat) = guest.seats.get_mut(&lane) else { return Ok(()) };
        if !seat.took(slot, message) {
            return Err(HangUp::Garbled);
        }
        if seat.forward_mail(lane, &mut self.outs[number].bytes) {
            self.touch(number);
        }
        Ok(())
    }

    /// Tells which of these are dead, and what lies in the lane's mailboxes.
    fn tell_lives(
        &mut self,
        number: usize,
        guest: &mut Guest,
        lane: u32,
        mut fields: Fields<'_>,
    ) -> Result<(), HangUp> {
        let ids = fields.ids()?;
        fields.end()?;
        let region = guest.region.ok_or(HangUp::Garbled)?;
        let Some(seat) = guest.seats.get_mut(&lane) else { return Ok(()) };
        if seat.forward_mail(lane, &mut self.outs[number].bytes) {
            self.touch(number);
        }
        for id in ids {
            if !self.served[region].region.is_alive(id) {
                self.tell_death(region, id);
            }
        }
        self.tell_newcomers(region);
        self.touch(number);
        Ok(())
    }

    fn call(
        &mut self,
        number: usize,
        guest: &mut Guest,
        region: usize,
        call_number: u32,
        mut fields: Fields<'_>,
    ) -> Result<(), HangUp> {
        let until = self.lease_from_now();
        let host = &self.served[region].host;
        let out = &mut self.outs[number].bytes;
        let heap_length = |out: &mut Vec<u8>| {
            Framing::new(out, reply::ANSWER).u32(call_number).u64(host.heap().1).end();
        };
        // To the end, before anything of it takes effect.
        let (kind, argument) = match fields.u8()? {
            kind @ (call::HEAP | call::RENEW) => (kind, 0),
            kind @ (call::LENGTHEN | call::RESERVE) => (kind, fields.u64()?),
            kind @ call::PEERS => (kind, fields.u16()?.into()),
            kind @ call::TETHER => (kind, fields.u32()?.into()),
            call::TIED => return self.hear_of_a_tether(number, guest, call_number, fields),
            _ => return Err(Garbled("a call in it is unknown").into()),
        };
        let bytes = if kind == call::RESERVE { fields.u64()? } else { 0 };
        fields.end()?;
        match kind {
            call::RESERVE => match host.reserve(Addr::from_bits(argument), bytes) {
                Ok(()) => Framing::new(out, reply::ANSWER).u32(call_number).end(),
                Err(error) => decline(out, call_number, &error),
            },
            call::LENGTHEN => match host.lengthen(argument) {
                Ok(()) => heap_length(out),
                Err(error) => decline(out, call_number, &error),
            },
            call::PEERS => tell_peers(out, call_number, host.peers(), argument as u16),
            call::TETHER => {
                let (serial, lane) = (guest.serial, argument as u32);
                let own = self.promised.values().filter(|promised| promised.serial == serial);
                if own.count() >= self.limits.lanes {
                    return Err(HangUp::Declined("it asks for too many tethers".to_owned()));
                }
                let secret = draw_secret().map_err(HangUp::Declined)?;
                self.promised.insert(secret, Tethered { guest: number, serial, lane, secret });
                Framing::new(out, reply::ANSWER).u32(call_number).u128(secret).end();
            }
            call::RENEW => {
                guest.renew(until);
                Framing::new(out, reply::ANSWER).u32(call_number).end();
            }
            _ => heap_length(out),
        }
        self.touch(number);
        Ok(())
    }
}

/// Tells of those of the lowest indices beyond one.
fn tell_peers(out: &mut Vec<u8>, call_number: u32, mut peers: Vec<Peer>, after: u16) {
    peers.retain(|peer| peer.id.index > after);
    peers.truncate(wire::TOLD_MAX);
    let mut frame = Framing::new(out, reply::ANSWER);
    frame.u32(call_number).u16(peers.len() as u16);
    peers.iter().for_each(|peer| put_peer(&mut frame, peer));
    frame.end();
}

fn decline(out: &mut Vec<u8>, call_number: u32, error: &ConnectError) {
    Framing::new(out, reply::DECLINED).u32(call_number).text(&chain(error)).end();
}

/// Whether this may be the first frame of a connection.
fn check_greeting(guest: &Guest, magic: u64, version: u16) -> Result<(), HangUp> {
    if magic != MAGIC || guest.is_settled() {
        return Err(HangUp::Garbled);
    }
    if version != VERSION {
        return Err(HangUp::Declined(format!(
            "it speaks version {VERSION} of the protocol, not {version}"
        )));
    }
    Ok(())
}

/// Whether the client may use the region of this name.
fn check_right(guest: &Guest, name: &str) -> Result<(), HangUp> {
    if guest.stream.as_ref().is_some_and(|stream| stream.may_use(name)) {
        return Ok(());
    }
    Err(HangUp::Declined(format!("this certificate may not use the region {name:?}")))
}

/// What cannot be guessed.
fn draw_secret() -> Result<u128, String> {
    let mut bytes = [0; 16];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(16) => Ok(u128::from_ne_bytes(bytes)),
        Ok(_) => Err("its system has no random numbers".to_owned()),
        Err(error) => Err(format!("its system has no random numbers: {error}")),
    }
}

/// Writes how a verb ended that has come again, as far as the region knows.
fn put_end_again(
    before: Before,
    asked: Asked,
    verb: &Verb<'_>,
    answer: &mut Framing<'_>,
) -> Result<Result<(), Fault>, HangUp> {
    let (ended, old) = match before {
        Before::Ended(code, old) if asked.count == 0 => (status_of(code)?, old),
        Before::Past if !asked.is_signalled => return Ok(Ok(())),
        _ => (Err(Fault::Lost), 0),
    };
    put_end(answer, verb, ended, old, &[]);
    Ok(ended)
}
