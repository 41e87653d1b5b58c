//! Hints to the processor about memory that is needed soon.
//!
//! Between two turns of the loop the server has used the same processor, and nothing of a client is in its cache: what
//! many clients need is fetched for all of them at once, or else each would wait for its own.

#![allow(unsafe_code)] // A hint on a reference: it reads nothing that it could not.

/// A cache line of the processors that matter.
const LINE_BYTES: usize = 64;

/// Has the first `bytes` of what `value` refers to fetched. It costs nothing where the processor has no such hint.
#[inline]
pub(super) fn prefetch<T: ?Sized>(value: &T, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        let place = std::ptr::from_ref(value).cast::<i8>();
        for line in (0..bytes.min(size_of_val(value))).step_by(LINE_BYTES) {
            // SAFETY: a hint never faults, whatever lies there.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(place.wrapping_add(line)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, bytes, LINE_BYTES);
}
