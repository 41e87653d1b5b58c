//! Which kind of transaction comes next (clause 5.2.4): a shuffled deck, or weights.

use serde::Deserialize;

use super::random::Stream;

/// The names of the kinds, in the order of [`Kind`].
pub const KINDS: [&str; 5] = ["new_order", "payment", "order_status", "delivery", "stock_level"];

/// A kind of transaction. The discriminant is its index in events and tallies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An order is entered.
    NewOrder,
    /// A customer pays.
    Payment,
    /// A customer asks after the last order.
    OrderStatus,
    /// Ten orders are delivered.
    Delivery,
    /// Stock is looked over.
    StockLevel,
}

/// All kinds.
pub const ALL: [Kind; 5] =
    [Kind::NewOrder, Kind::Payment, Kind::OrderStatus, Kind::Delivery, Kind::StockLevel];

/// Cards of each kind in a deck: 43.5 % payments and 4.3 % of each of the rare ones, the minima with a margin.
const CARDS: [usize; 5] = [10, 10, 1, 1, 1];
const DECK: usize = 23;

/// The mix as specified.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MixSpecification {
    /// The shuffled deck of 23 cards.
    Deck,
    /// Shares, in any unit.
    #[serde(untagged)]
    Weights(Weights),
}

/// A share for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // The kinds' names.
pub struct Weights {
    pub new_order: f64,
    pub payment: f64,
    pub order_status: f64,
    pub delivery: f64,
    pub stock_level: f64,
}

impl MixSpecification {
    /// What is wrong with it.
    pub fn problem(&self) -> Option<&'static str> {
        let Self::Weights(weights) = self else { return None };
        let shares = weights.shares();
        if shares.iter().any(|share| !share.is_finite() || *share < 0.0) {
            return Some("mix: a weight is negative or not a number");
        }
        (shares.iter().sum::<f64>() <= 0.0).then_some("mix: all weights are zero")
    }
}

impl Weights {
    fn shares(&self) -> [f64; 5] {
        [self.new_order, self.payment, self.order_status, self.delivery, self.stock_level]
    }
}

/// One client's mix.
#[derive(Clone, Debug)]
pub enum Mix {
    /// A deck, dealt from the end and shuffled anew when it is empty.
    Deck {
        /// All cards.
        cards: [Kind; DECK],
        /// How many are still to be dealt.
        left: usize,
    },
    /// Running sums of the shares.
    Weights([f64; 5]),
}

impl Mix {
    /// The mix of a client.
    pub fn new(specification: MixSpecification) -> Self {
        match specification {
            MixSpecification::Deck => {
                let mut cards = [Kind::NewOrder; DECK];
                let kinds = ALL.into_iter().zip(CARDS).flat_map(|(kind, n)| std::iter::repeat_n(kind, n));
                cards.iter_mut().zip(kinds).for_each(|(card, kind)| *card = kind);
                Self::Deck { cards, left: 0 }
            }
            MixSpecification::Weights(weights) => {
                let mut sum = 0.0;
                Self::Weights(weights.shares().map(|share| {
                    sum += share;
                    sum
                }))
            }
        }
    }

    /// The next kind.
    pub fn draw(&mut self, stream: &mut Stream) -> Kind {
        match self {
            Self::Deck { cards, left } => {
                if *left == 0 {
                    stream.shuffle(cards);
                    *left = DECK;
                }
                *left -= 1;
                cards[*left]
            }
            Self::Weights(sums) => {
                let point = stream.fraction() * sums[4];
                let index = sums.iter().position(|&sum| point < sum).unwrap_or(0);
                ALL[index]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;
    use serde_json::{from_value, json};

    fn count(mix: &mut Mix, n: usize) -> [usize; 5] {
        let mut stream = Stream::new(1, Purpose::Mix, &[]);
        let mut counts = [0; 5];
        for _ in 0..n {
            counts[mix.draw(&mut stream) as usize] += 1;
        }
        counts
    }

    #[test]
    fn every_23_draws_from_a_deck_are_the_whole_deck() {
        let mut mix = Mix::new(from_value(json!("deck")).expect("a mix"));
        for _ in 0..50 {
            assert_eq!(count(&mut mix, 23), CARDS);
        }
    }

    #[test]
    fn a_deck_is_shuffled_each_time() {
        let mut mix = Mix::new(MixSpecification::Deck);
        let mut stream = Stream::new(1, Purpose::Mix, &[]);
        let mut deal = || (0..23).map(|_| mix.draw(&mut stream)).collect::<Vec<_>>();
        assert_ne!(deal(), deal());
    }

    #[test]
    fn weights_give_their_shares() {
        let weights =
            json!({"new_order": 45, "payment": 43, "order_status": 4, "delivery": 4, "stock_level": 4});
        let mut mix = Mix::new(from_value(weights).expect("a mix"));
        for (count, share) in count(&mut mix, 100_000).into_iter().zip([0.45, 0.43, 0.04, 0.04, 0.04]) {
            assert!((count as f64 / 1e5 - share).abs() < 0.008, "{count} for {share}");
        }
    }

    #[test]
    fn a_kind_of_weight_zero_never_comes() {
        let only = json!({"new_order": 0, "payment": 0, "order_status": 0, "delivery": 1, "stock_level": 0});
        assert_eq!(count(&mut Mix::new(from_value(only).expect("a mix")), 1000), [0, 0, 0, 1000, 0]);
    }

    #[test]
    fn wrong_weights_are_refused() {
        for (new_order, payment, expected) in [(-1.0, 2.0, "negative"), (0.0, 0.0, "zero")] {
            let weights = Weights { new_order, payment, order_status: 0.0, delivery: 0.0, stock_level: 0.0 };
            let problem = MixSpecification::Weights(weights).problem().expect("a problem");
            assert!(problem.contains(expected));
        }
    }
}
