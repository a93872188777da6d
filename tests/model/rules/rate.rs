//! A tenant's rate: a bucket of messages that starts full.

use mayfly_shards::{Allowance, Refusal, Span, Tenant, Time};

use super::Model;

const NANOS: u128 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    tenant: Tenant,
    /// Messages a second, and burst.
    rate: (u64, u64),
    /// Messages left at `filled_at`, times a thousand million: exact at every nanosecond.
    left_nanos: u128,
    filled_at: Time,
}

impl Model {
    /// Another rate holds, or none.
    pub(super) fn forget_other_rates(&mut self, tenant: Tenant) {
        let Allowance { messages_per_second, burst_messages, .. } = self.allowance(tenant);
        self.buckets.retain(|b| b.tenant != tenant || b.rate == (messages_per_second, burst_messages));
    }

    /// Spends the rate of one push, or refuses it. A push above the burst needs, and spends, the whole burst.
    pub(super) fn spend_rate(&mut self, tenant: Tenant, message_count: usize) -> Result<(), Refusal> {
        let Allowance { messages_per_second: per_second, burst_messages: burst, .. } = self.allowance(tenant);
        if per_second == 0 {
            return Ok(());
        }
        let full = u128::from(burst) * NANOS;
        // CHOICE: a bucket of another rate begins full.
        let rate = (per_second, burst);
        let at = self.buckets.iter().position(|b| b.tenant == tenant && b.rate == rate).unwrap_or_else(|| {
            self.buckets.push(Bucket { tenant, rate, left_nanos: full, filled_at: self.now });
            self.buckets.len() - 1
        });
        let bucket = &mut self.buckets[at];
        let grown = u128::from(self.now.since(bucket.filled_at).0) * u128::from(per_second);
        bucket.left_nanos = full.min(bucket.left_nanos + grown);
        bucket.filled_at = self.now;
        let needed = (message_count as u128 * NANOS).min(full);
        if bucket.left_nanos < needed {
            let wait_nanos = (needed - bucket.left_nanos).div_ceil(u128::from(per_second));
            return Err(Refusal::RateLimited { retry_after: Span(wait_nanos as u64) });
        }
        bucket.left_nanos -= needed;
        Ok(())
    }
}
