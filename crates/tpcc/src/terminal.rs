//! A terminal: one client of the workload.

use super::deviation::{Deviation, Deviations};
use super::input::{Desk, Input};
use super::mix::Mix;
use super::population::TABLES;
use super::procedures;
use super::random::{C_LAST_CONSTANT, Constants, Purpose, Stream, run_constants};
use super::schema::{FORMAT, MARK, format_with};
use super::specification::{Calls, Specification};
use super::statements::{self, Scratch};
use super::sysbench_sql::transactions;
use super::tally::Tally;
use driver::{ClientId, Ending, User};
use pgwire::SqlState;
use reactor::{Connection, Error, Nanos};

/// Keying times by kind, in seconds (clause 5.2.5.2).
const KEYING_S: [u64; 5] = [18, 3, 2, 2, 2];
/// Mean think times by kind, in seconds (clause 5.2.5.7).
const THINK_MEAN_S: [f64; 5] = [12.0, 12.0, 10.0, 5.0, 5.0];
/// Those of the deviation `swapped-think-times`.
const THINK_MEAN_SWAPPED_S: [f64; 5] = [12.0, 12.0, 5.0, 10.0, 5.0];
/// Think times are cut at so many times their mean.
const THINK_CUT: f64 = 10.0;

/// See the module.
pub struct Terminal {
    specification: Specification,
    /// The run's seed.
    seed: u64,
    client_id: ClientId,
    desk: Desk,
    mix: Mix,
    mix_stream: Stream,
    inputs: Stream,
    think: Stream,
    input: Input,
    /// Whether it takes the place of another one that failed.
    is_redrawn: bool,
    scratch: Scratch,
}

impl Terminal {
    pub(super) fn new(specification: Specification, seed: u64, client_id: ClientId) -> Self {
        let stream = |purpose| Stream::new(client_id.seed, purpose, &[]);
        Self {
            specification,
            seed,
            client_id,
            // Until `prepare` has asked the database how many warehouses there are.
            desk: Desk::new(0, 1, 1, Constants { c_last: 0, c_id: 0, item: 0 }),
            mix: Mix::new(specification.mix),
            mix_stream: stream(Purpose::Mix),
            inputs: stream(Purpose::Inputs),
            think: stream(Purpose::Think),
            input: Input::Delivery(1),
            is_redrawn: false,
            scratch: Scratch::default(),
        }
    }

    /// What the mark of a whole dataset tells. A database of another program has no mark: its tables have to exist, and
    /// its warehouses are counted.
    async fn dataset(connection: &mut Connection, of_data: Deviations, sets: u32) -> Result<Loaded, Error> {
        let sql = format!("SELECT scale, c_load, format FROM {MARK} WHERE workload = 'tpcc'");
        let rows = match connection.simple(&sql).await {
            Ok(rows) => rows,
            Err(error) if error.sqlstate() != Some(SqlState::UNDEFINED_TABLE) => {
                return Err(error);
            }
            Err(_) => {
                let is_sysbench = of_data.has(Deviation::SysbenchSql);
                let warehouses = if is_sysbench {
                    transactions::count_warehouses(connection, sets).await?
                } else {
                    count_foreign_warehouses(connection).await?
                };
                return Ok(Loaded { warehouses, c_load: 0, is_foreign: true });
            }
        };
        let [row] = &rows[..] else {
            return Error::unusable("the database holds no whole tpcc dataset; load it again");
        };
        let text = |column: usize| row.get(column)?.as_deref();
        let number = |column: usize| text(column)?.parse::<u32>().ok();
        match (number(0), number(1), text(2)) {
            (Some(warehouses @ 1..), Some(c_load), Some(format)) if format == format_with(of_data, sets) => {
                Ok(Loaded { warehouses, c_load, is_foreign: false })
            }
            (Some(_), Some(_), Some(format)) if format.starts_with(&*FORMAT) => {
                let run = format_with(of_data, sets);
                let [dataset, run] = [format, &run].map(variant);
                Error::unusable(format!(
                    "the dataset was loaded {dataset}, and the run is {run}; give the run the same deviations and \
                     sets of tables, or load it again"
                ))
            }
            _ => Error::unusable("the dataset is of another version of pgdyno; load it again"),
        }
    }
}

/// What a dataset is.
struct Loaded {
    warehouses: u32,
    /// The constant of the last names; 0 if it is unknown.
    c_load: u32,
    /// Whether another program loaded it: there are no routines of ours.
    is_foreign: bool,
}

/// The warehouses of a database that another program loaded.
async fn count_foreign_warehouses(connection: &mut Connection) -> Result<u32, Error> {
    let names = TABLES.map(|table| format!("('{}')", table.name())).join(", ");
    let sql = format!("SELECT name FROM (VALUES {names}) AS due (name) WHERE to_regclass(name) IS NULL");
    let absent: Vec<_> = connection.simple(&sql).await?.into_iter().flatten().flatten().collect();
    if !absent.is_empty() {
        let names = absent.join(", ");
        return Error::unusable(format!(
            "the database holds no dataset of pgdyno's, and no table {names}; load one first"
        ));
    }
    let rows = connection.simple("SELECT count(*) FROM warehouse HAVING count(*) = max(w_id)").await?;
    let count = rows.into_iter().flatten().flatten().find_map(|count| count.parse().ok());
    count.map_or_else(
        || Error::unusable("the warehouses are not numbered from 1 without gaps; load the data again"),
        Ok,
    )
}

/// The deviations and sets of tables in a format: `with foreign-keys`, `without deviations`.
fn variant(format: &str) -> String {
    match format.trim_start_matches(&*FORMAT).trim_start_matches(['+', ',']) {
        "" => "without deviations".to_owned(),
        names => format!("with {names}"),
    }
}

impl User for Terminal {
    type Tally = Tally;

    async fn prepare(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let deviations = self.specification.deviations;
        let Loaded { warehouses, c_load, is_foreign } =
            Self::dataset(connection, deviations.of_data(), self.specification.table_sets).await?;
        let mut constants = run_constants(self.seed, c_load);
        if deviations.has(Deviation::ConstantC) {
            constants.c_last = C_LAST_CONSTANT;
        }
        self.desk = Desk::new(self.client_id.client, self.client_id.clients, warehouses, constants);
        self.desk.deviations = deviations;
        if deviations.has(Deviation::RandomHome) {
            self.desk.draw_home(&mut Stream::new(self.client_id.seed, Purpose::Home, &[]));
        }
        let isolation = self.specification.isolation;
        if deviations.has(Deviation::SysbenchSql) {
            return transactions::prepare(connection, isolation).await;
        }
        match self.specification.calls {
            Calls::Procedures => procedures::prepare(connection, isolation, deviations, is_foreign).await,
            Calls::Statements => {
                statements::prepare(connection, isolation, deviations, &mut self.scratch).await
            }
        }
    }

    #[inline]
    fn draw(&mut self, tally: &mut Tally) -> usize {
        let kind = self.mix.draw(&mut self.mix_stream);
        if self.desk.deviations.has(Deviation::HomePerTransaction) {
            self.desk.draw_home(&mut self.inputs);
        }
        self.input = Input::draw(kind, &self.desk, &mut self.inputs);
        tally.count(&self.input, self.desk.warehouse as i32, self.desk.constants);
        kind as usize
    }

    #[inline]
    fn redraw(&mut self, tally: &mut Tally) -> Option<usize> {
        self.is_redrawn = self.desk.deviations.has(Deviation::RedrawOnRetry);
        self.is_redrawn.then(|| self.draw(tally))
    }

    #[inline]
    async fn attempt(&mut self, connection: &mut Connection) -> Result<Ending, Error> {
        if self.desk.deviations.has(Deviation::SysbenchSql) {
            let sets = self.specification.table_sets;
            if std::mem::take(&mut self.is_redrawn) {
                connection.simple("-- ROLLBACK").await?; // Its second one, without a warning in the log.
            }
            return transactions::attempt(connection, sets, &self.desk, &self.input).await;
        }
        match self.specification.calls {
            Calls::Procedures => procedures::attempt(connection, &self.desk, &self.input).await,
            Calls::Statements => {
                let pipeline = self.specification.pipeline;
                statements::attempt(connection, pipeline, &self.desk, &self.input, &mut self.scratch).await
            }
        }
    }

    #[inline]
    fn add_to_counters(&self, is_committed: bool, counters: &mut [u64]) {
        if let (true, Input::NewOrder(_), [new_orders]) = (is_committed, &self.input, counters) {
            *new_orders += 1;
        }
    }

    fn keying(&self) -> Nanos {
        Nanos(KEYING_S[self.input.kind() as usize] * 1_000_000_000)
    }

    fn thinking(&mut self) -> Nanos {
        let is_swapped = self.specification.deviations.has(Deviation::SwappedThinkTimes);
        let mean_s = if is_swapped { THINK_MEAN_SWAPPED_S } else { THINK_MEAN_S }[self.input.kind() as usize];
        Nanos::from_s((-self.think.fraction().ln()).min(THINK_CUT) * mean_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver::Tally as _;
    use serde_json::json;

    fn terminal(client: u32) -> Terminal {
        let workload = json!({"calls": "procedures", "isolation": "serializable", "mix": "deck"});
        let specification = serde_json::from_value(workload).expect("sound");
        Terminal::new(specification, 1, ClientId { client, clients: 2, thread: 0, seed: u64::from(client) })
    }

    #[test]
    fn a_dataset_is_named_by_its_deviations_and_sets_of_tables() {
        let with = |one, sets| variant(&format_with(one, sets));
        assert_eq!(with(Deviations::NONE, 1), "without deviations");
        assert_eq!(with(Deviations::NONE, 3), "with table-sets=3");
        let both = with(Deviations::from_iter([Deviation::ForeignKeys]), 2);
        assert_eq!(both, "with foreign-keys,table-sets=2");
    }

    #[test]
    fn the_same_seed_draws_the_same_transactions_and_another_one_others() {
        let draws = |client| {
            let (mut terminal, mut tally) = (terminal(client), Tally::default());
            (0..100).map(|_| (terminal.draw(&mut tally), format!("{:?}", terminal.input))).collect::<Vec<_>>()
        };
        assert_eq!(draws(0), draws(0));
        assert_ne!(draws(0), draws(1));
    }

    #[test]
    fn think_times_have_their_mean_and_their_cut() {
        let mut terminal = terminal(0);
        terminal.input = Input::StockLevel(10);
        let times: Vec<f64> = (0..50_000).map(|_| terminal.thinking().as_s()).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        assert!((mean - 5.0).abs() < 0.12, "mean {mean} s");
        assert!(times.iter().all(|&s| s <= 50.0));
        assert_eq!(terminal.keying(), Nanos(2_000_000_000));
    }

    #[test]
    fn think_times_of_two_kinds_can_be_swapped() {
        let mean = |input| {
            let mut terminal = terminal(0);
            terminal.specification.deviations = Deviations::from_iter([Deviation::SwappedThinkTimes]);
            terminal.input = input;
            (0..50_000).map(|_| terminal.thinking().as_s()).sum::<f64>() / 50_000.0
        };
        assert!((mean(Input::Delivery(1)) - 10.0).abs() < 0.25);
        assert!((mean(Input::StockLevel(10)) - 5.0).abs() < 0.12);
    }

    #[test]
    fn a_retry_keeps_its_transaction_unless_it_is_redrawn() {
        let (mut terminal, mut tally) = (terminal(0), Tally::default());
        terminal.draw(&mut tally);
        assert_eq!(terminal.redraw(&mut tally), None);
        terminal.desk.deviations = Deviations::from_iter([Deviation::RedrawOnRetry]);
        let before = format!("{:?}", terminal.input);
        assert!(terminal.redraw(&mut tally).is_some());
        assert_ne!(format!("{:?}", terminal.input), before);
        let value = tally.value();
        let drawn = value["drawn"].as_object().expect("kinds").values().filter_map(serde_json::Value::as_u64);
        assert_eq!(drawn.sum::<u64>(), 2);
    }

    #[test]
    fn the_home_can_change_with_each_transaction() {
        let (mut terminal, mut tally) = (terminal(0), Tally::default());
        terminal.desk.warehouses = 5;
        terminal.desk.deviations = Deviations::from_iter([Deviation::HomePerTransaction]);
        let homes: std::collections::BTreeSet<_> = (0..200)
            .map(|_| {
                terminal.draw(&mut tally);
                terminal.desk.warehouse
            })
            .collect();
        assert_eq!(homes.len(), 5);
    }

    #[test]
    fn the_tally_adds_up() {
        let (mut terminal, mut tally) = (terminal(0), Tally::default());
        for _ in 0..2300 {
            terminal.draw(&mut tally);
        }
        let mut twice = tally.clone();
        twice.merge(&tally);
        for (tally, times) in [(tally.value(), 1), (twice.value(), 2)] {
            assert_eq!(tally["drawn"]["new_order"], 1000 * times);
            let sum = |key: &str| {
                tally[key].as_array().map(|bins| bins.iter().filter_map(serde_json::Value::as_u64).sum())
            };
            let number = |key: &str| tally[key].as_u64();
            assert_eq!(sum("lines_per_order"), Some(1000 * times));
            let items =
                sum("item").zip(number("rollbacks_drawn")).map(|(items, rolled_back)| items + rolled_back);
            assert_eq!(items, number("order_lines"));
            let by_name = tally["by_name"]["payment"].as_u64().zip(tally["by_name"]["order_status"].as_u64());
            assert_eq!(sum("c_last"), by_name.map(|(payment, status)| payment + status));
            assert_eq!(sum("c_id").zip(sum("c_last")).map(|(a, b)| a + b), Some(2100 * times));
        }
    }
}
