//! Work counter of the script parser, in tests only: they verify linear time without a clock.

#[cfg(test)]
thread_local! {
    static EFFORT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts bytes, operations or commands read or moved.
#[cfg(test)]
pub fn spend(count: usize) {
    EFFORT.set(EFFORT.get() + count);
}

/// No-op outside of tests.
#[cfg(not(test))]
#[inline]
pub const fn spend(_: usize) {}

/// The number counted during `work`.
#[cfg(test)]
pub fn of(work: impl FnOnce()) -> usize {
    EFFORT.set(0);
    work();
    EFFORT.get()
}
