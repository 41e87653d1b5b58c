//! Which account belongs to which partition, so that rows can be sent to the partitions themselves, side by side and
//! frozen. A row in the wrong one the server refuses; what is not understood here is left to the server to divide.

/// More would have each partition's connection reckon the hash of every key too often: then the server divides.
const MODULUS_MAX: u64 = 256;

/// What a partition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Keys from the first, inclusive, to the second, exclusive.
    Range(i64, i64),
    /// Keys whose hash leaves the second when divided by the first.
    Hash(u64, u64),
}

impl Bound {
    /// Reads a bound as `pg_get_expr` writes it; `None` for any other, such as that of a default partition.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(range) = text.strip_prefix("FOR VALUES FROM (") {
            let (from, to) = range.strip_suffix(')')?.split_once(") TO (")?;
            return Some(Self::Range(key(from)?, key(to)?));
        }
        let hash = text.strip_prefix("FOR VALUES WITH (modulus ")?;
        let (modulus, remainder) = hash.strip_suffix(')')?.split_once(", remainder ")?;
        Some(Self::Hash(modulus.parse().ok()?, remainder.parse().ok()?))
    }
}

/// A key in a bound: `bigint`s are quoted.
fn key(text: &str) -> Option<i64> {
    match text {
        "MINVALUE" => Some(i64::MIN),
        "MAXVALUE" => Some(i64::MAX),
        number => number.trim_matches('\'').parse().ok(),
    }
}

/// Whether each of so many accounts belongs to exactly one of the partitions.
pub fn hold_all(bounds: &[Bound], accounts: i64) -> bool {
    let (mut ranges, mut remainders, mut moduli) = (Vec::new(), Vec::new(), Vec::new());
    for bound in bounds {
        match *bound {
            Bound::Range(from, to) => ranges.push((from, to)),
            Bound::Hash(modulus, remainder) => {
                moduli.push(modulus);
                remainders.push(remainder);
            }
        }
    }
    if ranges.is_empty() {
        remainders.sort_unstable();
        let modulus = remainders.len() as u64;
        return (1..=MODULUS_MAX).contains(&modulus)
            && moduli.iter().all(|&other| other == modulus)
            && remainders.into_iter().eq(0..modulus);
    }
    ranges.sort_unstable();
    let follow = ranges.windows(2).all(|pair| pair[0].1 == pair[1].0);
    remainders.is_empty() && follow && ranges[0].0 <= 1 && ranges[ranges.len() - 1].1 > accounts
}

/// PostgreSQL's hash of a partition's key, of a positive `integer` or `bigint`: they hash alike.
pub fn hash_of_key(key: i64) -> u64 {
    const SEED: u64 = 0x7A5B_2236_7996_DCFD;
    const COMBINED: u64 = 0x49A0_F4DD_15E5_A8E3;
    // A bigint's upper half is folded into the lower.
    let folded = key as u32 ^ (key >> 32) as u32;
    hash_uint32_extended(folded, SEED).wrapping_add(COMBINED)
}

/// Bob Jenkins' hash of one word under a seed (lookup3), as PostgreSQL has it.
fn hash_uint32_extended(word: u32, seed: u64) -> u64 {
    let start = 0x9E37_79B9_u32.wrapping_add(4).wrapping_add(3_923_095);
    let [a, b, c] = mix([start.wrapping_add((seed >> 32) as u32), start.wrapping_add(seed as u32), start]);
    let [b, c] = finish([a.wrapping_add(word), b, c]);
    u64::from(b) << 32 | u64::from(c)
}

/// The three words change places at each turn, and have come round at the end.
fn mix([mut a, mut b, mut c]: [u32; 3]) -> [u32; 3] {
    for turn in [4, 6, 8, 16, 19, 4] {
        a = a.wrapping_sub(c) ^ c.rotate_left(turn);
        c = c.wrapping_add(b);
        (a, b, c) = (b, c, a);
    }
    [a, b, c]
}

/// As in [`mix`], but for one place: what was second and third is first and second.
fn finish([mut a, mut b, mut c]: [u32; 3]) -> [u32; 2] {
    for turn in [14, 11, 25, 16, 4, 14, 24] {
        c = (c ^ b).wrapping_sub(b.rotate_left(turn));
        (a, b, c) = (b, c, a);
    }
    [a, b]
}
