use super::*;
use crate::random::Purpose;

const CONSTANTS: Constants = Constants { c_last: 100, c_id: 500, item: 4000 };

fn desk(warehouses: u32) -> Desk {
    Desk { warehouses, warehouse: 2.min(warehouses), district: 3, constants: CONSTANTS }
}

fn orders(warehouses: u32, n: usize) -> Vec<NewOrder> {
    let mut stream = Stream::new(1, Purpose::Inputs, &[]);
    (0..n).map(|_| NewOrder::draw(&desk(warehouses), &mut stream)).collect()
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
