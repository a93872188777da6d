//! What must hold after every step, recomputed from scratch. For tests, simulation and fuzzing.

use std::collections::BTreeMap;

use crate::budget::QueueCounters;
use crate::cursor::DeliveryState;
use crate::name::Tenant;
use crate::queue::{GroupIndex, Queue, QueueIndex};
use crate::shard::Shard;
use crate::tenant::Usage;
use crate::waiters::WaiterState;

impl Shard {
    /// Checks every invariant of the state.
    ///
    /// # Panics
    /// With the invariant and the queue, when one does not hold.
    pub fn check_invariants(&self) {
        let mut parked = 0;
        for (index, queue) in self.queues.iter() {
            check_sums(queue);
            check_rings(queue);
            parked += self.check_waiters(index, queue);
        }
        assert_eq!(parked, self.waiters.len(), "every waiter is on one list");
        self.calls.check_invariants();
        let packed: usize = self.queues.iter().map(|(_, queue)| queue.packed_count()).sum();
        assert_eq!(packed, self.handover.packed_count, "packed partitions are counted");
        self.check_arrivals();
    }

    /// What this shard holds of each tenant, counted anew: over all shards the sum of it is what the tenant is charged, while no push
    /// waits for another core.
    #[must_use]
    pub fn holdings(&self) -> BTreeMap<Tenant, Usage> {
        let mut of: BTreeMap<Tenant, Usage> = BTreeMap::new();
        for (_, queue) in self.queues.iter() {
            let usage = of.entry(queue.tenant()).or_default();
            let packed = queue.rings.iter().filter_map(|(_, ring)| ring.packed()).map(|packed| packed.ring.bytes);
            usage.bytes += queue.rings.iter().map(|(_, ring)| ring.bytes).chain(packed).sum::<u64>();
            usage.queues += u64::from(queue.exists && queue.link.is_home());
        }
        for waiter in self.waiters.all().filter(|waiter| waiter.is_charged) {
            of.entry(self.queues.get(waiter.queue).tenant()).or_default().parked += 1;
        }
        for tenant in self.calls.tenants() {
            of.entry(tenant).or_default().parked += 1;
        }
        of
    }

    fn check_waiters(&self, index: QueueIndex, queue: &Queue) -> usize {
        let mut parked = 0;
        for (group_index, group) in queue.groups.iter() {
            let mut of_group = self.check_list(index, queue, group_index, group.any, None);
            for (ring_index, ring) in queue.rings.iter() {
                if let Some(cursor) = ring.cursor(group_index) {
                    of_group += self.check_list(index, queue, group_index, cursor.waiters, Some(ring_index));
                }
            }
            assert_eq!(of_group, group.waiting as usize, "{}: waiters of a group are counted", queue.name);
            let is_listed = queue.groups.waiting().contains(&group_index);
            assert_eq!(is_listed, group.wants_to_hear(), "{}: groups that want to hear are listed", queue.name);
            parked += of_group;
        }
        parked
    }

    fn check_list(
        &self,
        index: QueueIndex,
        queue: &Queue,
        group: GroupIndex,
        list: crate::waiters::WaiterList,
        ring: Option<crate::queue::RingIndex>,
    ) -> usize {
        let mut last = None;
        let mut count = 0;
        // One behind a claim of its group waits for what that leaves.
        let oldest = queue.groups.get(group).any.oldest();
        let is_claimed = oldest.is_some_and(|oldest| self.waiters.get(oldest).state != WaiterState::Parked);
        for waiter in self.waiters.iter(list) {
            assert!((waiter.queue, waiter.group, waiter.ring) == (index, group, ring), "{}: a waiter is on its list", queue.name);
            assert!(last < Some(waiter.age()), "{}: a list is in order of age", queue.name);
            last = Some(waiter.age());
            count += 1;
            let is_bid = queue.groups.get(group).bid().is_some();
            let may_hold = !self.is_enabled || queue.options.is_windowed() || waiter.state != WaiterState::Parked || is_claimed || is_bid;
            let available = match ring {
                Some(ring) => queue.rings.get(ring).pending(group),
                None => queue.pending(group),
            };
            assert!(may_hold || available == 0, "{}: parked on something it could take: {waiter:?} in {:?}", queue.name, queue.link);
        }
        count
    }
}

fn check_sums(queue: &Queue) {
    let name = &queue.name;
    let rings = || queue.rings.iter().map(|(_, ring)| ring);
    assert_eq!(queue.held, rings().map(|ring| ring.held).sum::<u64>(), "{name}: held is the sum over the rings");
    assert_eq!(queue.bytes, rings().map(|ring| ring.bytes).sum::<u64>(), "{name}: bytes are the sum over the rings");
    if matches!(queue.counters, QueueCounters::Plain { .. }) {
        let (messages, bytes, partitions) = queue.counters.totals();
        assert_eq!((messages, bytes), (queue.held, queue.bytes), "{name}: the counters are what is held");
        assert!(!queue.exists || partitions == queue.rings.count() as u64, "{name}: partitions are counted");
    }
    for (index, group) in queue.groups.iter() {
        let pending = rings().map(|ring| ring.pending(index)).sum::<u64>();
        assert_eq!(queue.pending(index), pending, "{name}/{}: pending is the sum over the rings", group.name);
        let cursors = || rings().filter_map(|ring| ring.cursor(index));
        assert_eq!(u64::from(group.leased), cursors().map(|cursor| u64::from(cursor.leased)).sum::<u64>(), "{name}/{}: leases", group.name);
        assert_eq!(
            u64::from(group.ready),
            cursors().map(|cursor| cursor.ready_count() as u64).sum::<u64>(),
            "{name}/{}: redeliveries",
            group.name
        );
    }
}

fn check_rings(queue: &Queue) {
    let name = &queue.name;
    for (index, ring) in queue.rings.iter() {
        assert!(ring.packed().is_none() || (ring.held == 0 && !ring.has_waiters()), "{name}: nothing is held where a ring is packed");
        let mut requests = ring.requests().into_iter().flat_map(|requests| requests.keys());
        assert!(requests.all(|seq| ring.find_held(*seq).is_some()), "{name}: a request is of a held message");
        let is_in_order = ring.slots().is_sorted_by_key(|slot| slot.pushed_at);
        assert!(ring.is_bent || is_in_order || queue.options.ttl_seconds == 0, "{name}: the first message is the oldest");
        assert!(ring.held == 0 || queue.rings.is_noted(index), "{name}: a pop of any partition comes to all that hold something");
        let held = || ring.slots().filter(|slot| slot.payload.is_some());
        assert_eq!(ring.held, held().count() as u64, "{name}: a ring counts its messages");
        assert!(ring.first().is_none_or(|slot| slot.payload.is_some()), "{name}: the first slot holds a message");
        assert!(ring.slots().zip(ring.slots().skip(1)).all(|(one, next)| one.seq < next.seq), "{name}: slots are in order");
        for slot in held() {
            let is_done = |group| ring.cursor(group).is_some_and(|cursor| cursor.is_settled(slot.seq));
            let settled = queue.groups.iter().filter(|(group, _)| is_done(*group)).count() as u32;
            assert_eq!(slot.settled_count, settled, "{name}: a message counts the groups that are done with it");
            let has_reader = queue.groups.iter().any(|(_, group)| !group.is_private);
            assert!(!has_reader || settled < queue.groups.count(), "{name}: a message that all have settled is freed");
        }
        for cursor in &ring.cursors {
            let ahead = held().filter(|slot| slot.seq >= cursor.next).count() as u64;
            assert_eq!(ring.appended - cursor.seen, ahead, "{name}: a cursor counts what is ahead of it");
            let leased = cursor.iter().filter(|delivered| delivered.state == DeliveryState::Leased).count();
            assert_eq!(cursor.leased as usize, leased, "{name}: a cursor counts its leases");
            for delivered in cursor.iter() {
                assert!(delivered.seq < cursor.next && ring.find_held(delivered.seq).is_some(), "{name}: a delivery is of a held message");
            }
        }
    }
}
