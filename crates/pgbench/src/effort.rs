//! How much the reader of scripts looks at, counted in tests only: so they show that reading is linear without a clock.

#[cfg(test)]
thread_local! {
    static EFFORT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Notes that this many bytes, operations or commands were looked at or moved.
#[cfg(test)]
pub fn spend(count: usize) {
    EFFORT.set(EFFORT.get() + count);
}

/// Notes nothing outside of tests.
#[cfg(not(test))]
#[inline]
pub const fn spend(_: usize) {}

/// What `work` spends.
#[cfg(test)]
pub fn of(work: impl FnOnce()) -> usize {
    EFFORT.set(0);
    work();
    EFFORT.get()
}
