//! Room on other cores for pushes with dropOldest, whose own partition could not give it.
//!
//! The home serves those that ask one at a time, in the order in which they asked: it has the oldest messages of all parts dropped,
//! the oldest first, until the push fits, and charges the push itself. Invariants: what was dropped for pushes that ask stays charged
//! to the queue as the directory's `spare`, so that no other push takes it, and serves the first of them, so that none of them keeps
//! it from another; when none is left, the spare is given back.

use crate::command::Refusal;
use crate::home::OpKind;
use crate::letter::{Deferred, Letter, Order, RoomOutcome};
use crate::link::Link;
use crate::name::QueueName;
use crate::options::Policy;
use crate::outbox::{Outbox, Ticket};
use crate::placement::ShardIndex;
use crate::push::{Room, max_room, missing};
use crate::queue::QueueIndex;
use crate::shard::Shard;
use crate::time::Time;

/// How often in a row the parts are asked for their oldest message and have none, though the queue has no room: pops and acks came
/// in between each time.
const ROUNDS_MAX: u32 = 16;

/// A push that asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoomRequest {
    pub(crate) asker: ShardIndex,
    pub(crate) ticket: Ticket,
    pub(crate) generation: u64,
    pub(crate) wanted: Room,
}

/// What the home knows of the parts while it serves the first that asks.
#[derive(Debug, Default)]
pub(crate) struct Eviction {
    /// When the oldest message of each member was pushed.
    heads: Vec<(ShardIndex, Option<Time>)>,
    /// Times that the members were asked for that since the last of them had one.
    rounds: u32,
}

impl Eviction {
    /// A member said when its oldest message was pushed.
    pub(crate) fn note_head(&mut self, member: ShardIndex, head: Option<Time>) {
        self.heads.retain(|(other, _)| *other != member);
        self.heads.push((member, head));
    }
}

/// What comes next for a push that asks.
enum Next {
    Answer(RoomOutcome),
    /// So much is missing.
    Evict(Room),
}

fn sum(one: Room, other: Room) -> Room {
    (one.0 + other.0, one.1 + other.1)
}

impl Shard {
    /// A push asks; `made` is what its own partition gave.
    pub(crate) fn room_asked(&mut self, now: Time, name: &QueueName, request: RoomRequest, made: Room, out: &mut impl Outbox) {
        let found = self.queues.find(name.tenant, &name.name).filter(|index| self.queues.get(*index).link.directory().is_some());
        let Some(index) = found else { return self.answer_room(now, request, RoomOutcome::Void, out) };
        let link = &mut self.queues.get_mut(index).link;
        if link.holds_back() {
            let RoomRequest { asker, ticket, generation, wanted } = request;
            let letter = Letter::MakeRoom { queue: name.clone(), generation, ticket, wanted, made };
            return link.defer(Deferred::Letter(asker, letter));
        }
        let Some(directory) = link.directory_mut() else { return };
        directory.spare = sum(directory.spare, made);
        directory.room_requests.push_back(request);
        if directory.room_requests.len() == 1 {
            self.make_room(now, index, Eviction::default(), out);
        }
    }

    fn answer_room(&mut self, now: Time, request: RoomRequest, outcome: RoomOutcome, out: &mut impl Outbox) {
        let RoomRequest { asker, ticket, .. } = request;
        self.deliver_letter(now, asker, Letter::RoomMade { ticket, outcome }, out);
    }

    /// Room was made by a part.
    pub(crate) fn note_room(&mut self, index: QueueIndex, made: Room) {
        if let Some(directory) = self.queues.get_mut(index).link.directory_mut() {
            directory.spare = sum(directory.spare, made);
        }
    }

    /// Serves those that ask, until members have to be asked or none is left.
    pub(crate) fn make_room(&mut self, now: Time, index: QueueIndex, mut eviction: Eviction, out: &mut impl Outbox) {
        loop {
            let directory = self.queues.get(index).link.directory();
            let Some(request) = directory.and_then(|directory| directory.room_requests.front()).copied() else { break };
            let outcome = match self.serve_request(index, request) {
                Next::Answer(outcome) => outcome,
                Next::Evict(lacks) => match self.evict_oldest(now, index, eviction, lacks, out) {
                    Ok(known) => {
                        eviction = known;
                        continue;
                    }
                    Err(None) => return,
                    Err(Some(refusal)) => RoomOutcome::Refused(refusal),
                },
            };
            self.answer_room(now, request, outcome, out);
            // It was first until now: had it asked again meanwhile, it would have been served twice.
            if let Some(directory) = self.queues.get_mut(index).link.directory_mut() {
                directory.room_requests.pop_front();
            }
            eviction = Eviction::default();
        }
        let queue = self.queues.get_mut(index);
        if let Some(directory) = queue.link.directory_mut() {
            let (messages, bytes) = std::mem::take(&mut directory.spare);
            queue.counters.release(messages, bytes);
        }
    }

    /// Charges a push if it fits.
    fn serve_request(&mut self, index: QueueIndex, request: RoomRequest) -> Next {
        let RoomRequest { generation, wanted, .. } = request;
        let queue = self.queues.get_mut(index);
        let max = max_room(&queue.options);
        let Link::Home(directory) = &mut queue.link else { unreachable!("it is asked of a home") };
        if !queue.exists || queue.generation != generation {
            return Next::Answer(RoomOutcome::Void);
        }
        let spare = directory.spare;
        let own = (spare.0.min(wanted.0), spare.1.min(wanted.1));
        let can_fit = wanted.0 <= max.0 && wanted.1 <= max.1;
        if can_fit && queue.counters.exchange(own, wanted, max) {
            directory.spare = (spare.0 - own.0, spare.1 - own.1);
            return Next::Answer(RoomOutcome::Admitted);
        }
        if !can_fit || queue.options.policy == Policy::Reject {
            return Next::Answer(RoomOutcome::Refused(Refusal::QueueFull { can_fit }));
        }
        Next::Evict(missing(&queue.counters, wanted, spare, &queue.options))
    }

    /// Drops the oldest, down to the next oldest of another part. Ok: go on; None: members were asked, who will say when to go on.
    fn evict_oldest(
        &mut self,
        now: Time,
        index: QueueIndex,
        mut eviction: Eviction,
        lacks: Room,
        out: &mut impl Outbox,
    ) -> Result<Eviction, Option<Refusal>> {
        let own = self.oldest_at(index);
        let oldest_member = eviction.heads.iter().filter_map(|(member, head)| head.map(|at| (at, *member))).min();
        if eviction.rounds == 0 || (own.is_none() && oldest_member.is_none()) {
            if eviction.rounds > ROUNDS_MAX {
                return Err(Some(Refusal::QueueFull { can_fit: true }));
            }
            let asked = Eviction { heads: Vec::new(), rounds: eviction.rounds + 1 };
            self.begin_op(now, index, OpKind::Evict(asked), Order::OldestHead, out);
            return Err(None);
        }
        eviction.rounds = 1;
        match (own, oldest_member) {
            (own, Some((at, member))) if own.is_none_or(|own| at < own) => {
                let others = eviction.heads.iter().filter(|(other, _)| *other != member).filter_map(|(_, head)| *head);
                let until = others.chain(own).min().unwrap_or(Time::NEVER);
                self.begin_op_with(now, index, OpKind::Evict(eviction), Order::Evict { room: lacks, until }, &[member], out);
                Err(None)
            }
            (_, next) => {
                let made = self.evict_until(now, index, lacks, next.map_or(Time::NEVER, |(at, _)| at));
                self.note_room(index, made);
                Ok(eviction)
            }
        }
    }
}
