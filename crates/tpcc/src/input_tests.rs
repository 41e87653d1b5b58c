use super::*;
use crate::random::Purpose;

use std::fmt::Write;

/// The digest of the inputs of version 0.1.0 without deviations.
const BEFORE_DEVIATIONS: u64 = 0xeb04_61f2_512a_6d90;

const CONSTANTS: Constants = Constants { c_last: 100, c_id: 500, item: 4000 };

fn desk(warehouses: u32) -> Desk {
    Desk {
        warehouses,
        warehouse: 2.min(warehouses),
        district: 3,
        constants: CONSTANTS,
        deviations: Deviations::NONE,
    }
}

fn orders(warehouses: u32, n: usize) -> Vec<NewOrder> {
    let mut stream = Stream::new(1, Purpose::Inputs, &[]);
    (0..n).map(|_| NewOrder::draw(&desk(warehouses), &mut stream)).collect()
}

fn orders_with(deviations: &[Deviation], n: usize) -> Vec<NewOrder> {
    let mut stream = Stream::new(1, Purpose::Inputs, &[]);
    let desk = Desk { deviations: deviations.iter().copied().collect(), ..desk(5) };
    (0..n).map(|_| NewOrder::draw(&desk, &mut stream)).collect()
}

/// Whether `count` of `n` is within 5 sigma of a share.
fn about(count: usize, n: usize, share: f64) -> bool {
    let expected = n as f64 * share;
    (count as f64 - expected).abs() < 5.0 * (expected * (1.0 - share)).sqrt()
}

#[test]
fn warehouses_are_spread_evenly_over_clients() {
    for (clients, warehouses) in [(8, 10), (1, 10), (10, 10), (20, 10), (25, 10), (7, 3), (100, 1)] {
        let homes: Vec<_> = (0..clients).map(|c| Desk::new(c, clients, warehouses, CONSTANTS)).collect();
        let mut terminals = vec![0; warehouses as usize];
        for desk in &homes {
            terminals[desk.warehouse as usize - 1] += 1;
        }
        let (least, most) = (terminals.iter().min(), terminals.iter().max());
        assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{clients}, {warehouses}");
        if clients <= warehouses * DISTRICTS {
            let mut desks: Vec<_> = homes.iter().map(|desk| (desk.warehouse, desk.district)).collect();
            desks.sort_unstable();
            desks.dedup();
            assert_eq!(desks.len(), clients as usize, "a desk of one's own: {clients}, {warehouses}");
        }
    }
}

#[test]
fn lines_are_sorted_by_supplier_and_item_with_the_unused_item_last() {
    for order in orders(5, 5000) {
        let lines = order.items().len();
        assert!((5..=15).contains(&lines));
        let keys: Vec<_> = order.supplies().iter().zip(order.items()).collect();
        let valid = lines - usize::from(order.rolls_back);
        assert!(keys[..valid].windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(order.items()[..valid].iter().all(|item| (1..=100_000).contains(item)));
        assert_eq!(order.items()[lines - 1] == UNUSED_ITEM, order.rolls_back);
        assert_eq!(order.all_local, order.supplies().iter().all(|&supply| supply == 2));
        assert!(order.quantities().iter().all(|quantity| (1..=10).contains(quantity)));
    }
}

#[test]
fn duplicates_are_told_whenever_there_are_some() {
    let mut seen = 0;
    for order in orders(2, 20_000) {
        let mut keys: Vec<_> = order.supplies().iter().zip(order.items()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(order.has_duplicates, keys.len() < order.items().len());
        seen += usize::from(order.has_duplicates);
    }
    assert!(seen > 0, "NURand repeats an item now and then");
}

#[test]
fn remote_lines_rollbacks_and_lengths_have_their_shares() {
    let orders = orders(3, 20_000);
    let lines: usize = orders.iter().map(|order| order.items().len()).sum();
    let remote: usize =
        orders.iter().map(|order| order.supplies().iter().filter(|&&supply| supply != 2).count()).sum();
    assert!(about(remote, lines, 0.01), "{remote} of {lines} lines are remote");
    let rolled_back = orders.iter().filter(|order| order.rolls_back).count();
    assert!(about(rolled_back, orders.len(), 0.01), "{rolled_back} of {} roll back", orders.len());
    for length in 5..=15 {
        let count = orders.iter().filter(|order| order.items().len() == length).count();
        assert!(about(count, orders.len(), 1.0 / 11.0), "{count} of {length} lines");
    }
}

#[test]
fn nothing_is_remote_where_there_is_one_warehouse() {
    assert!(orders(1, 2000).iter().all(|order| order.supplies().iter().all(|&supply| supply == 1)));
}

#[test]
fn remote_warehouses_are_all_the_others_equally() {
    let mut stream = Stream::new(2, Purpose::Inputs, &[]);
    let mut counts = [0; 5];
    for _ in 0..8000 {
        counts[desk(5).remote(&mut stream) as usize - 1] += 1;
    }
    assert_eq!(counts[1], 0);
    assert!(counts.iter().enumerate().all(|(i, &count)| i == 1 || about(count, 8000, 0.25)), "{counts:?}");
}

#[test]
fn payments_have_their_shares_and_ranges() {
    let mut stream = Stream::new(3, Purpose::Inputs, &[]);
    let payments: Vec<_> = (0..20_000).map(|_| Payment::draw(&desk(3), &mut stream)).collect();
    let remote = payments.iter().filter(|payment| payment.customer_warehouse != 2).count();
    let by_name = payments.iter().filter(|payment| payment.customer.name().is_some()).count();
    assert!(about(remote, 20_000, 0.15), "{remote} remote");
    assert!(about(by_name, 20_000, 0.6), "{by_name} by name");
    for payment in payments {
        assert!((100..=500_000).contains(&payment.amount_cents));
        assert!(payment.customer_warehouse != 2 || payment.customer_district == payment.district);
        assert_ne!(payment.customer.id().is_some(), payment.customer.name().is_some());
    }
}

/// FNV-1a of the inputs of all kinds, as text.
fn digest(deviations: Deviations) -> u64 {
    let mut stream = Stream::new(1, Purpose::Inputs, &[]);
    let desk = Desk { deviations, ..desk(5) };
    let mut text = String::new();
    for kind in super::super::mix::ALL.into_iter().cycle().take(5000) {
        match Input::draw(kind, &desk, &mut stream) {
            Input::NewOrder(order) => {
                let lines = (order.items(), order.supplies(), order.quantities());
                let _ =
                    write!(text, "{} {} {} {lines:?};", order.district, order.customer, order.has_duplicates);
            }
            Input::Payment(payment) => {
                let to = (payment.district, payment.customer_warehouse, payment.customer_district);
                let by = (payment.customer.id(), payment.customer.name());
                let _ = write!(text, "{to:?} {by:?} {};", payment.amount_cents);
            }
            Input::OrderStatus(status) => {
                let _ = write!(
                    text,
                    "{} {:?} {:?};",
                    status.district,
                    status.customer.id(),
                    status.customer.name()
                );
            }
            Input::Delivery(number) | Input::StockLevel(number) => {
                let _ = write!(text, "{number};");
            }
        }
    }
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[test]
fn without_deviations_the_inputs_are_those_before_there_were_any() {
    assert_eq!(digest(Deviations::NONE), BEFORE_DEVIATIONS);
}

#[test]
fn the_same_seed_draws_the_same_inputs_under_every_deviation() {
    for &deviation in Deviation::ALL {
        let with = Deviations::from_iter([deviation]);
        assert_eq!(digest(with), digest(with), "{}", deviation.name());
    }
}

#[test]
fn no_order_rolls_back_under_no_rollback() {
    assert!(orders_with(&[Deviation::NoRollback], 5000).iter().all(|order| !order.rolls_back));
}

#[test]
fn the_unused_item_can_be_on_the_second_to_last_line() {
    let orders = orders_with(&[Deviation::SecondToLastItem, Deviation::UnsortedLines], 20_000);
    let rolled_back: Vec<_> = orders.iter().filter(|order| order.rolls_back).collect();
    assert!(about(rolled_back.len(), 20_000, 0.01));
    for order in rolled_back {
        let place = order.items().iter().position(|&item| item == UNUSED_ITEM);
        assert_eq!(place, Some(order.items().len() - 2));
    }
}

#[test]
fn no_line_and_no_payment_is_remote_under_no_remote_warehouse() {
    let orders = orders_with(&[Deviation::NoRemoteWarehouse], 5000);
    assert!(orders.iter().all(|order| order.supplies().iter().all(|&supply| supply == 2)));
    let desk = Desk { deviations: Deviations::from_iter([Deviation::NoRemoteWarehouse]), ..desk(5) };
    let mut stream = Stream::new(1, Purpose::Inputs, &[]);
    assert!((0..5000).all(|_| Payment::draw(&desk, &mut stream).customer_warehouse == 2));
}

#[test]
fn sysbench_means_remote_warehouses_that_it_does_not_use() {
    for warehouses in [1, 5] {
        let deviations = Deviations::from_iter([Deviation::NoRemoteWarehouse, Deviation::SysbenchSql]);
        let desk = Desk { deviations, ..desk(warehouses) };
        let mut stream = Stream::new(1, Purpose::Inputs, &[]);
        let orders: Vec<_> = (0..20_000).map(|_| NewOrder::draw(&desk, &mut stream)).collect();
        let expected: f64 =
            orders.iter().map(|order| 1.0 - 0.99_f64.powi(order.items().len() as i32)).sum::<f64>()
                / 20_000.0;
        let not_local = orders.iter().filter(|order| !order.all_local).count();
        assert!(about(not_local, 20_000, expected) && expected > 0.09, "{not_local} {expected}");
        let payments: Vec<_> = (0..20_000).map(|_| Payment::draw(&desk, &mut stream)).collect();
        let others = payments.iter().filter(|payment| payment.customer_district != payment.district).count();
        assert!(about(others, 20_000, 0.15 * 0.9), "{others}");
        assert!(payments.iter().all(|payment| payment.customer_warehouse as u32 == desk.warehouse));
    }
}

#[test]
fn a_supplier_can_be_drawn_from_all_warehouses() {
    let orders = orders_with(&[Deviation::SupplyFromAll], 20_000);
    let lines: usize = orders.iter().map(|order| order.items().len()).sum();
    let of =
        |warehouse| orders.iter().flat_map(NewOrder::supplies).filter(|&&supply| supply == warehouse).count();
    assert!([1, 3, 4, 5].into_iter().all(|warehouse| about(of(warehouse), lines, 0.002)));
    let homes = orders.iter().filter(|order| !order.all_local && order.supplies().iter().all(|&w| w == 2));
    assert!(homes.count() > 0, "the home is one of them");
}

#[test]
fn unsorted_lines_keep_their_order_and_tell_duplicates() {
    let orders = orders_with(&[Deviation::UnsortedLines], 20_000);
    let is_sorted = |order: &&NewOrder| order.items().is_sorted();
    assert!(orders.iter().filter(is_sorted).count() < 1000);
    for order in &orders {
        let mut keys: Vec<_> = order.supplies().iter().zip(order.items()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(order.has_duplicates, keys.len() < order.items().len());
    }
    assert!(orders.iter().any(|order| order.has_duplicates));
}

#[test]
fn uniform_numbers_have_no_hot_ones_and_a_redrawn_constant_moves_them() {
    let hot = |deviations: &[Deviation]| {
        let mut counts = vec![0_u32; 1001];
        for order in orders_with(deviations, 20_000) {
            order.items().iter().filter(|&&item| item != UNUSED_ITEM).for_each(|&item| {
                counts[item as usize / 100] += 1;
            });
        }
        *counts.iter().max().expect("bins")
    };
    let (spec, uniform, redrawn) = (hot(&[]), hot(&[Deviation::UniformItems]), hot(&[Deviation::CRedrawn]));
    assert!(uniform < 300 && redrawn < 400 && spec > 500, "{spec} {uniform} {redrawn}");
}

#[test]
fn a_literal_name_stands_for_every_name_with_a_number_beside_it() {
    let desk = Desk { deviations: Deviations::from_iter([Deviation::LiteralLastName]), ..desk(5) };
    let mut stream = Stream::new(1, Purpose::Inputs, &[]);
    let drawn: Vec<_> = (0..5000).map(|_| Customer::draw(&desk, "$8", &mut stream)).collect();
    assert!(drawn.iter().all(|customer| customer.id().is_some()));
    let named = drawn.iter().filter(|customer| customer.name() == Some(b"$8")).count();
    assert!(about(named, 5000, 0.6));
}

#[test]
fn a_home_can_be_drawn() {
    let mut homes = vec![0; 6];
    for seed in 0..1000 {
        let mut desk = desk(5);
        desk.draw_home(&mut Stream::new(seed, Purpose::Home, &[]));
        homes[desk.warehouse as usize] += 1;
        assert!((1..=DISTRICTS).contains(&desk.district));
    }
    assert!(homes[1..].iter().all(|&count| about(count, 1000, 0.2)), "{homes:?}");
}
