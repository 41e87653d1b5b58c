//! Instants and durations in nanoseconds, and their clock.

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds: an instant since the epoch of the run, or a duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Zero, and the epoch.
    pub const ZERO: Self = Self(0);
    /// The maximum.
    pub const MAX: Self = Self(u64::MAX);

    /// Converts seconds, rounded to the nearest nanosecond. Negative values and NaN become zero, too large ones
    /// [`Nanos::MAX`].
    #[must_use]
    pub fn from_s(seconds: f64) -> Self {
        Self((seconds * 1e9).round() as u64)
    }

    /// Converts to seconds.
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

/// Saturating subtraction: negative differences become zero.
impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Source of instants.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The kernel's monotonic clock relative to an epoch. Clones for other threads share the epoch.
    Monotonic {
        /// The kernel's time at the epoch.
        epoch: Nanos,
    },
    /// A clock that only advances when the loop is idle, to the earliest deadline.
    ///
    /// Scripted tests are exact to the nanosecond and take no time.
    Fake(Arc<AtomicU64>),
}

impl Clock {
    /// A monotonic clock with the present as epoch.
    #[must_use]
    pub fn monotonic() -> Self {
        Self::Monotonic { epoch: kernel_now() }
    }

    /// A fake clock at zero.
    #[must_use]
    pub fn fake() -> Self {
        Self::Fake(Arc::default())
    }

    /// The kernel's CLOCK_MONOTONIC at the epoch; 0 for a fake clock.
    #[must_use]
    pub fn epoch(&self) -> Nanos {
        match self {
            Self::Monotonic { epoch } => *epoch,
            Self::Fake(_) => Nanos::ZERO,
        }
    }

    /// The current instant. Takes about 20 ns, without a system call (vDSO).
    #[inline]
    #[must_use]
    pub fn now(&self) -> Nanos {
        match self {
            Self::Monotonic { epoch } => kernel_now() - *epoch,
            Self::Fake(now) => Nanos(now.load(Relaxed)),
        }
    }
}

/// The present on the kernel's CLOCK_MONOTONIC, which all processes of the machine share.
#[inline]
#[must_use]
pub fn kernel_now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
