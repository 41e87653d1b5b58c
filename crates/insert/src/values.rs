//! Values of rows, and their text.

use std::fmt::Write;

use driver::Stream;

/// Number of values of each column, from 0.
pub const CASH_REGISTERS: u64 = 1000;
/// See [`CASH_REGISTERS`].
pub const PRODUCTS: u64 = 10_000;
/// See [`CASH_REGISTERS`].
pub const CUSTOMERS: u64 = 100_000;
/// See [`CASH_REGISTERS`].
pub const PRICES: u64 = 500;
/// Shortest and longest data, in bytes.
const DATA_BYTES: (u64, u64) = (10, 20);
/// Share of the data that is random. The rest is the letter a.
const RANDOM_PERCENT: usize = 34;
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const DAY_S: i64 = 86_400;

/// The values of a row, without key and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Cash register.
    pub cash_register: u32,
    /// Customer.
    pub customer: u32,
    /// Product.
    pub product: u32,
    /// Price.
    pub price: u32,
    data: [u8; DATA_BYTES.1 as usize],
    length: usize,
}

impl Item {
    /// Draws the values of a row.
    #[inline]
    pub fn draw(stream: &mut Stream) -> Self {
        let mut below = |below: u64| stream.below(below) as u32;
        let (cash_register, customer) = (below(CASH_REGISTERS), below(CUSTOMERS));
        let (product, price) = (below(PRODUCTS), below(PRICES));
        let length = (DATA_BYTES.0 + stream.below(DATA_BYTES.1 - DATA_BYTES.0 + 1)) as usize;
        let mut data = [b'a'; DATA_BYTES.1 as usize];
        let mut bits = stream.below(1 << 48);
        for byte in data.iter_mut().take((length * RANDOM_PERCENT + 50) / 100) {
            *byte = BASE64[(bits % 64) as usize];
            bits /= 64;
        }
        Self { cash_register, customer, product, price, data, length }
    }

    /// The data.
    pub fn data(&self) -> &[u8] {
        &self.data[..self.length]
    }

    /// Appends the row to the list of VALUES of an INSERT.
    #[inline]
    pub fn append(&self, time: &str, sql: &mut String) {
        let Self { cash_register, customer, product, price, .. } = self;
        sql.push_str("('");
        sql.push_str(time);
        sql.push_str("',");
        for number in [cash_register, customer, product, price] {
            append_number(*number, sql);
            sql.push(',');
        }
        sql.push('\'');
        self.data().iter().for_each(|&byte| sql.push(char::from(byte)));
        sql.push_str("')");
    }
}

/// Appends a number below 10^6: faster than the formatter, for four numbers in each row.
#[inline]
fn append_number(number: u32, sql: &mut String) {
    let (mut digits, mut left, mut first) = ([b'0'; 10], number, 9);
    loop {
        digits[first] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
        first -= 1;
    }
    digits[first..].iter().for_each(|&digit| sql.push(char::from(digit)));
}

/// Replaces `out` by a time in seconds since 1970, as text of a timestamp in UTC.
pub fn timestamp(since_1970_s: i64, out: &mut String) {
    let (mut days, second) = (since_1970_s.div_euclid(DAY_S), since_1970_s.rem_euclid(DAY_S));
    let mut year = 1970;
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while days >= 365 + i64::from(is_leap(year)) {
        days -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + i64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    out.clear();
    let (month, day) = (month + 1, days + 1);
    // Writing to a String cannot fail.
    let _ = write!(out, "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_domains_and_two_thirds_of_the_data_are_the_letter_a() {
        let mut stream = Stream::new(4);
        let items: Vec<_> = (0..50_000).map(|_| Item::draw(&mut stream)).collect();
        let largest = |of: fn(&Item) -> u32| items.iter().map(of).max();
        assert_eq!(largest(|item| item.cash_register), Some(999));
        assert_eq!(largest(|item| item.product), Some(9999));
        assert_eq!(largest(|item| item.price), Some(499));
        assert!(largest(|item| item.customer).is_some_and(|most| (99_900..100_000).contains(&most)));
        let lengths: Vec<_> = items.iter().map(|item| item.data().len()).collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&10), Some(&20)));
        let a = items.iter().flat_map(Item::data).filter(|&&byte| byte == b'a').count();
        let share = a as f64 / lengths.iter().sum::<usize>() as f64;
        assert!((share - 0.66).abs() < 0.02, "{share}");
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let mut text = String::new();
        for (since_1970_s, expected) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_767_225_599, "2025-12-31 23:59:59"),
            (1_772_409_661, "2026-03-02 00:01:01"),
        ] {
            timestamp(since_1970_s, &mut text);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn a_row_is_a_list_of_literals() {
        let item =
            Item { data: [b'x'; 20], length: 10, cash_register: 0, customer: 99_999, product: 10, price: 7 };
        let mut sql = String::new();
        item.append("2026-01-01 00:00:00", &mut sql);
        assert_eq!(sql, "('2026-01-01 00:00:00',0,99999,10,7,'xxxxxxxxxx')");
    }
}
