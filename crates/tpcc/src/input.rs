//! The inputs of a transaction (clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1), drawn whole before it is sent.

use super::mix::Kind;
use super::population::{CUSTOMERS, DISTRICTS, ITEMS};
use super::random::{A_C_ID, A_C_LAST, A_ITEM, Constants, LAST_NAME_BYTES_MAX, Stream, last_name};

/// The most lines of an order.
pub const LINES_MAX: usize = 15;
/// An item that does not exist: what the last line of one order in a hundred asks for.
const UNUSED_ITEM: i32 = ITEMS as i32 + 1;

/// Where a terminal stands, and what its draws depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Desk {
    /// Warehouses in all.
    pub warehouses: u32,
    /// The terminal's warehouse, from 1.
    pub warehouse: u32,
    /// The terminal's district, from 1: what Stock-Level looks at. The other kinds draw theirs.
    pub district: u32,
    /// NURand's constants.
    pub constants: Constants,
}

impl Desk {
    /// The desk of client `client` of `clients`: warehouses in turn if there are enough clients, or else spread
    /// evenly; districts in turn within a warehouse.
    #[must_use]
    pub fn new(client: u32, clients: u32, warehouses: u32, constants: Constants) -> Self {
        let (warehouse, district) = if clients >= warehouses {
            (client % warehouses, client / warehouses % DISTRICTS)
        } else {
            let spread = u64::from(client) * u64::from(warehouses) / u64::from(clients);
            (spread as u32, 0)
        };
        Self { warehouses, warehouse: warehouse + 1, district: district + 1, constants }
    }

    /// Another warehouse than the terminal's own, each equally likely. Only where there is more than one.
    fn remote(&self, stream: &mut Stream) -> u32 {
        let other = stream.uniform(1, self.warehouses - 1);
        if other < self.warehouse { other } else { other + 1 }
    }

    /// The terminal's warehouse, or `percent` times in a hundred another one where there is one.
    fn supplier(&self, percent: u32, stream: &mut Stream) -> u32 {
        if stream.percent(percent) && self.warehouses > 1 { self.remote(stream) } else { self.warehouse }
    }
}

/// A customer as a terminal's user knows one.
#[derive(Clone, Copy, Debug)]
pub enum Customer {
    /// By number.
    Id(i32),
    /// By last name.
    Name(Name),
}

/// A last name.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// The number that it spells, 0..=999.
    pub number: u32,
    length: usize,
    letters: [u8; LAST_NAME_BYTES_MAX],
}

impl Name {
    /// The letters.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.letters[..self.length]
    }
}

impl Customer {
    /// 60 % by last name.
    fn draw(constants: Constants, stream: &mut Stream) -> Self {
        if !stream.percent(60) {
            return Self::Id(customer_id(constants, stream));
        }
        let number = stream.nurand(A_C_LAST, constants.c_last, 0, 999);
        let mut letters = [0; LAST_NAME_BYTES_MAX];
        let length = last_name(number, &mut letters);
        Self::Name(Name { number, length, letters })
    }

    /// The number, where it is known.
    #[must_use]
    pub fn id(&self) -> Option<i32> {
        match self {
            Self::Id(id) => Some(*id),
            Self::Name(_) => None,
        }
    }

    /// The name, where it is known.
    #[must_use]
    pub fn name(&self) -> Option<&[u8]> {
        match self {
            Self::Id(_) => None,
            Self::Name(name) => Some(name.as_bytes()),
        }
    }
}

fn customer_id(constants: Constants, stream: &mut Stream) -> i32 {
    stream.nurand(A_C_ID, constants.c_id, 1, CUSTOMERS) as i32
}

fn district(stream: &mut Stream) -> i16 {
    stream.uniform(1, DISTRICTS) as i16
}

/// An order to be entered.
#[derive(Clone, Copy, Debug)]
pub struct NewOrder {
    /// 1..=10.
    pub district: i16,
    /// 1..=3000.
    pub customer: i32,
    /// Whether the last line asks for an unused item.
    pub rolls_back: bool,
    /// Whether two lines ask for the same item of the same warehouse.
    pub has_duplicates: bool,
    lines: usize,
    items: [i32; LINES_MAX],
    supplies: [i32; LINES_MAX],
    quantities: [i16; LINES_MAX],
}

impl NewOrder {
    fn draw(desk: &Desk, stream: &mut Stream) -> Self {
        let (district, customer) = (district(stream), customer_id(desk.constants, stream));
        let lines = stream.uniform(5, LINES_MAX as u32) as usize;
        let rolls_back = stream.one_in(100);
        let mut drawn = [(0, 0, 0); LINES_MAX];
        for line in &mut drawn[..lines] {
            let item = stream.nurand(A_ITEM, desk.constants.item, 1, ITEMS) as i32;
            let supply = desk.supplier(1, stream) as i32;
            *line = (supply, item, stream.uniform(1, 10) as i16);
        }
        let valid = lines - usize::from(rolls_back);
        // All orders take stock in one order, so that no two of them wait for each other.
        drawn[..valid].sort_unstable();
        if rolls_back {
            drawn[valid].1 = UNUSED_ITEM;
        }
        let same = |pair: &[(i32, i32, i16)]| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1);
        Self {
            district,
            customer,
            rolls_back,
            has_duplicates: drawn[..lines].windows(2).any(same),
            lines,
            items: drawn.map(|line| line.1),
            supplies: drawn.map(|line| line.0),
            quantities: drawn.map(|line| line.2),
        }
    }

    /// Item numbers, by line.
    #[must_use]
    pub fn items(&self) -> &[i32] {
        &self.items[..self.lines]
    }

    /// Supplying warehouses, by line.
    #[must_use]
    pub fn supplies(&self) -> &[i32] {
        &self.supplies[..self.lines]
    }

    /// Quantities, by line.
    #[must_use]
    pub fn quantities(&self) -> &[i16] {
        &self.quantities[..self.lines]
    }
}

/// A payment.
#[derive(Clone, Copy, Debug)]
pub struct Payment {
    /// The district that is paid, 1..=10.
    pub district: i16,
    /// The customer's warehouse.
    pub customer_warehouse: i32,
    /// The customer's district.
    pub customer_district: i16,
    /// Who pays.
    pub customer: Customer,
    /// 1.00..=5000.00.
    pub amount_cents: i64,
}

impl Payment {
    fn draw(desk: &Desk, stream: &mut Stream) -> Self {
        let own = district(stream);
        let warehouse = desk.supplier(15, stream);
        let is_remote = warehouse != desk.warehouse;
        Self {
            district: own,
            customer_warehouse: warehouse as i32,
            customer_district: if is_remote { district(stream) } else { own },
            customer: Customer::draw(desk.constants, stream),
            amount_cents: i64::from(stream.uniform(100, 500_000)),
        }
    }
}

/// A question after the last order.
#[derive(Clone, Copy, Debug)]
pub struct OrderStatus {
    /// 1..=10.
    pub district: i16,
    /// Who asks.
    pub customer: Customer,
}

/// A transaction with all its inputs.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant)] // Drawn in place, never moved about.
pub enum Input {
    /// See [`NewOrder`].
    NewOrder(NewOrder),
    /// See [`Payment`].
    Payment(Payment),
    /// See [`OrderStatus`].
    OrderStatus(OrderStatus),
    /// By this carrier, 1..=10.
    Delivery(i16),
    /// Under this threshold, 10..=20.
    StockLevel(i16),
}

impl Input {
    /// Draws a transaction of a kind.
    #[must_use]
    pub fn draw(kind: Kind, desk: &Desk, stream: &mut Stream) -> Self {
        match kind {
            Kind::NewOrder => Self::NewOrder(NewOrder::draw(desk, stream)),
            Kind::Payment => Self::Payment(Payment::draw(desk, stream)),
            Kind::OrderStatus => Self::OrderStatus(OrderStatus {
                district: district(stream),
                customer: Customer::draw(desk.constants, stream),
            }),
            Kind::Delivery => Self::Delivery(stream.uniform(1, 10) as i16),
            Kind::StockLevel => Self::StockLevel(stream.uniform(10, 20) as i16),
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::NewOrder(_) => Kind::NewOrder,
            Self::Payment(_) => Kind::Payment,
            Self::OrderStatus(_) => Kind::OrderStatus,
            Self::Delivery(_) => Kind::Delivery,
            Self::StockLevel(_) => Kind::StockLevel,
        }
    }
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
