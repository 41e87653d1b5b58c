//! The arrivals of an open loop. An arrival's instant comes from here alone, never from the clock after a wait:
//! whatever the server or the driver is late by shows in the latency.

use super::random::Stream;
use super::spec::Arrivals;
use reactor::Nanos;

/// The arrivals of one thread's clients within one slice. Clients take them in order; what nobody has taken is the
/// backlog, which costs no memory however long it grows.
pub struct Schedule {
    arrivals: Arrivals,
    /// Mean distance, ns. Kept as a float so that rounding does not add up.
    distance_ns: f64,
    from: Nanos,
    /// Distance of the next arrival from `from`, ns.
    next_ns: f64,
    stream: Stream,
}

impl Schedule {
    /// Arrivals from `from` on, `per_s` in the mean; `phase` (0 to 1) sets this thread's constant arrivals between
    /// those of the other threads.
    pub fn new(arrivals: Arrivals, per_s: f64, phase: f64, from: Nanos, seed: u64) -> Self {
        let (distance_ns, mut stream) = (1e9 / per_s, Stream::new(seed));
        let first = match arrivals {
            Arrivals::Constant => phase,
            Arrivals::Poisson => stream.exponential(),
        };
        Self { arrivals, distance_ns, from, next_ns: first * distance_ns, stream }
    }

    /// Takes the next arrival, if it is before `end`.
    pub fn take_before(&mut self, end: Nanos) -> Option<Nanos> {
        let intended = self.from + Nanos(self.next_ns as u64);
        if intended >= end {
            return None;
        }
        self.next_ns += self.distance_ns
            * match self.arrivals {
                Arrivals::Constant => 1.0,
                Arrivals::Poisson => self.stream.exponential(),
            };
        Some(intended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(kind: Arrivals, per_s: f64, phase: f64, seed: u64) -> Vec<u64> {
        let mut schedule = Schedule::new(kind, per_s, phase, Nanos(1_000), seed);
        std::iter::from_fn(|| schedule.take_before(Nanos(1_000_001_000))).map(|at| at.0).collect()
    }

    #[test]
    fn constant_arrivals_are_evenly_spread_and_none_is_lost_to_rounding() {
        let instants = arrivals(Arrivals::Constant, 3_000.0, 0.5, 1);
        assert_eq!(instants.len(), 3_000);
        assert_eq!(instants[0], 1_000 + 166_666);
        assert!(instants.windows(2).all(|pair| (333_333..=333_334).contains(&(pair[1] - pair[0]))));
    }

    #[test]
    fn poisson_arrivals_come_at_the_rate_and_with_the_spread_of_a_poisson_process() {
        let instants = arrivals(Arrivals::Poisson, 10_000.0, 0.0, 42);
        // Mean 10 000, standard deviation 100.
        assert!((9_600..10_400).contains(&instants.len()), "{}", instants.len());
        let gaps: Vec<f64> = instants.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 100_000.0).collect();
        let variance = gaps.iter().map(|gap| (gap - 1.0).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.85..1.15).contains(&variance), "{variance}");
    }

    #[test]
    fn the_same_seed_gives_the_same_arrivals() {
        assert_eq!(arrivals(Arrivals::Poisson, 500.0, 0.0, 9), arrivals(Arrivals::Poisson, 500.0, 0.0, 9));
        assert_ne!(arrivals(Arrivals::Poisson, 500.0, 0.0, 9), arrivals(Arrivals::Poisson, 500.0, 0.0, 10));
    }
}
