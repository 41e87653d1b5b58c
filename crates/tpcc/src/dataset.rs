//! The dataset of tpcc: may the database be loaded, what is done there in which order, the mark, and cleaning up.
//!
//! COPY freezes only what its own transaction created, so a table belongs to one connection. The row of
//! `pgdyno_dataset` comes last: without it nothing here counts as a dataset.

use crate::deviation::{Deviation, Deviations};
use crate::population::{self, Population, TABLES};
use crate::schema::{
    CREATE_MARK, FOREIGN_KEYS, HAMMERDB_ROUTINES, MARK, OwnRoutines, ROUTINES, SCHEMA_PREFIX, format_with,
};
use crate::sysbench_sql::{schema as sysbench, warehouses_of};
use loader::dataset::{Dataset, Job, Round, Rows, Table, Work};
use loader::phase::Phase;
use loader::{LoadError, Replaceable, Stage};
use reactor::{Connection, Error};

/// What is done to all tables in one round. Foreign keys need the primary keys of other tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Tables(Phase),
    ForeignKeys,
}

/// Tables of so many warehouses under one seed.
pub struct TpccTables {
    population: Population,
    warehouses: u32,
    seed: u64,
    deviations: Deviations,
    sets: u32,
    /// The deviations of the routines for HammerDB, if they are wanted.
    hammerdb_routines: Option<Deviations>,
    /// Each table in each set of tables.
    places: Vec<(population::Table, u32)>,
    tables: Vec<Table>,
}

impl TpccTables {
    /// Nothing is done yet. Of the deviations those of the data count. `sets`: of tables, at most one per warehouse.
    #[must_use]
    pub fn new(warehouses: u32, seed: u64, deviations: Deviations, sets: u32) -> Self {
        let deviations = deviations.of_data();
        let population = Population::new(seed, warehouses, deviations);
        let places: Vec<_> =
            TABLES.iter().flat_map(|&table| (1..=sets).map(move |set| (table, set))).collect();
        let mut dataset = Self {
            population,
            warehouses,
            seed,
            deviations,
            sets,
            hammerdb_routines: None,
            places,
            tables: Vec::new(),
        };
        let foretold = |&(table, set): &(population::Table, u32)| {
            let rows = dataset.population_of(set).rows_estimated(table);
            Table {
                name: dataset.name(table, set).into(),
                rows,
                bytes_estimated: table.bytes_estimated(rows),
            }
        };
        dataset.tables = dataset.places.iter().map(foretold).collect();
        dataset
    }

    /// With the routines that HammerDB calls, under these deviations.
    #[must_use]
    pub fn with_hammerdb_routines(self, deviations: Option<Deviations>) -> Self {
        Self { hammerdb_routines: deviations, ..self }
    }

    fn is_sysbench(&self) -> bool {
        self.deviations.has(Deviation::SysbenchSql)
    }

    fn population_of(&self, set: u32) -> Population {
        self.population.of_set(set, warehouses_of(set, self.sets, self.warehouses))
    }

    fn name(&self, table: population::Table, set: u32) -> String {
        if self.is_sysbench() { format!("{}{set}", sysbench::name(table)) } else { table.name().to_owned() }
    }

    fn create(&self, table: population::Table, set: u32) -> String {
        if self.is_sysbench() {
            sysbench::of_set(sysbench::create(table), set)
        } else {
            self.deviations.render(table.create()).into_owned()
        }
    }

    fn indexes(&self, table: population::Table, set: u32) -> Vec<String> {
        if self.is_sysbench() {
            return sysbench::indexes(table).iter().map(|sql| sysbench::of_set(sql, set)).collect();
        }
        table.indexes().map(|sql| self.deviations.render(sql).into_owned()).collect()
    }

    /// One job: each of the statements locks two tables, and two jobs could wait for each other.
    fn foreign_keys(&self) -> Round {
        let statements = if self.is_sysbench() {
            (1..=self.sets).flat_map(sysbench::foreign_keys).collect()
        } else {
            FOREIGN_KEYS.iter().map(|&sql| sql.to_owned()).collect()
        };
        let work = Work::Statements(statements);
        let job = Job { table: 0, doing: "add the foreign keys".to_owned(), work };
        Round { phase: Phase::Index, step: None, jobs: vec![job], rows: None }
    }

    fn steps(&self) -> impl Iterator<Item = Step> {
        let has_keys = self.deviations.has(Deviation::ForeignKeys);
        [Phase::Copy, Phase::Index]
            .map(Step::Tables)
            .into_iter()
            .chain(has_keys.then_some(Step::ForeignKeys))
            .chain([Phase::Vacuum, Phase::Analyze].map(Step::Tables))
    }
}

struct TableRows {
    population: Population,
    table: population::Table,
}

impl Rows for TableRows {
    fn groups(&self) -> u64 {
        self.population.groups(self.table)
    }

    fn append(&self, group: u64, out: &mut Vec<u8>) -> u64 {
        self.population.append_group(self.table, group, out)
    }
}

impl Dataset for TpccTables {
    const LEFT_BEHIND: &'static str = "what it created is still there, without a mark";

    fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Makes sure that nothing of our names is in the way, and begins the dataset: the mark's table without its row.
    /// What is there already is an earlier load's if it stands beside the mark, which every load makes first of all;
    /// anything else is the user's, empty or not.
    async fn begin(&self, control: &mut Connection, existing: Replaceable) -> Result<(), LoadError> {
        let failed = |error: Error| LoadError::from_io(Stage::Create, "look at the database", &error);
        let tables = existing_tables(control).await.map_err(failed)?;
        let sets = if self.is_sysbench() { self.sets } else { 0 };
        let mut foreign = tables_among(control, &names_of_sets(sets)).await.map_err(failed)?;
        foreign.retain(|name| !tables.contains(name));
        if self.hammerdb_routines.is_some() {
            foreign.extend(routines_of_hammerdb(control, false).await.map_err(failed)?);
        }
        if let Some(name) = foreign.first() {
            return Err(LoadError::new(
                Stage::Create,
                format!(
                    "the database has {name}, which pgdyno did not load: all is left as it is; \
                     name another database"
                ),
            ));
        }
        let routines = existing_routines(control).await.map_err(failed)?;
        if !tables.is_empty() || !routines.is_empty() {
            may_replace(&tables, &routines, existing)?;
            drop(control, &tables, &routines).await.map_err(|error| {
                LoadError::from_io(Stage::Create, "drop what an earlier load made", &error)
            })?;
        }
        // From the first moment on, so that what a killed load leaves behind is known, too.
        let create = if self.is_sysbench() {
            format!("{CREATE_MARK}; COMMENT ON TABLE {MARK} IS '{SETS_COMMENT}{}'", self.sets)
        } else {
            CREATE_MARK.to_owned()
        };
        let created = control.simple(&create).await;
        created.map_err(|error| LoadError::from_io(Stage::Create, &format!("create {MARK}"), &error))?;
        Ok(())
    }

    async fn round(&self, done: usize, _: &mut Connection) -> Result<Option<Round>, LoadError> {
        let phase = match self.steps().nth(done) {
            None => return Ok(None),
            Some(Step::Tables(phase)) => phase,
            Some(Step::ForeignKeys) => return Ok(Some(self.foreign_keys())),
        };
        let copy = |index: usize| {
            let (table, set) = self.places[index];
            let rows = TableRows { population: self.population_of(set), table };
            let columns = format!("({})", table.columns());
            Work::create_and_copy(
                &self.create(table, set),
                &self.tables[index].name,
                &columns,
                Box::new(rows),
            )
        };
        let indexes = |index: usize| {
            let (table, set) = self.places[index];
            self.indexes(table, set)
        };
        Ok(Some(Round::of_new_tables(phase, &self.tables, copy, indexes)))
    }

    /// Creates or replaces the routines, and writes the row that makes the dataset whole.
    async fn finish(&self, control: &mut Connection) -> Result<(), LoadError> {
        // sysbench-tpcc has no routines, and ours do not fit its tables.
        let routines = if self.is_sysbench() { &[][..] } else { &ROUTINES[..] };
        let mut statements: Vec<_> =
            routines.iter().map(|(_, create)| Deviations::NONE.render(create).into_owned()).collect();
        if let Some(own) = self.hammerdb_routines.and_then(|deviations| OwnRoutines::new(deviations, true)) {
            statements.push(own.create());
            statements.extend(HAMMERDB_ROUTINES.iter().map(|(_, create)| own.sql(create)));
        }
        for create in statements {
            let created = control.simple(&create).await;
            created.map_err(|error| LoadError::from_io(Stage::Index, "create the routines", &error))?;
        }
        let (warehouses, seed, c_load) = (self.warehouses, self.seed, self.population.c_load());
        // With synchronous_commit, so that the mark outlives a crash, and with it all that was written before it.
        let sql = format!(
            "SET synchronous_commit = on; INSERT INTO {MARK} (workload, scale, seed, format, c_load) \
             VALUES ('tpcc', {warehouses}, {seed}, '{}', {c_load})",
            format_with(self.deviations, self.sets)
        );
        let marked = control.simple(&sql).await;
        marked.map_err(|error| LoadError::from_io(Stage::Analyze, "mark the dataset as whole", &error))?;
        Ok(())
    }

    /// Drops the tables and routines.
    async fn clean_up(&self, control: &mut Connection, _: Phase, filled: &[usize]) -> Result<(), Error> {
        let names = filled.iter().map(|&table| self.tables[table].name.as_ref()).chain([MARK]);
        let tables: Vec<_> = names.map(str::to_owned).collect();
        let routines = existing_routines(control).await?;
        drop(control, &tables, &routines).await
    }
}

fn may_replace(tables: &[String], routines: &[String], existing: Replaceable) -> Result<(), LoadError> {
    let names = [tables, routines].concat().join(", ");
    let message = if existing == Replaceable::Nothing {
        format!(
            "the database already has {names}; \
            name another database, or replace what pgdyno loaded there with --into-existing"
        )
    } else if !tables.iter().any(|name| name == MARK) {
        format!(
            "the database has {names}, which pgdyno did not load (no {MARK} stands beside): \
            all is left as it is; name another database"
        )
    } else {
        return Ok(());
    };
    Err(LoadError::new(Stage::Create, message))
}

/// With the schemas of routines of earlier runs.
async fn drop(connection: &mut Connection, tables: &[String], routines: &[String]) -> Result<(), Error> {
    let sql = format!(
        "SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname ~ '^{SCHEMA_PREFIX}[0-9a-f]{{12}}$'"
    );
    let schemas: Vec<_> = connection.simple(&sql).await?.into_iter().flatten().flatten().collect();
    let mut statements = vec![format!("DROP TABLE IF EXISTS {}", tables.join(", "))];
    statements.extend(schemas.iter().map(|schema| format!("DROP SCHEMA {schema} CASCADE")));
    statements.extend(routines.iter().map(|routine| format!("DROP FUNCTION {routine}")));
    connection.simple(&statements.join("; ")).await.map(|_| ())
}

/// How the comment of the mark begins that has the number of sets of tables.
const SETS_COMMENT: &str = "table-sets=";

/// The tables of an earlier load: those of our names, and those of as many sets as the mark tells of.
async fn existing_tables(connection: &mut Connection) -> Result<Vec<String>, Error> {
    let names: Vec<_> = TABLES.iter().map(|table| table.name().to_owned()).chain([MARK.to_owned()]).collect();
    let found = tables_among(connection, &names).await?;
    if !found.iter().any(|name| name == MARK) {
        return Ok(found);
    }
    let sql = format!(
        "SELECT substring(obj_description('public.{MARK}'::regclass, 'pg_class') FROM '^{SETS_COMMENT}([0-9]{{1,6}})')"
    );
    let rows = connection.simple(&sql).await?;
    let sets = rows.into_iter().flatten().flatten().find_map(|number| number.parse().ok()).unwrap_or(0);
    Ok([found, tables_among(connection, &names_of_sets(sets)).await?].concat())
}

/// The names of the tables of sets 1 to `sets`.
fn names_of_sets(sets: u32) -> Vec<String> {
    let of_set = |set| TABLES.map(|table| format!("{}{set}", sysbench::name(table)));
    (1..=sets).flat_map(of_set).collect()
}

/// Those of the names that are tables of the schema public.
async fn tables_among(connection: &mut Connection, names: &[String]) -> Result<Vec<String>, Error> {
    let sql = format!(
        "SELECT relname FROM pg_catalog.pg_class \
         WHERE relnamespace = 'public'::regnamespace AND relname IN ('{}') ORDER BY relname",
        names.join("', '")
    );
    let rows = connection.simple(&sql).await?;
    Ok(rows.into_iter().flatten().flatten().collect())
}

/// The routines of our names, with their arguments' types; of those for HammerDB only the ones that call ours.
async fn existing_routines(connection: &mut Connection) -> Result<Vec<String>, Error> {
    let own = routines_among(connection, &ROUTINES, "true").await?;
    Ok([own, routines_of_hammerdb(connection, true).await?].concat())
}

/// The routines of the names that HammerDB calls: those that call ours, or those of others.
async fn routines_of_hammerdb(connection: &mut Connection, ours: bool) -> Result<Vec<String>, Error> {
    let call = format!("(prosrc LIKE '%{SCHEMA_PREFIX}%.tpcc_%') = {ours}");
    routines_among(connection, &HAMMERDB_ROUTINES, &call).await
}

/// Those of the routines that are functions of the schema public and fulfil a condition, with their arguments' types.
async fn routines_among(
    connection: &mut Connection,
    routines: &[(&str, &str)],
    condition: &str,
) -> Result<Vec<String>, Error> {
    let names = routines.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("', '");
    let sql = format!(
        "SELECT oid::regprocedure FROM pg_catalog.pg_proc WHERE pronamespace = 'public'::regnamespace \
         AND proname IN ('{names}') AND {condition} ORDER BY proname"
    );
    let rows = connection.simple(&sql).await?;
    Ok(rows.into_iter().flatten().flatten().collect())
}
