//! Instants and durations in nanoseconds, and the clock they come from.

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds: an instant since the run's epoch, or the distance between two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all, and the epoch.
    pub const ZERO: Self = Self(0);
    /// The far future.
    pub const MAX: Self = Self(u64::MAX);

    /// Seconds, rounded to the nearest nanosecond; negative and NaN become zero, the too large [`Nanos::MAX`].
    #[must_use]
    pub fn from_s(seconds: f64) -> Self {
        Self((seconds * 1e9).round() as u64)
    }

    /// As seconds.
    #[must_use]
    pub fn as_s(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// A distance is never negative: what would be is zero.
impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Where instants come from.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The kernel's monotonic clock, counted from an epoch. Copies for other threads share the epoch.
    Monotonic {
        /// The kernel's reading at the epoch.
        epoch: Nanos,
    },
    /// A clock that stands still until the loop has nothing to do, and then jumps to the earliest deadline:
    /// a scripted test is exact to the nanosecond and takes no time.
    Fake(Arc<AtomicU64>),
}

impl Clock {
    /// A monotonic clock whose epoch is now.
    #[must_use]
    pub fn monotonic() -> Self {
        Self::Monotonic { epoch: kernel_now() }
    }

    /// A fake clock that reads zero.
    #[must_use]
    pub fn fake() -> Self {
        Self::Fake(Arc::default())
    }

    /// The present instant. About 20 ns: the kernel's page is read, no system call is made.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Nanos {
        match self {
            Self::Monotonic { epoch } => kernel_now() - *epoch,
            Self::Fake(now) => Nanos(now.load(Relaxed)),
        }
    }
}

#[inline]
fn kernel_now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
