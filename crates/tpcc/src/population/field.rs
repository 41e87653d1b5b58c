//! Columns of random or fixed text, written where they will be sent from.

use super::super::random::Stream;
use pgwire::copy;

/// A text of `low..=high` random characters.
#[inline]
pub fn random_text(stream: &mut Stream, low: u32, high: u32, out: &mut Vec<u8>) {
    let length = if low == high { low } else { stream.uniform(low, high) };
    stream.text(reserve(length as usize, out));
}

/// What the long texts consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filler {
    /// Random characters.
    Random,
    /// One random letter, repeated (deviation `one-letter-filler`).
    OneLetter,
}

/// A text of `low..=high` characters that nothing reads.
#[inline]
pub fn filler(stream: &mut Stream, filler: Filler, low: u32, high: u32, out: &mut Vec<u8>) {
    match filler {
        Filler::Random => random_text(stream, low, high, out),
        Filler::OneLetter => {
            let length = stream.uniform(low, high);
            let letter = b'a' + stream.below(26) as u8;
            reserve(length as usize, out).fill(letter);
        }
    }
}

/// A text of `count` random digits.
pub fn random_digits(stream: &mut Stream, count: usize, out: &mut Vec<u8>) {
    stream.digits(reserve(count, out));
}

/// `I_DATA` and `S_DATA`: 26..=50 random characters, in a tenth of the rows with ORIGINAL somewhere in them.
pub fn data(stream: &mut Stream, out: &mut Vec<u8>) {
    const WORD: &[u8] = b"ORIGINAL";
    let length = stream.uniform(26, 50);
    let text = reserve(length as usize, out);
    stream.text(text);
    if stream.one_in(10) {
        let place = stream.below(length - WORD.len() as u32 + 1) as usize;
        text[place..place + WORD.len()].copy_from_slice(WORD);
    }
}

/// Street, street, city, state and zip: five columns (clauses 4.3.2.7 and 4.3.3.1).
pub fn address(stream: &mut Stream, out: &mut Vec<u8>) {
    for _ in 0..3 {
        random_text(stream, 10, 20, out);
    }
    let state = [0; 2].map(|_: u8| b'A' + stream.below(26) as u8);
    copy::text(out, &state);
    let mut zip = *b"000011111";
    stream.digits(&mut zip[..4]);
    copy::text(out, &zip);
}

/// A prefix and `count` random small letters, as sysbench-tpcc has them.
pub fn prefixed(stream: &mut Stream, prefix: &[u8], count: usize, out: &mut Vec<u8>) {
    let text = reserve(prefix.len() + count, out);
    text[..prefix.len()].copy_from_slice(prefix);
    letters(stream, &mut text[prefix.len()..]);
}

/// Fills `text` with random small letters.
pub fn letters(stream: &mut Stream, text: &mut [u8]) {
    text.fill_with(|| b'a' + stream.below(26) as u8);
}

/// The columns of [`address`], as sysbench-tpcc has them.
pub fn prefixed_address(stream: &mut Stream, out: &mut Vec<u8>) {
    for prefix in [&b"street1-"[..], b"street2-", b"city-"] {
        prefixed(stream, prefix, 10, out);
    }
    prefixed(stream, b"", 2, out);
    let mut zip = *b"zip-00000";
    stream.digits(&mut zip[4..]);
    copy::text(out, &zip);
}

/// Writes a column's length and returns the room for its bytes.
#[inline]
fn reserve(length: usize, out: &mut Vec<u8>) -> &mut [u8] {
    out.extend_from_slice(&(length as i32).to_be_bytes());
    let start = out.len();
    out.resize(start + length, 0);
    &mut out[start..]
}
