//! The inputs of a transaction (clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1), drawn whole before it is sent.

use super::deviation::{Deviation, Deviations};
use super::mix::Kind;
use super::population::{CUSTOMERS, DISTRICTS, ITEMS};
use super::random::{A_C_ID, A_C_LAST, A_ITEM, Constants, LAST_NAME_BYTES_MAX, Stream, last_name};

/// The most lines of an order.
pub const LINES_MAX: usize = 15;
/// An item that does not exist: what the last line of one order in a hundred asks for.
pub const UNUSED_ITEM: i32 = ITEMS as i32 + 1;

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
    /// What differs from the specification.
    pub deviations: Deviations,
}

impl Desk {
    /// The desk of client `client` of `clients`: warehouses in turn if there are enough clients, or else spread
    /// evenly; districts in turn within a warehouse.
    pub fn new(client: u32, clients: u32, warehouses: u32, constants: Constants) -> Self {
        let (warehouse, district) = if clients >= warehouses {
            (client % warehouses, client / warehouses % DISTRICTS)
        } else {
            let spread = u64::from(client) * u64::from(warehouses) / u64::from(clients);
            (spread as u32, 0)
        };
        let deviations = Deviations::NONE;
        Self { warehouses, warehouse: warehouse + 1, district: district + 1, constants, deviations }
    }

    /// Draws the warehouse and the district.
    pub fn draw_home(&mut self, stream: &mut Stream) {
        self.warehouse = stream.uniform(1, self.warehouses);
        self.district = stream.uniform(1, DISTRICTS);
    }

    fn has(&self, deviation: Deviation) -> bool {
        self.deviations.has(deviation)
    }

    /// A number by NURand, with its constant, or with one drawn for it.
    fn nurand(&self, a: u32, c: u32, low: u32, high: u32, stream: &mut Stream) -> u32 {
        let c = if self.has(Deviation::CRedrawn) { stream.uniform(0, a) } else { c };
        stream.nurand(a, c, low, high)
    }

    fn customer_id(&self, stream: &mut Stream) -> i32 {
        let id = if self.has(Deviation::UniformCustomers) {
            stream.uniform(1, CUSTOMERS)
        } else {
            self.nurand(A_C_ID, self.constants.c_id, 1, CUSTOMERS, stream)
        };
        id as i32
    }

    fn item(&self, stream: &mut Stream) -> i32 {
        let item = if self.has(Deviation::UniformItems) {
            stream.uniform(1, ITEMS)
        } else {
            self.nurand(A_ITEM, self.constants.item, 1, ITEMS, stream)
        };
        item as i32
    }

    /// Another warehouse than the terminal's own, each equally likely. Only where there is more than one.
    fn remote(&self, stream: &mut Stream) -> u32 {
        let other = stream.uniform(1, self.warehouses - 1);
        if other < self.warehouse { other } else { other + 1 }
    }

    /// The terminal's warehouse, or `percent` times in a hundred another one where there is one; and whether another one
    /// was meant.
    fn supplier(&self, percent: u32, stream: &mut Stream) -> (u32, bool) {
        let has_others = self.warehouses > 1 && !self.has(Deviation::NoRemoteWarehouse);
        match stream.percent(percent) {
            true if has_others => (self.remote(stream), true),
            // sysbench-tpcc looks for another warehouse, and takes its own.
            is_meant => (self.warehouse, is_meant && self.has(Deviation::SysbenchSql)),
        }
    }
}

/// A customer as a terminal's user knows one.
#[derive(Clone, Copy, Debug)]
pub enum Customer {
    /// By number.
    Id(i32),
    /// By last name.
    Name(Name),
    /// By a last name that no customer has, and the number that is used instead (deviation `literal-last-name`).
    Literal(Name, i32),
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
    fn new(number: u32) -> Self {
        let mut letters = [0; LAST_NAME_BYTES_MAX];
        let length = last_name(number, &mut letters);
        Self { number, length, letters }
    }

    /// The name of that number in the tally, spelled otherwise.
    fn spelled(number: u32, text: &str) -> Self {
        let mut letters = [0; LAST_NAME_BYTES_MAX];
        letters[..text.len()].copy_from_slice(text.as_bytes());
        Self { number, length: text.len(), letters }
    }

    /// The letters.
    pub fn as_bytes(&self) -> &[u8] {
        &self.letters[..self.length]
    }
}

impl Customer {
    /// 60 % by last name. `literal`: the text that stands for every name under `literal-last-name`.
    fn draw(desk: &Desk, literal: &str, stream: &mut Stream) -> Self {
        if !stream.percent(60) {
            return Self::Id(desk.customer_id(stream));
        }
        let number = desk.nurand(A_C_LAST, desk.constants.c_last, 0, 999, stream);
        if desk.has(Deviation::LiteralLastName) {
            return Self::Literal(Name::spelled(number, literal), desk.customer_id(stream));
        }
        Self::Name(Name::new(number))
    }

    /// The number, where it is known.
    pub fn id(&self) -> Option<i32> {
        match self {
            Self::Id(id) | Self::Literal(_, id) => Some(*id),
            Self::Name(_) => None,
        }
    }

    /// The name, where it is known.
    pub fn name(&self) -> Option<&[u8]> {
        match self {
            Self::Id(_) => None,
            Self::Name(name) | Self::Literal(name, _) => Some(name.as_bytes()),
        }
    }
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
    /// Whether a line asks for an unused item: the last one.
    pub rolls_back: bool,
    /// Whether two lines ask for the same item of the same warehouse.
    pub has_duplicates: bool,
    /// What `O_ALL_LOCAL` tells: no line is of a remote warehouse.
    pub all_local: bool,
    lines: usize,
    items: [i32; LINES_MAX],
    supplies: [i32; LINES_MAX],
    quantities: [i16; LINES_MAX],
}

impl NewOrder {
    fn draw(desk: &Desk, stream: &mut Stream) -> Self {
        let (district, customer) = (district(stream), desk.customer_id(stream));
        let lines = stream.uniform(5, LINES_MAX as u32) as usize;
        let rolls_back = stream.one_in(100) && !desk.has(Deviation::NoRollback);
        let (mut drawn, mut all_local) = ([(0, 0, 0); LINES_MAX], true);
        for line in &mut drawn[..lines] {
            let item = desk.item(stream);
            let (mut supply, is_remote) = desk.supplier(1, stream);
            if is_remote && desk.has(Deviation::SupplyFromAll) {
                supply = stream.uniform(1, desk.warehouses);
            }
            all_local &= !is_remote;
            *line = (supply as i32, item, stream.uniform(1, 10) as i16);
        }
        let valid = lines - usize::from(rolls_back);
        if !desk.has(Deviation::UnsortedLines) {
            // All orders take stock in one order, so that no two of them wait for each other.
            drawn[..valid].sort_unstable();
        }
        if rolls_back {
            let place = if desk.has(Deviation::SecondToLastItem) { valid - 1 } else { valid };
            drawn[place].1 = UNUSED_ITEM;
        }
        let same = |a: &(i32, i32, i16), b: &(i32, i32, i16)| (a.0, a.1) == (b.0, b.1);
        let has_duplicates = if desk.has(Deviation::UnsortedLines) {
            (1..lines).any(|line| drawn[..line].iter().any(|before| same(before, &drawn[line])))
        } else {
            drawn[..lines].windows(2).any(|pair| same(&pair[0], &pair[1]))
        };
        Self {
            district,
            customer,
            rolls_back,
            has_duplicates,
            all_local,
            lines,
            items: drawn.map(|line| line.1),
            supplies: drawn.map(|line| line.0),
            quantities: drawn.map(|line| line.2),
        }
    }

    /// Item numbers, by line.
    pub fn items(&self) -> &[i32] {
        &self.items[..self.lines]
    }

    /// Supplying warehouses, by line.
    pub fn supplies(&self) -> &[i32] {
        &self.supplies[..self.lines]
    }

    /// Quantities, by line.
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
        let (warehouse, is_remote) = desk.supplier(15, stream);
        Self {
            district: own,
            customer_warehouse: warehouse as i32,
            customer_district: if is_remote { district(stream) } else { own },
            customer: Customer::draw(desk, "$8", stream),
            amount_cents: if desk.has(Deviation::SysbenchSql) {
                i64::from(stream.uniform(1, 5000)) * 100
            } else {
                i64::from(stream.uniform(100, 500_000))
            },
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
    pub fn draw(kind: Kind, desk: &Desk, stream: &mut Stream) -> Self {
        match kind {
            Kind::NewOrder => Self::NewOrder(NewOrder::draw(desk, stream)),
            Kind::Payment => Self::Payment(Payment::draw(desk, stream)),
            Kind::OrderStatus => Self::OrderStatus(OrderStatus {
                district: district(stream),
                customer: Customer::draw(desk, "$5", stream),
            }),
            Kind::Delivery => Self::Delivery(stream.uniform(1, 10) as i16),
            Kind::StockLevel => Self::StockLevel(stream.uniform(10, 20) as i16),
        }
    }

    /// Its kind.
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
