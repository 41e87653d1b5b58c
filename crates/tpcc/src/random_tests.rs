use super::*;

fn stream(id: u64) -> Stream {
    Stream::new(7, Purpose::Inputs, &[id])
}

/// Σ (observed − expected)² / expected over equally likely bins.
fn chi_square(bins: &[u32], n: u32) -> f64 {
    let expected = f64::from(n) / bins.len() as f64;
    bins.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum()
}

#[test]
fn a_stream_is_a_function_of_its_arguments() {
    let first: Vec<u64> = (0..4).map(|_| 0).scan(stream(1), |s, _: i32| Some(s.bits())).collect();
    let again: Vec<u64> = (0..4).map(|_| 0).scan(stream(1), |s, _: i32| Some(s.bits())).collect();
    assert_eq!(first, again);
}

#[test]
fn streams_of_the_format_never_change() {
    // Golden values: a dataset's bytes are a function of them, so a change is a new format version.
    assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf, "splitmix64's first output for seed 0, as published");
    assert_eq!(Stream::new(1, Purpose::Customer, &[2, 3, 4]).bits(), GOLDEN_CUSTOMER);
}

const GOLDEN_CUSTOMER: u64 = 13_561_106_895_551_845_111;

#[test]
fn streams_differ_in_seed_purpose_and_every_id() {
    let mut seen = std::collections::HashSet::new();
    for seed in 0..4 {
        for purpose in [Purpose::Item, Purpose::Stock] {
            for first in 0..30 {
                for second in 0..30 {
                    assert!(seen.insert(Stream::new(seed, purpose, &[first, second]).bits()));
                }
            }
        }
    }
    assert!(seen.insert(Stream::new(0, Purpose::Item, &[0]).bits()));
}

#[test]
fn first_draws_of_consecutive_streams_are_uniform() {
    let mut bins = [0; 100];
    for id in 0..100_000 {
        bins[stream(id).below(100) as usize] += 1;
    }
    let x2 = chi_square(&bins, 100_000);
    assert!((50.0..165.0).contains(&x2), "chi square of 99 degrees was {x2}");
}

#[test]
fn uniform_reaches_both_ends_and_nothing_else() {
    let mut bins = [0; 11];
    let mut stream = stream(1);
    for _ in 0..11_000 {
        bins[(stream.uniform(5, 15) - 5) as usize] += 1;
    }
    let x2 = chi_square(&bins, 11_000);
    assert!(x2 < 35.0, "chi square of 10 degrees was {x2}");
    assert_eq!(stream.uniform(9, 9), 9);
}

#[test]
fn below_has_no_modulo_bias_for_a_range_of_three_quarters_of_the_words() {
    // With a plain remainder the lower third of such a range comes twice as often.
    let n = 3 << 30;
    let mut stream = stream(2);
    let lower = (0..30_000).filter(|_| stream.below(n) < n / 3).count();
    assert!((9_600..10_400).contains(&lower), "{lower} of 30000 draws in the lower third");
}

#[test]
fn nurand_has_exactly_the_distribution_of_its_formula() {
    // Small parameters, all pairs of inner draws counted by hand, against the frequencies drawn.
    let (a, c, low, high) = (7_u32, 5_u32, 3_u32, 12_u32);
    let mut expected = [0_u32; 13];
    for left in 0..=a {
        for right in low..=high {
            expected[(((left | right) + c) % (high - low + 1) + low) as usize] += 1;
        }
    }
    let pairs = (a + 1) * (high - low + 1);
    let n = 200_000;
    let mut observed = [0_u32; 13];
    let mut stream = stream(3);
    for _ in 0..n {
        observed[stream.nurand(a, c, low, high) as usize] += 1;
    }
    for value in 0..13 {
        let p = f64::from(expected[value]) / f64::from(pairs);
        let sigma = (f64::from(n) * p * (1.0 - p)).sqrt();
        let off = (f64::from(observed[value]) - f64::from(n) * p).abs();
        assert!(off <= 4.5 * sigma, "value {value}: {} of {n}, p = {p}", observed[value]);
    }
}

#[test]
fn text_uses_all_64_symbols_equally_and_nothing_else() {
    for length in [0, 1, 7, 8, 9, 31, 32, 33, 500] {
        let mut text = vec![0; length];
        stream(4).text(&mut text);
        assert!(text.iter().all(|c| c.is_ascii_alphanumeric() || b"./".contains(c)), "length {length}");
    }
    let mut text = vec![0; 64_000];
    stream(5).text(&mut text);
    let mut bins = [0; 128];
    for symbol in text {
        bins[symbol as usize] += 1;
    }
    let used: Vec<u32> = bins.into_iter().filter(|&count| count > 0).collect();
    assert_eq!(used.len(), 64);
    let x2 = chi_square(&used, 64_000);
    assert!((30.0..115.0).contains(&x2), "chi square of 63 degrees was {x2}");
}

#[test]
fn digits_are_digits() {
    let mut text = [0; 10_000];
    stream(6).digits(&mut text);
    let mut bins = [0; 10];
    for symbol in text {
        bins[(symbol - b'0') as usize] += 1;
    }
    assert!(chi_square(&bins, 10_000) < 35.0);
}

#[test]
fn last_names_are_spelled_by_their_digits() {
    let cases = [(0, "BARBARBAR"), (371, "PRICALLYOUGHT"), (999, "EINGEINGEING"), (808, "ATIONBARATION")];
    for (number, expected) in cases {
        let mut name = [0; LAST_NAME_BYTES_MAX];
        let length = last_name(number, &mut name);
        assert_eq!(&name[..length], expected.as_bytes());
    }
    let mut distinct = std::collections::HashSet::new();
    for number in 0..1000 {
        let mut name = [0; LAST_NAME_BYTES_MAX];
        let length = last_name(number, &mut name);
        distinct.insert(name[..length].to_vec());
    }
    assert_eq!(distinct.len(), 1000);
}

#[test]
fn a_run_constant_keeps_the_distance_that_the_specification_wants() {
    for seed in 0..200 {
        let load = c_load(seed);
        for run in 0..20 {
            let constants = run_constants(run, load);
            let distance = load.abs_diff(constants.c_last);
            assert!((65..=119).contains(&distance) && distance != 96 && distance != 112);
            assert!(constants.c_last <= 255 && constants.c_id <= 1023 && constants.item <= 8191);
        }
    }
}

#[test]
fn every_load_constant_has_a_run_constant() {
    for load in 0..=255 {
        assert!((0..=255).any(|run| may_follow(load, run)), "no run constant for {load}");
    }
}

#[test]
fn a_permutation_holds_every_number_once() {
    let mut order = [0; 3000];
    stream(8).permutation(&mut order);
    let mut sorted = order;
    sorted.sort_unstable();
    assert!(sorted.iter().copied().eq(1..=3000));
    assert_ne!(order, sorted);
}

#[test]
fn all_orders_of_four_cards_are_equally_likely() {
    let mut counts = std::collections::HashMap::new();
    let mut stream = stream(9);
    for _ in 0..24_000 {
        let mut cards = [0, 1, 2, 3];
        stream.shuffle(&mut cards);
        *counts.entry(cards).or_insert(0) += 1;
    }
    let bins: Vec<u32> = counts.into_values().collect();
    assert_eq!(bins.len(), 24);
    assert!(chi_square(&bins, 24_000) < 55.0);
}
