//! Values of rows: lengths, bytes, times.

use super::specification::{Distributions, Edition, Shape};
use driver::{Stream, derive_seed};

/// Longest piece of new or repeated bytes.
const PIECE_BYTES: usize = 128;
/// The seed of the bytes that values repeat: the same in load and run, so that values of both have them.
const MOTIF_SEED: u64 = 3;
/// Milliseconds of 2026-01-01 in the Unix epoch: the latest time of loaded rows. With the time of the load, equal loads
/// would differ.
const LOADED_MS: i64 = 1_767_225_600_000;

/// A kind of data.
#[derive(Clone, Debug)]
pub struct Payload {
    median: f64,
    longest: usize,
    first_byte: u8,
    /// Number of different bytes.
    range: u64,
    /// Bytes that are drawn at once.
    digits: usize,
    /// Probability that a piece is new.
    new: f64,
    motifs: Vec<u8>,
    /// The second one of two normal numbers, which come in pairs.
    spare: Option<f64>,
}

impl Payload {
    /// The data of links: 32 to 100, at most 254 bytes.
    pub fn of_links(shape: Shape) -> Self {
        let median = if shape.edition == Edition::Facebook { 8.0 } else { 23.0 };
        // LinkBench looks the length of the buffer up among the values of its settings, and takes its default.
        let buffer = if shape.distributions == Distributions::Executed { 512 } else { 128 };
        Self::new(median, 254, (32, 100), 0.225, buffer)
    }

    /// The data of nodes: 50 to 220, less than 1 MiB.
    pub fn of_nodes(shape: Shape) -> Self {
        let median = if shape.edition == Edition::Facebook { 128.0 } else { 168.0 };
        Self::new(median, (1 << 20) - 1, (50, 220), 0.63, 512)
    }

    fn new(median: f64, longest: usize, (first_byte, last): (u8, u8), new: f64, buffer: usize) -> Self {
        let range = u64::from(last - first_byte) + 1;
        let digits = (63.0 / (range as f64).log2()) as usize;
        let none = Vec::new();
        let mut made = Self { median, longest, first_byte, range, digits, new, motifs: none, spare: None };
        let mut motifs = vec![0; buffer];
        made.fresh(&mut Stream::new(derive_seed(MOTIF_SEED, range)), &mut motifs);
        made.motifs = motifs;
        made
    }

    /// The median length.
    pub fn median(&self) -> f64 {
        self.median
    }

    /// Replaces `out` by new data.
    #[inline]
    pub fn fill(&mut self, stream: &mut Stream, out: &mut Vec<u8>) {
        let length = self.length(stream);
        out.clear();
        out.resize(length, 0);
        self.bytes(stream, out);
    }

    /// Appends a column of COPY BINARY with new data.
    #[inline]
    pub fn append(&mut self, stream: &mut Stream, out: &mut Vec<u8>) {
        let length = self.length(stream);
        out.extend_from_slice(&(length as i32).to_be_bytes());
        let start = out.len();
        out.resize(start + length, 0);
        self.bytes(stream, &mut out[start..]);
    }

    /// Log-normal: the logarithm has standard deviation 1.
    #[inline]
    fn length(&mut self, stream: &mut Stream) -> usize {
        let normal = self.spare.take().unwrap_or_else(|| {
            let (distance, angle) =
                ((2.0 * stream.exponential()).sqrt(), std::f64::consts::TAU * stream.unit());
            self.spare = Some(distance * angle.sin());
            distance * angle.cos()
        });
        ((normal.exp() * self.median).round() as usize).min(self.longest)
    }

    #[inline]
    fn bytes(&self, stream: &mut Stream, out: &mut [u8]) {
        for piece in out.chunks_mut(PIECE_BYTES) {
            if stream.unit() <= self.new {
                self.fresh(stream, piece);
            } else {
                let start = stream.below((self.motifs.len() - piece.len() + 1) as u64) as usize;
                piece.copy_from_slice(&self.motifs[start..start + piece.len()]);
            }
        }
    }

    /// Fills with uniform bytes: a number of several digits gives as many.
    #[inline]
    fn fresh(&self, stream: &mut Stream, out: &mut [u8]) {
        for group in out.chunks_mut(self.digits) {
            let mut number = stream.below(self.range.pow(group.len() as u32));
            for byte in group {
                *byte = self.first_byte + (number % self.range) as u8;
                number /= self.range;
            }
        }
    }
}

/// The time of a loaded link, in milliseconds: uniform over the last 2^32. `seed` is that of the links of a node and type.
#[inline]
pub fn link_time_ms(seed: u64, index: u64) -> i64 {
    LOADED_MS - i64::from((derive_seed(seed, index) >> 32) as u32) - 1
}

/// The time of a loaded node, in seconds.
pub const NODE_TIME_S: i32 = (LOADED_MS / 1000) as i32;

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(edition: Edition, distributions: Distributions) -> Shape {
        Shape { edition, distributions }
    }

    #[test]
    fn lengths_have_their_median_and_standard_deviation() {
        for (edition, median) in [(Edition::Facebook, 128.0_f64), (Edition::Fork, 168.0)] {
            let mut payload = Payload::of_nodes(shape(edition, Distributions::Executed));
            let (mut stream, mut data) = (Stream::new(5), Vec::new());
            let mut logarithms: Vec<f64> = (0..40_000)
                .map(|_| {
                    payload.fill(&mut stream, &mut data);
                    (data.len() as f64).max(0.5).ln()
                })
                .collect();
            let mean = logarithms.iter().sum::<f64>() / 40_000.0;
            let variance = logarithms.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 40_000.0;
            logarithms.sort_by(f64::total_cmp);
            assert!((logarithms[20_000] - median.ln()).abs() < 0.025, "{}", logarithms[20_000].exp());
            assert!((variance - 1.0).abs() < 0.03, "{variance}");
        }
    }

    #[test]
    fn links_have_bytes_in_range_and_at_most_254_and_repeat_a_buffer() {
        for (distributions, buffer) in [(Distributions::Executed, 512), (Distributions::Configured, 128)] {
            let mut payload = Payload::of_links(shape(Edition::Fork, distributions));
            assert_eq!(payload.motifs.len(), buffer);
            let (mut stream, mut data) = (Stream::new(5), Vec::new());
            let (mut repeated, mut long, mut longest) = (0, 0, 0);
            for _ in 0..20_000 {
                payload.fill(&mut stream, &mut data);
                assert!(data.iter().all(|byte| (32..=100).contains(byte)));
                longest = longest.max(data.len());
                if data.len() >= 16 && data.len() <= PIECE_BYTES {
                    long += 1;
                    repeated += u32::from(payload.motifs.windows(data.len()).any(|window| window == data));
                }
            }
            assert_eq!(longest, 254);
            let share = f64::from(repeated) / f64::from(long);
            assert!((share - 0.775).abs() < 0.02, "{share}");
        }
    }

    #[test]
    fn every_byte_of_the_range_is_as_frequent() {
        let payload = Payload::of_nodes(Shape::default());
        let mut bytes = vec![0; 171_000];
        payload.fresh(&mut Stream::new(1), &mut bytes);
        let mut counts = [0_u32; 256];
        for byte in bytes {
            counts[byte as usize] += 1;
        }
        // Each is binomial with mean 1000 and standard deviation 32.
        assert!(counts[50..=220].iter().all(|n| (800..1200).contains(n)));
        assert_eq!(counts[50..=220].iter().sum::<u32>(), 171_000);
    }

    #[test]
    fn times_cover_fifty_days() {
        let times: Vec<_> = (0..10_000).map(|index| LOADED_MS - link_time_ms(9, index)).collect();
        assert!(times.iter().all(|&ago| (1..=1 << 32).contains(&ago)));
        let mean = times.iter().sum::<i64>() / 10_000;
        assert!((mean - (1 << 31)).abs() < 1 << 26, "{mean}");
    }
}
