//! The expected values were printed by sysbench 1.0.20 with `--rand-seed=42`.

use super::*;
use crate::program::Program;
use crate::sources::Sources;
use Distribution::{Gaussian, Pareto, Special, Uniform, Zipfian};

fn of_thread(thread: usize) -> Random {
    let bits = seeds(42).nth(thread).expect("one of many");
    Random::new(bits, RandomOptions::default(), 0)
}

#[test]
fn each_thread_has_the_generator_of_sysbench() {
    let cases = [
        (0, [6_678_695_823_595_818_893, 12_985_727_069_636_131_040, 13_785_426_779_914_018_964]),
        (1, [7_773_676_201_520_882_466, 9_774_143_786_272_637_588, 10_283_382_601_570_860_577]),
    ];
    for (thread, expected) in cases {
        let mut random = of_thread(thread);
        assert_eq!([(); 3].map(|()| random.bits.next_u64()), expected);
    }
}

#[test]
fn the_distributions_are_those_of_sysbench() {
    let mut random = of_thread(0);
    for _ in 0..4 {
        random.bits.next_u64();
    }
    let units = ["0.26406238639874102", "0.9989626900040931", "0.84304411116177502", "0.60631854862121726"];
    for printed in units {
        let expected: f64 = printed.parse().expect("a number");
        assert_eq!(random.bits.unit().to_bits(), expected.to_bits());
    }
    let cases: [(Distribution, &[u32]); 4] = [
        (Distribution::Uniform, &[224, 381, 354, 939]),
        (Distribution::Gaussian, &[577, 409, 488, 472]),
        (Distribution::Special, &[498, 479, 499, 500, 503, 501, 499, 285]),
        (Distribution::Pareto, &[8, 940, 212, 8, 3, 1, 1, 1]),
    ];
    for (distribution, expected) in cases {
        let drawn: Vec<_> = expected.iter().map(|_| random.draw(distribution, 1, 1000)).collect();
        assert_eq!(drawn, expected, "{distribution:?}");
    }
    let mut text = Vec::new();
    random.fill(b"##-@@ abc", &mut text);
    assert_eq!(text, b"38-wp abc");
    assert_eq!([(); 4].map(|()| random.default(1, 1000)), [499, 503, 503, 499]);
}

#[test]
fn the_width_of_all_integers_is_zero_as_in_sysbench() {
    assert_eq!(of_thread(0).bits.uniform(0, u32::MAX), 0);
}

#[test]
fn ranks_follow_the_law_of_zipf() {
    let (count, exponent, draws) = (10, 0.8, 200_000);
    let mut options = RandomOptions { zipfian_exponent: exponent, ..RandomOptions::default() };
    options.distribution = Distribution::Zipfian;
    let mut random = Random::new(seeds(1).next().expect("the first"), options, 0);
    let mut seen = [0_u32; 10];
    for _ in 0..draws {
        seen[random.default(1, count) as usize - 1] += 1;
    }
    let weights: Vec<_> = (1..=count).map(|rank| f64::from(rank).powf(-exponent)).collect();
    let total: f64 = weights.iter().sum();
    for (n, weight) in seen.into_iter().zip(&weights) {
        let expected = f64::from(draws) * weight / total;
        assert!((f64::from(n) - expected).abs() < 5.0 * expected.sqrt(), "{seen:?}");
    }
}

#[test]
fn the_special_distribution_draws_once_for_a_range_of_one_value() {
    let (mut random, mut other) = (of_thread(0), of_thread(0));
    for _ in 0..100 {
        random.draw(Special, 7, 7);
        other.bits.next_u64();
    }
    assert_eq!(random.bits, other.bits);
}

#[test]
fn a_range_of_one_value_gives_it() {
    let mut random = of_thread(0);
    for distribution in [Uniform, Gaussian, Special, Pareto, Zipfian] {
        assert_eq!(random.draw(distribution, 5, 5), 5, "{distribution:?}");
    }
}

#[test]
fn unique_numbers_do_not_come_twice() {
    let mut random = of_thread(0);
    let mut seen: Vec<_> = (0..100_000).map(|_| random.unique()).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 100_000);
}

#[test]
fn unique_numbers_of_clients_do_not_meet() {
    let program = Program::new("t", "", Sources::default(), 3, 7, |_| {});
    let mut seen: Vec<_> = (0..3)
        .flat_map(|client| {
            let mut random = program.random(client);
            (0..50_000).map(move |_| random.unique())
        })
        .collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 150_000);
}

#[test]
fn options_outside_their_range_are_refused() {
    let sound = RandomOptions::default();
    assert_eq!(sound.checked(), Ok(sound));
    let cases = [
        RandomOptions { iterations: 0, ..sound },
        RandomOptions { special_percent: 101, ..sound },
        RandomOptions { special_share_percent: 101, ..sound },
        RandomOptions { pareto_h: 1.0, ..sound },
        RandomOptions { zipfian_exponent: -0.1, ..sound },
    ];
    for options in cases {
        assert!(options.checked().is_err(), "{options:?}");
    }
    assert!(Distribution::find("normal").is_err());
}
