//! What was drawn, counted: the raw material for proving that it was drawn as the specification wants.

use serde_json::{Value, json};

use super::input::{Customer, Input, NewOrder, UNUSED_ITEM};
use super::mix::KINDS;
use super::random::Constants;

/// Counters of drawn transactions. Retries are not drawn again, so they are not counted again.
#[derive(Clone, Debug)]
pub struct Tally {
    drawn: [u64; 5],
    order_lines: u64,
    order_lines_remote: u64,
    rollbacks_drawn: u64,
    payments_remote: u64,
    by_name_payment: u64,
    by_name_order_status: u64,
    lines_per_order: [u64; 11],
    c_last: Box<[u64; 1000]>,
    c_id: Box<[u64; 1000]>,
    item: Box<[u64; 1000]>,
    constants: Option<Constants>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            drawn: [0; 5],
            order_lines: 0,
            order_lines_remote: 0,
            rollbacks_drawn: 0,
            payments_remote: 0,
            by_name_payment: 0,
            by_name_order_status: 0,
            lines_per_order: [0; 11],
            c_last: Box::new([0; 1000]),
            c_id: Box::new([0; 1000]),
            item: Box::new([0; 1000]),
            constants: None,
        }
    }
}

impl Tally {
    /// Counts a drawn transaction of a terminal at `warehouse`.
    pub fn count(&mut self, input: &Input, warehouse: i32, constants: Constants) {
        self.constants = Some(constants);
        self.drawn[input.kind() as usize] += 1;
        match input {
            Input::NewOrder(order) => self.count_order(order, warehouse),
            Input::Payment(payment) => {
                self.payments_remote += u64::from(payment.customer_warehouse != warehouse);
                self.by_name_payment += u64::from(self.count_customer(&payment.customer));
            }
            Input::OrderStatus(status) => {
                self.by_name_order_status += u64::from(self.count_customer(&status.customer));
            }
            Input::Delivery(_) | Input::StockLevel(_) => {}
        }
    }

    fn count_order(&mut self, order: &NewOrder, warehouse: i32) {
        let lines = order.items().len();
        self.order_lines += lines as u64;
        self.lines_per_order[lines - 5] += 1;
        self.rollbacks_drawn += u64::from(order.rolls_back);
        self.order_lines_remote +=
            order.supplies().iter().filter(|&&supply| supply != warehouse).count() as u64;
        self.c_id[(order.customer as usize - 1) / 3] += 1;
        for &item in order.items().iter().filter(|&&item| item != UNUSED_ITEM) {
            self.item[(item as usize - 1) / 100] += 1;
        }
    }

    /// Whether the customer was chosen by name.
    fn count_customer(&mut self, customer: &Customer) -> bool {
        match customer {
            Customer::Id(id) => self.c_id[(*id as usize - 1) / 3] += 1,
            Customer::Name(name) | Customer::Literal(name, _) => self.c_last[name.number as usize] += 1,
        }
        !matches!(customer, Customer::Id(_))
    }
}

impl driver::Tally for Tally {
    fn merge(&mut self, other: &Self) {
        let add = |to: &mut [u64], from: &[u64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        add(&mut self.drawn, &other.drawn);
        add(&mut self.lines_per_order, &other.lines_per_order);
        add(&mut self.c_last[..], &other.c_last[..]);
        add(&mut self.c_id[..], &other.c_id[..]);
        add(&mut self.item[..], &other.item[..]);
        self.order_lines += other.order_lines;
        self.order_lines_remote += other.order_lines_remote;
        self.rollbacks_drawn += other.rollbacks_drawn;
        self.payments_remote += other.payments_remote;
        self.by_name_payment += other.by_name_payment;
        self.by_name_order_status += other.by_name_order_status;
        self.constants = self.constants.or(other.constants);
    }

    fn value(&self) -> Value {
        let c = self.constants;
        json!({
            "drawn": KINDS.into_iter().zip(self.drawn).collect::<Value>(),
            "order_lines": self.order_lines,
            "order_lines_remote": self.order_lines_remote,
            "rollbacks_drawn": self.rollbacks_drawn,
            "payments_remote": self.payments_remote,
            "by_name": {"payment": self.by_name_payment, "order_status": self.by_name_order_status},
            "lines_per_order": self.lines_per_order,
            "c_last": &self.c_last[..],
            "c_id": &self.c_id[..],
            "item": &self.item[..],
            "nurand_c": c.map(|c| json!({"c_last": c.c_last, "c_id": c.c_id, "item": c.item})),
        })
    }
}
