//! Assignment of accounts to partitions, so that rows can be copied to the partitions directly, in parallel and
//! frozen.
//!
//! The server rejects a row in the wrong partition. If the bounds are not understood, the server routes the
//! rows.

/// With more partitions, every connection would hash all keys too often: then the server routes the rows.
const MODULUS_MAX: u64 = 256;

/// Bounds of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Range of keys: from the first (inclusive) to the second (exclusive).
    Range(i64, i64),
    /// Modulus and remainder of the hash.
    Hash(u64, u64),
}

impl Bound {
    /// Parses a bound as printed by `pg_get_expr`; `None` for others, such as that of a default partition.
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

/// Parses a key in a bound. Keys of type `bigint` are quoted.
fn key(text: &str) -> Option<i64> {
    match text {
        "MINVALUE" => Some(i64::MIN),
        "MAXVALUE" => Some(i64::MAX),
        number => number.trim_matches('\'').parse().ok(),
    }
}

/// Whether each of the accounts belongs to exactly one partition.
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

/// PostgreSQL's hash of a partition key for a positive `integer` or `bigint`, which have the same hash.
pub fn hash_of_key(key: i64) -> u64 {
    const SEED: u64 = 0x7A5B_2236_7996_DCFD;
    const COMBINED: u64 = 0x49A0_F4DD_15E5_A8E3;
    // The upper half of a bigint is folded into the lower.
    let folded = key as u32 ^ (key >> 32) as u32;
    hash_uint32_extended(folded, SEED).wrapping_add(COMBINED)
}

/// Bob Jenkins' hash (lookup3) of one word with a seed, as in PostgreSQL.
fn hash_uint32_extended(word: u32, seed: u64) -> u64 {
    let start = 0x9E37_79B9_u32.wrapping_add(4).wrapping_add(3_923_095);
    let [a, b, c] = mix([start.wrapping_add((seed >> 32) as u32), start.wrapping_add(seed as u32), start]);
    let [b, c] = finish([a.wrapping_add(word), b, c]);
    u64::from(b) << 32 | u64::from(c)
}

/// The three words rotate at each step, and are in the original order at the end.
fn mix([mut a, mut b, mut c]: [u32; 3]) -> [u32; 3] {
    for turn in [4, 6, 8, 16, 19, 4] {
        a = a.wrapping_sub(c) ^ c.rotate_left(turn);
        c = c.wrapping_add(b);
        (a, b, c) = (b, c, a);
    }
    [a, b, c]
}

/// As in [`mix`], but with another rotation: the second and third words become the first and second.
fn finish([mut a, mut b, mut c]: [u32; 3]) -> [u32; 2] {
    for turn in [14, 11, 25, 16, 4, 14, 24] {
        c = (c ^ b).wrapping_sub(b.rotate_left(turn));
        (a, b, c) = (b, c, a);
    }
    [a, b]
}
