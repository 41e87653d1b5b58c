//! The volatile write cache of a disk.
//!
//! A write stays in the cache until a flush. A cut of the power keeps of the cache what [`Survivors`] selects and loses the rest. The
//! cache holds the latest contents of each piece, as the cache of a real disk does: if a piece was written twice since the last flush,
//! a cut leaves its latest contents or its durable ones.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::SplitMix64;
use serde::Deserialize;

use crate::store::Store;

/// Bytes of a piece, the unit that a cut keeps or loses: the block size of the file system.
pub const PIECE_BYTES: usize = 4096;
/// Bytes of a sector, the unit that a disk writes atomically.
pub const SECTOR_BYTES: usize = 512;

const SECTORS_PER_PIECE: u64 = (PIECE_BYTES / SECTOR_BYTES) as u64;

/// The most pieces that a flush writes at once. The system accepts 1024.
const RUN_PIECES_MAX: u64 = 256;

type Piece = Box<[u8; PIECE_BYTES]>;

/// What a cut keeps of the volatile pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Survivors {
    /// Nothing.
    Nothing,
    /// Everything: the disk had just written its cache.
    All,
    /// A random subset of the pieces. The share that survives is random, too.
    Pieces,
    /// The same, and half of the surviving pieces are torn: only the sectors before or after a random sector boundary are written.
    Torn,
}

/// What became of the volatile pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Pieces in the cache at the cut.
    pub volatile: u64,
    /// Of these, pieces that survived, whole or torn.
    pub survived: u64,
    /// Of these, pieces that survived in part.
    pub torn: u64,
}

/// A store behind a volatile write cache.
pub struct Cache<S> {
    store: S,
    volatile: BTreeMap<u64, Piece>,
    /// Volatile pieces in the order of their first write since the last flush.
    order: VecDeque<u64>,
    pieces_max: usize,
    /// Memory of pieces that became durable, for the next ones: new memory costs page faults.
    spare: Vec<Piece>,
}

impl<S: Store> Cache<S> {
    /// An empty cache for at most `pieces_max` pieces, and at least one. A write beyond that makes the oldest piece durable.
    pub fn new(store: S, pieces_max: usize) -> Self {
        Self {
            store,
            volatile: BTreeMap::new(),
            order: VecDeque::new(),
            pieces_max: pieces_max.max(1),
            spare: Vec::new(),
        }
    }

    /// Pieces in the cache.
    pub fn volatile(&self) -> u64 {
        self.volatile.len() as u64
    }

    /// Reads the latest contents, volatile or not.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.store.read(offset, out)?;
        let end = offset + out.len() as u64;
        let first = offset / PIECE_BYTES as u64;
        for (&index, piece) in self.volatile.range(first..end.div_ceil(PIECE_BYTES as u64)) {
            let at = index * PIECE_BYTES as u64;
            let (from, to) = (at.max(offset), (at + PIECE_BYTES as u64).min(end));
            out[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&piece[(from - at) as usize..(to - at) as usize]);
        }
        Ok(())
    }

    /// Writes into the cache.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut at = offset;
        let mut left = data;
        while !left.is_empty() {
            let within = (at % PIECE_BYTES as u64) as usize;
            let (now, later) = left.split_at(left.len().min(PIECE_BYTES - within));
            self.write_piece(at / PIECE_BYTES as u64, within, now)?;
            at += now.len() as u64;
            left = later;
        }
        Ok(())
    }

    fn write_piece(&mut self, index: u64, within: usize, data: &[u8]) -> io::Result<()> {
        if let Some(piece) = self.volatile.get_mut(&index) {
            piece[within..within + data.len()].copy_from_slice(data);
            return Ok(());
        }
        if self.volatile.len() >= self.pieces_max {
            self.evict()?;
        }
        let mut piece = self.spare.pop().unwrap_or_else(|| Box::new([0; PIECE_BYTES]));
        if data.len() < PIECE_BYTES {
            self.store.read(index * PIECE_BYTES as u64, &mut piece[..])?;
        }
        piece[within..within + data.len()].copy_from_slice(data);
        self.volatile.insert(index, piece);
        self.order.push_back(index);
        Ok(())
    }

    /// Makes the oldest piece durable.
    fn evict(&mut self) -> io::Result<()> {
        if let Some(&index) = self.order.front() {
            if let Some(piece) = self.volatile.get(&index) {
                self.store.write(index * PIECE_BYTES as u64, &piece[..])?;
            }
            self.volatile.remove(&index);
            self.order.pop_front();
        }
        Ok(())
    }

    /// Makes all writes durable. After an error, the pieces that are not durable are still volatile.
    ///
    /// Adjacent pieces are written together: one call of the system for each would cost more than all else.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut done = Ok(());
        while let Some((&first, _)) = self.volatile.first_key_value() {
            let pieces = (first..).zip(self.volatile.range(first..first + RUN_PIECES_MAX));
            let adjacent = pieces.take_while(|(due, (index, _))| due == *index);
            let mut run: Vec<IoSlice> = adjacent.map(|(_, (_, piece))| IoSlice::new(&piece[..])).collect();
            let length = run.len() as u64;
            done = self.store.write_parts(first * PIECE_BYTES as u64, &mut run);
            if done.is_err() {
                break;
            }
            self.spare.extend((first..first + length).filter_map(|index| self.volatile.remove(&index)));
        }
        self.order.retain(|index| self.volatile.contains_key(index));
        done
    }

    /// Cuts the power: makes the survivors durable and forgets the rest.
    ///
    /// Whether a piece survives depends on the seed and its place, not on the order of the writes.
    pub fn cut(&mut self, survivors: Survivors, seed: u64) -> io::Result<Cut> {
        let volatile = std::mem::take(&mut self.volatile);
        self.order.clear();
        let mut cut = Cut { volatile: volatile.len() as u64, ..Cut::default() };
        let share = SplitMix64::seed_from_u64(seed).next_u64();
        for (index, piece) in volatile {
            let (from, to) = kept(survivors, seed, share, index);
            if from == to {
                continue;
            }
            cut.survived += 1;
            cut.torn += u64::from(to - from < PIECE_BYTES);
            self.store.write(index * PIECE_BYTES as u64 + from as u64, &piece[from..to])?;
        }
        Ok(cut)
    }
}

/// The part of a piece that survives, as a range of bytes.
fn kept(survivors: Survivors, seed: u64, share: u64, index: u64) -> (usize, usize) {
    let mut random = SplitMix64::seed_from_u64(seed.rotate_left(32) ^ index.wrapping_add(1));
    let survives = random.next_u64() < share;
    let boundary = (1 + random.next_u64() % (SECTORS_PER_PIECE - 1)) as usize * SECTOR_BYTES;
    match (survivors, survives) {
        (Survivors::All, _) | (Survivors::Pieces, true) => (0, PIECE_BYTES),
        (Survivors::Nothing, _) | (_, false) => (0, 0),
        (Survivors::Torn, true) => match random.next_u64() % 4 {
            0 => (0, boundary),
            1 => (boundary, PIECE_BYTES),
            _ => (0, PIECE_BYTES),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PIECES: usize = 12;
    const SIZE: usize = PIECES * PIECE_BYTES;

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, usize, u8),
        Flush,
    }

    fn step() -> impl Strategy<Value = Step> {
        let write = (0..SIZE / SECTOR_BYTES, 1usize..20, any::<u8>()).prop_map(|(sector, sectors, byte)| {
            let offset = sector * SECTOR_BYTES;
            Step::Write(offset, (sectors * SECTOR_BYTES).min(SIZE - offset), byte)
        });
        prop_oneof![5 => write, 1 => Just(Step::Flush)]
    }

    fn survivors() -> impl Strategy<Value = Survivors> {
        prop_oneof![
            Just(Survivors::Nothing),
            Just(Survivors::All),
            Just(Survivors::Pieces),
            Just(Survivors::Torn)
        ]
    }

    /// The model: the whole disk as it is read, and as it was at the last flush.
    struct Model {
        latest: Vec<u8>,
        durable: Vec<u8>,
    }

    fn run(steps: &[Step], cache: &mut Cache<Vec<u8>>) -> Model {
        let mut model = Model { latest: vec![0; SIZE], durable: vec![0; SIZE] };
        for (number, step) in steps.iter().enumerate() {
            match *step {
                Step::Write(offset, length, byte) => {
                    // Different in every sector and step, so that no mix-up goes unseen.
                    let data: Vec<u8> = (0..length)
                        .map(|at| byte ^ (number as u8).wrapping_mul(31) ^ (at / SECTOR_BYTES) as u8)
                        .collect();
                    model.latest[offset..offset + length].copy_from_slice(&data);
                    cache.write(offset as u64, &data).expect("in memory");
                }
                Step::Flush => {
                    model.durable.clone_from(&model.latest);
                    cache.flush().expect("in memory");
                }
            }
        }
        model
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn reads_see_every_write(steps in prop::collection::vec(step(), 0..40), pieces_max in 1usize..20) {
            let mut cache = Cache::new(vec![0; SIZE], pieces_max);
            let model = run(&steps, &mut cache);
            let mut read = vec![0; SIZE];
            cache.read(0, &mut read).expect("in memory");
            prop_assert_eq!(&read, &model.latest);
            let mut part = vec![0; 3 * SECTOR_BYTES];
            cache.read(7 * SECTOR_BYTES as u64, &mut part).expect("in memory");
            prop_assert_eq!(&part, &model.latest[7 * SECTOR_BYTES..10 * SECTOR_BYTES]);
        }

        #[test]
        fn after_a_cut_every_sector_is_the_flushed_or_the_latest_one(
            steps in prop::collection::vec(step(), 0..40), kind in survivors(), seed: u64
        ) {
            let mut cache = Cache::new(vec![0; SIZE], PIECES);
            let model = run(&steps, &mut cache);
            cache.cut(kind, seed).expect("in memory");
            prop_assert_eq!(cache.volatile(), 0);
            let unit = if kind == Survivors::Torn { SECTOR_BYTES } else { PIECE_BYTES };
            for at in (0..SIZE).step_by(unit) {
                let found = &cache.store[at..at + unit];
                prop_assert!(found == &model.latest[at..at + unit] || found == &model.durable[at..at + unit]);
            }
            match kind {
                Survivors::Nothing => prop_assert_eq!(&cache.store, &model.durable),
                Survivors::All => prop_assert_eq!(&cache.store, &model.latest),
                _ => {}
            }
        }

        #[test]
        fn what_was_flushed_survives_every_cut(
            steps in prop::collection::vec(step(), 0..40), kind in survivors(), seed: u64
        ) {
            let mut cache = Cache::new(vec![0; SIZE], 3);
            let model = run(&steps, &mut cache);
            cache.flush().expect("in memory");
            prop_assert_eq!(cache.cut(kind, seed).expect("in memory"), Cut::default());
            prop_assert_eq!(&cache.store, &model.latest);
        }

        #[test]
        fn the_same_seed_keeps_the_same_pieces_in_any_order_of_writes(
            mut pieces in prop::collection::vec(0..PIECES as u64, 1..30).prop_shuffle(), kind in survivors(), seed: u64
        ) {
            let image = |pieces: &[u64]| {
                let mut cache = Cache::new(vec![0; SIZE], PIECES);
                for &piece in pieces {
                    cache.write(piece * PIECE_BYTES as u64, &[piece as u8 + 1; PIECE_BYTES]).expect("in memory");
                }
                cache.cut(kind, seed).expect("in memory");
                cache.store.clone()
            };
            let before = image(&pieces);
            pieces.sort_unstable();
            prop_assert_eq!(before, image(&pieces));
        }
    }

    /// Counts writes, and refuses those behind a limit.
    struct Counting {
        bytes: Vec<u8>,
        writes: Vec<(u64, usize)>,
        writes_max: usize,
    }

    impl Store for Counting {
        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.bytes.read(offset, out)
        }

        fn write_parts(&mut self, offset: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
            if self.writes.len() == self.writes_max {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.writes.push((offset, parts.iter().map(|part| part.len()).sum()));
            self.bytes.write_parts(offset, parts)
        }
    }

    #[test]
    fn a_flush_writes_adjacent_pieces_at_once_and_keeps_what_it_could_not_write() {
        let store = Counting { bytes: vec![0; SIZE], writes: Vec::new(), writes_max: 1 };
        let mut cache = Cache::new(store, PIECES);
        for piece in [5, 0, 1, 2] {
            cache.write(piece * PIECE_BYTES as u64, &[7; PIECE_BYTES]).expect("in memory");
        }
        cache.flush().expect_err("the second write is refused");
        assert_eq!(cache.store.writes, [(0, 3 * PIECE_BYTES)]);
        assert_eq!((cache.volatile(), cache.order.len()), (1, 1));
        cache.store.writes_max = 2;
        cache.flush().expect("in memory");
        assert_eq!(cache.store.writes[1], (5 * PIECE_BYTES as u64, PIECE_BYTES));
        assert_eq!((cache.volatile(), cache.order.len()), (0, 0));
    }

    #[test]
    fn a_long_run_is_written_in_parts() {
        let (most, pieces) = (RUN_PIECES_MAX as usize * PIECE_BYTES, RUN_PIECES_MAX as usize + 1);
        let store = Counting { bytes: vec![0; pieces * PIECE_BYTES], writes: Vec::new(), writes_max: 9 };
        let mut cache = Cache::new(store, pieces);
        cache.write(0, &vec![9; pieces * PIECE_BYTES]).expect("in memory");
        cache.flush().expect("in memory");
        assert_eq!(cache.store.writes, [(0, most), (most as u64, PIECE_BYTES)]);
        assert!(cache.store.bytes.iter().all(|&byte| byte == 9));
    }

    fn many_pieces() -> Cache<Vec<u8>> {
        let mut cache = Cache::new(vec![0; 4000 * PIECE_BYTES], 4000);
        cache.write(0, &vec![1; 4000 * PIECE_BYTES]).expect("in memory");
        cache
    }

    #[test]
    fn shares_of_survivors_cover_the_range_and_tears_happen_only_when_asked() {
        let shares: Vec<f64> = (0..40)
            .map(|seed| {
                let cut = many_pieces().cut(Survivors::Pieces, seed).expect("in memory");
                assert_eq!((cut.volatile, cut.torn), (4000, 0));
                cut.survived as f64 / 4000.0
            })
            .collect();
        assert!(shares.iter().any(|share| *share < 0.2) && shares.iter().any(|share| *share > 0.8));
        let torn = many_pieces().cut(Survivors::Torn, 3).expect("in memory");
        let half = torn.torn as f64 / torn.survived as f64;
        assert!((0.4..0.6).contains(&half), "{torn:?}");
    }

    #[test]
    fn a_full_cache_makes_its_oldest_piece_durable() {
        let mut cache = Cache::new(vec![0; SIZE], 2);
        for piece in 0..3u64 {
            cache.write(piece * PIECE_BYTES as u64, &[9; SECTOR_BYTES]).expect("in memory");
        }
        assert_eq!(cache.volatile(), 2);
        cache.cut(Survivors::Nothing, 0).expect("in memory");
        assert_eq!([cache.store[0], cache.store[PIECE_BYTES]], [9, 0]);
    }
}
