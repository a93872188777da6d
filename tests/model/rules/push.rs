//! Push: rate, tenant, queue bounds, node bytes, in this order; dropOldest; and dead groups that stand in the way.

use mayfly_shards::{Answer, DropCause, Policy, Refusal};

use super::Model;
use super::queue::{Group, Message, Queue, State};
use crate::facts::{Name, Pushed};

impl Model {
    pub(super) fn push(&mut self, ticket: u64, name: &Name, partition: &str, messages: &[Pushed]) {
        // Rate is spent by what passes the rate, whatever refuses it afterwards.
        if let Err(refusal) = self.spend_rate(name.tenant, messages.len()) {
            return self.answer(ticket, Answer::Refused(refusal));
        }
        let bytes = messages.iter().map(|message| message.size_bytes as u64).sum();
        if let Err(refusal) = self.check_tenant(name, bytes, 0) {
            return self.answer(ticket, Answer::Refused(refusal));
        }
        // CHOICE: while the node holds more than its bound (answers were taken back), no push is admitted, whatever it would evict.
        let is_over = self.is_over_node_bytes();
        match self.append_anyhow(name, partition, messages, is_over) {
            Ok(()) => {
                self.pushed.push((name.tenant, messages.len() as u64));
                self.answer(ticket, Answer::Pushed(messages.len()));
                self.serve_waiters();
            }
            Err(refusal) => self.answer(ticket, Answer::Refused(refusal)),
        }
    }

    /// Appends, if need be without dead groups.
    pub(super) fn append_anyhow(&mut self, name: &Name, partition: &str, messages: &[Pushed], is_over: bool) -> Result<(), Refusal> {
        let appended = self.append(name, partition, messages, is_over);
        appended.or_else(|first| self.append_without_dead_groups(name, partition, messages, is_over, first))
    }

    /// Appends all or nothing.
    fn append(&mut self, name: &Name, partition: &str, messages: &[Pushed], is_over: bool) -> Result<(), Refusal> {
        let before = self.clone();
        let at = self.make(name);
        let now = self.now;
        let queue = &mut self.queues[at];
        queue.partitions.insert(partition.to_owned());
        let fits = make_room(queue, partition, messages);
        for pushed in messages {
            let message = Message { id: pushed.id, partition: partition.to_owned(), size_bytes: pushed.size_bytes, pushed_at: now };
            queue.messages.push(message);
            queue.groups.iter_mut().for_each(|g| _ = g.states.insert(pushed.id, g.first_state(partition)));
        }
        // CHOICE: the room that dropOldest made within the queue's bounds counts for the node's bytes too ("the room it makes is the
        // push's own"), but nothing more is evicted to satisfy the node.
        let fits = fits.and(if is_over || self.is_over_node_bytes() { Err(Refusal::NodeBytes) } else { Ok(()) });
        if fits.is_err() {
            *self = before;
        }
        fits
    }

    /// A push was refused by its queue's bounds: forgets dead groups of the queue, the longest dead first, until it fits. When it would
    /// fit only without the last group, or not even then, nothing is forgotten.
    ///
    /// CHOICE: several dead groups may have to go for one push; and the room is the queue's own (a dead group blocks its queue, the
    /// node's bytes are everybody's).
    fn append_without_dead_groups(
        &mut self,
        name: &Name,
        partition: &str,
        messages: &[Pushed],
        is_over: bool,
        first: Refusal,
    ) -> Result<(), Refusal> {
        let is_for_room = matches!(first, Refusal::QueueFull { can_fit: true });
        let Some(at) = self.find_existing(name).filter(|_| is_for_room && self.settings.group_idle.0 > 0) else { return Err(first) };
        let before = self.clone();
        loop {
            let dead = self.longest_dead_group(at);
            let Some(dead) = dead.filter(|_| self.queues[at].groups.len() > 1) else {
                *self = before;
                return Err(first);
            };
            let unread = self.queues[at].group(&dead).map_or(0, |g| g.states.values().filter(|s| **s == State::Unread).count());
            self.ended[DropCause::GroupIdle as usize] += unread as u64;
            self.queues[at].forget_group(&dead);
            match self.append(name, partition, messages, is_over) {
                Err(Refusal::QueueFull { .. }) => {}
                Err(refusal) => {
                    *self = before;
                    return Err(refusal);
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    /// The group that has been without pop, ack, parked pop, lease and pending redelivery the longest, and long enough, and that has
    /// anything still to read (else it holds nothing). CHOICE: of two that died together, the first by name.
    fn longest_dead_group(&self, at: usize) -> Option<String> {
        let is_dead = |g: &&Group| self.now.since(g.busy_at) >= self.settings.group_idle;
        let has_unread = |g: &&Group| g.states.values().any(|s| *s == State::Unread);
        self.queues[at].groups.iter().filter(is_dead).filter(has_unread).min_by_key(|g| (g.busy_at, &g.name)).map(|g| g.name.clone())
    }
}

/// The queue's bounds: refuses, or evicts until the push fits.
fn make_room(queue: &mut Queue, partition: &str, messages: &[Pushed]) -> Result<(), Refusal> {
    let push_bytes: u64 = messages.iter().map(|m| m.size_bytes as u64).sum();
    let fits = |count: usize, bytes: u64, queue: &Queue| count <= queue.options.max_length as usize && bytes <= queue.options.max_bytes;
    if !fits(messages.len(), push_bytes, queue) {
        return Err(Refusal::QueueFull { can_fit: false });
    }
    while !fits(queue.messages.len() + messages.len(), queue.bytes() + push_bytes, queue) {
        if queue.options.policy == Policy::Reject {
            return Err(Refusal::QueueFull { can_fit: true });
        }
        evict_one(queue, partition);
    }
    Ok(())
}

/// The oldest of the target partition, else the oldest of all.
fn evict_one(queue: &mut Queue, partition: &str) {
    let oldest_here = queue.messages.iter().find(|m| m.partition == partition);
    let Some(id) = oldest_here.or(queue.messages.first()).map(|m| m.id) else { return };
    for group in &mut queue.groups {
        // CHOICE: a message that waits for redelivery was reached, so it is not skipped.
        if group.states[&id] == State::Unread {
            group.skipped += 1;
        }
    }
    queue.drop_counted(id, 0);
}
