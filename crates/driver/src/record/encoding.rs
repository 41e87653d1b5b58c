//! HdrHistogram's V2 encoding, which its libraries in all languages read.

use super::{DIGITS, HIGHEST, Histogram, LOWEST};

/// Cookie of the encoding.
const COOKIE: u32 = 0x1c84_9313;
/// Cookie of the encoding within a zlib stream.
const COMPRESSED_COOKIE: u32 = 0x1c84_9314;
/// Bits of a sub-bucket index; three significant digits take 2048 sub-buckets.
const SUB_BUCKET_BITS: u32 = 11;
/// zlib header of uncompressed data.
const ZLIB_HEADER: [u8; 2] = [0x78, 0x01];
/// Maximum size of an uncompressed block.
const BLOCK_BYTES_MAX: usize = 0xFFFF;
const ADLER_MODULUS: u32 = 65521;

impl Histogram {
    /// Encodes the histogram, with values in ns.
    #[must_use]
    pub fn encoded(&self) -> Vec<u8> {
        let mut counts = Vec::new();
        let mut next = 0;
        for (value_ns, count) in self.bins() {
            let place = place(value_ns);
            append_empty(&mut counts, place - next);
            append_number(&mut counts, count as i64);
            next = place + 1;
        }
        if next == 0 {
            append_empty(&mut counts, 1);
        }
        let mut out = Vec::with_capacity(40 + counts.len());
        let normalising_offset = 0;
        for field in [COOKIE, counts.len() as u32, normalising_offset, u32::from(DIGITS)] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        let ratio_of_doubles = 1.0_f64;
        for field in [LOWEST, HIGHEST.0, ratio_of_doubles.to_bits()] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out.extend_from_slice(&counts);
        out
    }

    /// Encodes the histogram in a zlib stream, as in histogram logs.
    ///
    /// It is not compressed: a log has few histograms, and empty bins take no space anyway.
    #[must_use]
    pub fn encoded_for_log(&self) -> Vec<u8> {
        let zlib = stored(&self.encoded());
        let mut out = Vec::with_capacity(8 + zlib.len());
        out.extend_from_slice(&COMPRESSED_COOKIE.to_be_bytes());
        out.extend_from_slice(&(zlib.len() as u32).to_be_bytes());
        out.extend_from_slice(&zlib);
        out
    }
}

/// The index of the bin of a value.
fn place(value: u64) -> u64 {
    let bucket = u64::from((u64::BITS - value.leading_zeros()).saturating_sub(SUB_BUCKET_BITS));
    (bucket << (SUB_BUCKET_BITS - 1)) + (value >> bucket)
}

/// Appends a run of empty bins.
fn append_empty(out: &mut Vec<u8>, bins: u64) {
    match bins {
        0 => {}
        1 => append_number(out, 0),
        _ => append_number(out, -(bins as i64)),
    }
}

/// Appends a ZigZag LEB128 number: seven bits per byte, lowest first; a ninth byte has eight.
fn append_number(out: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    for _ in 0..8 {
        if rest < 0x80 {
            out.push(rest as u8);
            return;
        }
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Wraps data in an uncompressed zlib stream.
fn stored(data: &[u8]) -> Vec<u8> {
    let mut out = ZLIB_HEADER.to_vec();
    let blocks = data.chunks(BLOCK_BYTES_MAX);
    let last = blocks.len().saturating_sub(1);
    for (number, block) in blocks.enumerate() {
        let length = block.len() as u16;
        out.push(u8::from(number == last));
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
    }
    let (mut low, mut high) = (1_u32, 0_u32);
    for &byte in data {
        low = (low + u32::from(byte)) % ADLER_MODULUS;
        high = (high + low) % ADLER_MODULUS;
    }
    out.extend_from_slice(&(high << 16 | low).to_be_bytes());
    out
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use reactor::Nanos;

    fn encoded(values: &[(u64, u64)]) -> String {
        let mut histogram = Histogram::default();
        for &(value, count) in values {
            histogram.record_many(Nanos(value), count);
        }
        STANDARD.encode(histogram.encoded())
    }

    /// Expected bytes in base64, from the `V2Serializer` of hdrhistogram 7.5.4 (Rust).
    #[test]
    fn the_encoding_has_the_bytes_of_hdrhistogram() {
        let some = [1_000, 250_000, 250_000, 1_500_000, 3_000_000, 70_000, 59_000_000_000].map(|ns| (ns, 1));
        let many = [(5, 1 << 33), (7, 1), (60_000_000_000, 1 << 56)];
        let cases: [(&[(u64, u64)], &str); 3] = [
            (&some, "HISTEwAAABMAAAAAAAAAAwAAAAAAAAABAAAADfhHWAA/8AAAAAAAAM8PArdhArUdBKsoAv0PAsnkAQI="),
            (&[], "HISTEwAAAAEAAAAAAAAAAwAAAAAAAAABAAAADfhHWAA/8AAAAAAAAAA="),
            (&many, "HISTEwAAABQAAAAAAAAAAwAAAAAAAAABAAAADfhHWAA/8AAAAAAAAAmAgICAQAAC56sDgICAgICAgIAC"),
        ];
        for (values, expected) in cases {
            assert_eq!(encoded(values), expected, "{values:?}");
        }
    }

    /// RFC 1950 and 1951. The checksum is that of Python's `zlib.adler32`.
    #[test]
    fn uncompressed_zlib_data_has_blocks_and_a_checksum() {
        assert_eq!(stored(b"pgdyno"), b"\x78\x01\x01\x06\x00\xf9\xffpgdyno\x08\xef\x02\x92");
        let long = stored(&vec![7; 0x1_0001]);
        assert_eq!(long[2..7], [0, 0xFF, 0xFF, 0, 0]);
        assert_eq!(long[7 + 0xFFFF..][..7], [1, 2, 0, 0xFD, 0xFF, 7, 7]);
        assert_eq!(long.len(), 2 + 5 + 0xFFFF + 5 + 2 + 4);
    }
}
