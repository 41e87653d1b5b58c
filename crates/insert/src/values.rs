//! Values of rows, and their text.

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
/// Share of the data, at their end, that is random: 3/8. The rest is the letter a.
const RANDOM: (usize, usize) = (3, 8);
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

/// Longest text of a row: time, four numbers, data, and what is between them.
const ROW_BYTES_MAX: usize = 80;
/// Bytes of the text of a time.
const TIME_BYTES: usize = 19;

impl Item {
    /// Draws the values of a row. One random number has all numbers, another one the data: an insert has many rows.
    #[inline]
    pub fn draw(stream: &mut Stream) -> Self {
        let lengths = DATA_BYTES.1 - DATA_BYTES.0 + 1;
        let mut left = stream.below(CASH_REGISTERS * CUSTOMERS * PRODUCTS * PRICES * lengths);
        let mut next = |values: u64| {
            let value = left % values;
            left /= values;
            value
        };
        let (cash_register, customer) = (next(CASH_REGISTERS) as u32, next(CUSTOMERS) as u32);
        let (product, price) = (next(PRODUCTS) as u32, next(PRICES) as u32);
        let length = (DATA_BYTES.0 + next(lengths)) as usize;
        let mut data = [b'a'; DATA_BYTES.1 as usize];
        let mut bits = stream.below(1 << 48);
        for byte in data[..length].iter_mut().rev().take(length * RANDOM.0 / RANDOM.1) {
            *byte = BASE64[(bits % 64) as usize];
            bits /= 64;
        }
        Self { cash_register, customer, product, price, data, length }
    }

    /// The data.
    pub fn data(&self) -> &[u8] {
        &self.data[..self.length]
    }

    /// Appends the row to the list of VALUES of an INSERT, with a time of [`timestamp`].
    #[inline]
    pub fn append(&self, time: &[u8; TIME_BYTES], sql: &mut Vec<u8>) {
        let mut row = Row { text: [0; ROW_BYTES_MAX], length: 0 };
        row.push(b"('");
        row.push(time);
        row.push(b"',");
        for number in [self.cash_register, self.customer, self.product] {
            row.push_number(number);
            row.push(b",");
        }
        row.push_number(self.price);
        row.push(b".00,'"); // as in the benchmark: the server converts it
        row.push(self.data());
        row.push(b"')");
        sql.extend_from_slice(&row.text[..row.length]);
    }
}

/// The text of a row. Its length has a limit, so that it needs no allocation.
struct Row {
    text: [u8; ROW_BYTES_MAX],
    length: usize,
}

impl Row {
    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        self.text[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Appends a number of at most five digits.
    #[inline]
    fn push_number(&mut self, number: u32) {
        let digits = 1 + [10, 100, 1000, 10_000].iter().filter(|&&power| number >= power).count();
        let mut left = number;
        for at in (self.length..self.length + digits).rev() {
            self.text[at] = b'0' + (left % 10) as u8;
            left /= 10;
        }
        self.length += digits;
    }
}

/// A time in seconds since 1970, as text of a timestamp in UTC.
pub fn timestamp(since_1970_s: i64) -> [u8; TIME_BYTES] {
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
    let (month, day) = (month + 1, days + 1);
    let text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
    text.as_bytes().try_into().unwrap_or([b'0'; TIME_BYTES])
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
        assert!(items.iter().all(|item| item.data().starts_with(b"aaaaaaa")));
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (since_1970_s, expected) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_767_225_599, "2025-12-31 23:59:59"),
            (1_772_409_661, "2026-03-02 00:01:01"),
        ] {
            assert_eq!(timestamp(since_1970_s), *expected.as_bytes());
        }
    }

    #[test]
    fn a_row_is_a_list_of_literals() {
        let item =
            Item { data: [b'x'; 20], length: 10, cash_register: 0, customer: 99_999, product: 10, price: 7 };
        let mut sql = Vec::new();
        item.append(b"2026-01-01 00:00:00", &mut sql);
        assert_eq!(sql, b"('2026-01-01 00:00:00',0,99999,10,7.00,'xxxxxxxxxx')");
    }
}
