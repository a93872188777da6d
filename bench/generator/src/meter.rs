//! What a run counts.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::report::Figure;

/// Latencies and counts of one run.
#[derive(Debug)]
pub struct Meter {
    latencies: Histogram<u64>,
    /// What the rate counts: messages, or calls.
    operation_count: u64,
    refused_count: u64,
}

impl Meter {
    /// Nothing counted.
    ///
    /// # Panics
    /// Never: the bounds are in order.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a meter starts with a run; there is no default one")]
    pub fn new() -> Self {
        let latencies = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds in order");
        Self { latencies, operation_count: 0, refused_count: 0 }
    }

    /// Counts `count` operations that were asked for at `asked_at` and are done now, as one latency.
    pub fn done(&mut self, asked_at: Instant, count: usize) {
        self.latencies.saturating_record(asked_at.elapsed().as_nanos() as u64);
        self.operation_count += count as u64;
    }

    /// Counts one operation that took so long.
    pub fn took(&mut self, latency: Duration) {
        self.latencies.saturating_record(latency.as_nanos() as u64);
        self.operation_count += 1;
    }

    /// Counts a latency that is of no whole operation: of one that was not done when the run ended.
    pub fn waited(&mut self, latency: Duration) {
        self.latencies.saturating_record(latency.as_nanos() as u64);
    }

    /// Counts a refusal.
    pub fn refused(&mut self) {
        self.refused_count += 1;
    }

    /// What was counted in `elapsed`, and what it cost the server, where that is known.
    #[must_use]
    pub fn figures(&self, elapsed: Duration, cpu: Option<Duration>) -> Vec<Figure> {
        let quantile = |quantile| self.latencies.value_at_quantile(quantile) as f64 / 1e3;
        let mut figures = vec![
            ("rate_per_s", self.operation_count as f64 / elapsed.as_secs_f64()),
            ("p50_us", quantile(0.5)),
            ("p90_us", quantile(0.9)),
            ("p99_us", quantile(0.99)),
            ("p999_us", quantile(0.999)),
            ("max_us", self.latencies.max() as f64 / 1e3),
        ];
        if let Some(cpu) = cpu {
            figures.push(("server_cpu_us", cpu.as_secs_f64() * 1e6 / self.operation_count as f64));
            figures.push(("server_cpu_percent", cpu.as_secs_f64() * 100.0 / elapsed.as_secs_f64()));
        }
        figures.push(("refused", self.refused_count as f64));
        figures
    }
}
