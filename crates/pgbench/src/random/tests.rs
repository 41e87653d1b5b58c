//! Expected values come from PostgreSQL's own tests of pgbench (15 and newer), and from pgbench 15.

use proptest::prelude::*;

use super::hash::{fnv1a, murmur2, permute};
use super::{Streams, clients_per_thread, exponential, gaussian, poisson_wait, uniform, zipfian, *};

#[test]
fn the_first_draws_of_client_0_with_seed_5432_equal_pgbenchs() {
    let mut prng = Streams::new(5432, 1, 1, false).clients[0];
    assert_eq!(uniform(&mut prng, 10, 19), 17);
    assert_eq!(exponential(&mut prng, 100, 199, 10.0), 104);
    assert_eq!(gaussian(&mut prng, 1000, 1999, 10.0), 1498);
    assert_eq!(zipfian(&mut prng, 1, 9, 1.3), 3);
}

#[test]
fn hashes_equal_pgbenchs() {
    assert_eq!(murmur2(10, 5432), -5_817_877_081_768_721_676);
    assert_eq!(fnv1a(10, 5432), -7_793_829_335_365_542_153);
}

#[test]
fn permutations_of_a_large_range_equal_pgbenchs() {
    let size = i64::MAX - 10;
    let places = (1..=7).map(|k| permute(size - k, size, 5432));
    let expected = [
        520_382_784_483_822_430,
        1_143_715_004_660_802_862,
        447_293_596_416_496_998,
        916_527_772_266_572_956,
        2_763_809_008_686_028_849,
        8_648_551_549_198_294_572,
        4_542_876_852_200_565_125,
    ];
    assert!(places.eq(expected));
}

#[test]
fn permutations_of_two_positions_equal_pgbenchs() {
    let table = [(0, 5431, 0), (1, 5431, 1), (0, 5433, 1), (1, 5433, 0)];
    for (value, seed, place) in table {
        assert_eq!(permute(value, 2, seed), place, "{value} {seed}");
    }
}

#[test]
fn a_range_of_one_integer_draws_nothing() {
    let mut prng = Prng::new(1);
    assert_eq!(uniform(&mut prng, 7, 7), 7);
    assert_eq!(zipfian(&mut prng, 7, 7, 1.5), 7);
    assert_eq!(prng, Prng::new(1));
}

#[test]
fn streams_are_forked_from_clients_to_threads() {
    let drawn = Streams::new(9, 3, 2, false);
    let mut base = Prng::new(9);
    let clients: Vec<_> = (0..3).map(|_| Prng::new(base.bits())).collect();
    assert_eq!(drawn.clients, clients);
    assert_eq!(drawn.default_seed, Some(base.bits() as i64));
    assert_eq!(drawn.threads[0].choose, Prng::new(base.bits()));
    let given = Streams::new(9, 3, 2, true);
    assert_eq!(given.default_seed, None);
    assert_ne!(given.threads, drawn.threads);
}

#[test]
fn clients_are_distributed_to_threads_evenly() {
    let table: [(usize, usize, &[usize]); 5] =
        [(10, 4, &[3, 3, 2, 2]), (4, 4, &[1; 4]), (2, 5, &[1, 1]), (7, 1, &[7]), (8, 3, &[3, 3, 2])];
    for (clients, threads, shares) in table {
        assert_eq!(clients_per_thread(clients, threads), shares, "{clients} {threads}");
    }
}

#[test]
fn poisson_intervals_have_the_requested_mean() {
    let mut prng = Prng::new(3);
    let sum: i64 = (0..100_000).map(|_| poisson_wait(&mut prng, 1000.0)).sum();
    // The SD of the mean of 100,000 intervals is 1000 / sqrt(100,000), about 3.2.
    assert!((sum as f64 / 100_000.0 - 1000.0).abs() < 20.0, "{sum}");
}

#[test]
fn nan_parameters_terminate() {
    let mut prng = Prng::new(3);
    exponential(&mut prng, 1, 10, f64::INFINITY);
    exponential(&mut prng, 1, 10, f64::NAN);
    gaussian(&mut prng, i64::MIN, -2, f64::INFINITY);
    gaussian(&mut prng, 1, 10, f64::NAN);
}

proptest! {
    #[test]
    fn a_permutation_is_a_bijection(size in 1_i64..300, seed: i64, shift in 0_i64..1000) {
        let mut places: Vec<_> = (shift..shift + size).map(|value| permute(value, size, seed)).collect();
        places.sort_unstable();
        prop_assert!(places.into_iter().eq(0..size));
    }

    #[test]
    fn draws_stay_in_their_range(seed: u64, a: i64, width in 0..i64::MAX - 1) {
        let (min, Some(max)) = (a, a.checked_add(width)) else { return Ok(()) };
        let mut prng = Prng::new(seed);
        for drawn in [
            uniform(&mut prng, min, max),
            exponential(&mut prng, min, max, 3.0),
            gaussian(&mut prng, min, max, 3.0),
            zipfian(&mut prng, min, max, 1.2),
        ] {
            prop_assert!((min..=max).contains(&drawn), "{drawn}");
        }
    }
}
