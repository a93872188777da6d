//! The kill switch: while it is off nothing is delivered. Contents stay, pops stay parked, ttl and leases run.
//!
//! Invariants: a shard that is off gives no message to a pop, parked or not, and takes none for another shard; whatever it was asked
//! meanwhile it does once it is on, so no wake-up is lost.

use crate::outbox::Outbox;
use crate::queue::QueueIndex;
use crate::shard::Shard;
use crate::time::Time;

impl Shard {
    /// Turns delivery off or on. When this returns it is: parked pops that can take something have been answered, or their shard told.
    pub fn switch(&mut self, now: Time, is_enabled: bool, out: &mut impl Outbox) {
        self.expire(now, out);
        let was_enabled = std::mem::replace(&mut self.is_enabled, is_enabled);
        if was_enabled || !is_enabled {
            return;
        }
        let indexes: Vec<QueueIndex> =
            self.queues.iter().filter(|(_, queue)| !queue.groups.waiting().is_empty()).map(|(index, _)| index).collect();
        for index in indexes {
            // A shard that asked meanwhile was told that there is nothing here.
            for group in self.queues.get(index).groups.waiting().to_vec() {
                self.queues.get_mut(index).groups.get_mut(group).set_hinted(0);
            }
            self.wake_all(now, index, out);
        }
    }
}
