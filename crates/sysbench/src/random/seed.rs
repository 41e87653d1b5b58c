//! The generators of threads, made of `--rand-seed`.

use super::Xoroshiro;

/// Length of the recurrence, and distance of the older word that is added.
const LENGTH: usize = 31;
const DISTANCE: usize = 3;
/// Numbers that are thrown away first.
const DISCARDED: usize = 10 * LENGTH;

/// The generators of threads 0, 1, …: each takes four numbers of the additive generator of the C library (`random`, in its default
/// form: x^31 + x^3 + 1), which `seed` starts.
pub fn seeds(seed: u32) -> impl Iterator<Item = Xoroshiro> {
    let mut additive = Additive::new(seed);
    std::iter::repeat_with(move || {
        let mut word = || u64::from(additive.next()) << 32 | u64::from(additive.next());
        Xoroshiro::new([word(), word()])
    })
}

/// The additive generator.
struct Additive {
    words: [u32; LENGTH],
    place: usize,
}

impl Additive {
    fn new(seed: u32) -> Self {
        // The minimal standard generator of Park and Miller, on signed words.
        let mut word = seed.max(1) as i32;
        let words = std::array::from_fn(|place| {
            if place > 0 {
                let next = i64::from(word) * 16807 % 2_147_483_647;
                word = (if next < 0 { next + 2_147_483_647 } else { next }) as i32;
            }
            word as u32
        });
        let mut additive = Self { words, place: 0 };
        for _ in 0..DISCARDED {
            additive.next();
        }
        additive
    }

    fn next(&mut self) -> u32 {
        let sum = self.words[(self.place + DISTANCE) % LENGTH].wrapping_add(self.words[self.place]);
        self.words[(self.place + DISTANCE) % LENGTH] = sum;
        self.place = (self.place + 1) % LENGTH;
        sum >> 1
    }
}
