//! Prefetch hints.
//!
//! Between two turns of the loop the server has used the same core and evicted the clients' data. Prefetching
//! for many clients at once avoids one cache miss after another.

#![allow(unsafe_code)] // A hint on a reference does not access other memory.

/// Cache line size of the supported processors.
const LINE_BYTES: usize = 64;

/// Prefetches the first `bytes` of the referenced value. A no-op on processors without such a hint.
#[inline]
pub(super) fn prefetch<T: ?Sized>(value: &T, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        let place = std::ptr::from_ref(value).cast::<i8>();
        for line in (0..bytes.min(size_of_val(value))).step_by(LINE_BYTES) {
            // SAFETY: a prefetch never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(place.wrapping_add(line)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, bytes, LINE_BYTES);
}
