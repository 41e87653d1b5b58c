//! The tables of LinkBench, made by COPY in the order of nodes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use super::degree;
use super::graph::{FIRST_LINK_TYPE, Graph, LINK_TYPES};
use super::specification::{LinkBenchTables, Shape};
use super::values::{NODE_TIME_S, Payload, link_time_ms};
use driver::{Stream, derive_seed};
use loader::dataset::{Dataset, Round, Rows, Table, Work};
use loader::format::format_of;
use loader::phase::Phase;
use loader::replace::{self, MARK};
use loader::{LoadError, Replaceable};
use pgwire::copy;
use reactor::Connection;

/// The type of all nodes.
pub const NODE_TYPE: i32 = 2048;
/// Visibility of a link that operations see.
pub const VISIBLE: i16 = 1;
/// Changes whenever the same specification makes other rows, or another comment.
const ROWS_FORMAT: &str = "rows 2";
/// Nodes whose links, or whose rows, are a group: about 100 kB.
const GROUP_NODES: u64 = 400;
/// Links of one type of a node from which they are groups of their own, of so many links.
const GROUP_LINKS: u64 = 1024;
/// Bytes of a row with its index entries, without the median length of its data.
const LINK_BYTES: u64 = 220;
const COUNT_BYTES: u64 = 100;
const NODE_BYTES: u64 = 110;
/// The mean of the log-normal distribution in medians.
const MEAN_OF_MEDIAN: f64 = 1.65;

const EXISTING: &str = include_str!("sql/existing.sql");

/// A table, the most expensive first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Link,
    Node,
    Count,
}

const KINDS: [Kind; 3] = [Kind::Link, Kind::Node, Kind::Count];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Link => "linktable",
            Self::Node => "nodetable",
            Self::Count => "counttable",
        }
    }

    fn create(self) -> &'static str {
        match self {
            Self::Link => include_str!("sql/create_linktable.sql"),
            Self::Node => include_str!("sql/create_nodetable.sql"),
            Self::Count => include_str!("sql/create_counttable.sql"),
        }
    }

    fn columns(self) -> &'static str {
        match self {
            Self::Link => "(id1, id2, link_type, visibility, data, time, version)",
            Self::Node => "(id, type, version, time, data)",
            Self::Count => "(id, link_type, count, time, version)",
        }
    }

    /// Statements after the COPY.
    fn indexes(self) -> &'static [&'static str] {
        match self {
            Self::Link => &[include_str!("sql/linktable_key.sql"), include_str!("sql/linktable_index.sql")],
            Self::Node => {
                &[include_str!("sql/nodetable_key.sql"), include_str!("sql/nodetable_sequence.sql")]
            }
            Self::Count => &[include_str!("sql/counttable_key.sql")],
        }
    }
}

/// The format of what a load makes: a digest.
pub static FORMAT: LazyLock<String> = LazyLock::new(|| {
    let tables =
        KINDS.iter().flat_map(|kind| std::iter::once(kind.create()).chain(kind.indexes().iter().copied()));
    format_of(tables.chain(degree::TEXTS).chain([ROWS_FORMAT]))
});

/// The comment of the linktable of complete data, which has so many links.
pub fn comment(nodes: u64, shape: Shape, links: u64, seed: u64) -> String {
    format!("{MARK}: linkbench nodes={nodes} {} links={links} seed={seed} format={}", shape.text(), *FORMAT)
}

/// The dataset.
pub struct LinkBenchDataset {
    shape: Shape,
    seed: u64,
    graph: Graph,
    groups: Arc<Vec<Group>>,
    tables: Vec<Table>,
    /// Rows of linktable so far.
    links: Arc<AtomicU64>,
}

/// A group of rows of linktable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    /// The links of nodes from this id on, without those with many.
    Nodes(u64),
    /// A part of the links of one node and type.
    Links { id1: u64, link_type: u64, first: u64 },
}

impl LinkBenchDataset {
    /// Nothing is done yet.
    #[must_use]
    pub fn new(tables: LinkBenchTables, seed: u64) -> Self {
        let (nodes, shape) = (tables.nodes, tables.shape());
        let graph = Graph::new(nodes, shape);
        let (links, counts) = graph.totals();
        let [of_link, of_node] = [Payload::of_links(shape), Payload::of_nodes(shape)]
            .map(|payload| (payload.median() * MEAN_OF_MEDIAN) as u64);
        let foretold = |kind: Kind| {
            let (rows, bytes) = match kind {
                // An index has the data, too.
                Kind::Link => (links, LINK_BYTES + 2 * of_link),
                Kind::Node => (nodes, NODE_BYTES + of_node),
                Kind::Count => (counts, COUNT_BYTES),
            };
            Table { name: kind.name().into(), rows, bytes_estimated: rows * bytes }
        };
        let tables = KINDS.map(foretold).into();
        Self { shape, seed, graph, groups: Arc::new(groups(&graph)), tables, links: Arc::default() }
    }

    fn rows(&self, kind: Kind) -> TableRows {
        let of_kind = if kind == Kind::Link { Payload::of_links } else { Payload::of_nodes };
        TableRows {
            kind,
            graph: self.graph,
            seed: self.seed,
            groups: Arc::clone(&self.groups),
            payload: of_kind(self.shape),
            links: Arc::clone(&self.links),
        }
    }
}

/// The groups of linktable in the order of nodes.
fn groups(graph: &Graph) -> Vec<Group> {
    let mut many = graph.with_more_than(GROUP_LINKS);
    many.sort_unstable();
    let (mut many, mut found) = (many.into_iter().peekable(), Vec::new());
    for first in (1..=graph.nodes).step_by(GROUP_NODES as usize) {
        found.push(Group::Nodes(first));
        while let Some((id1, links)) = many.next_if(|&(id1, _)| id1 < first + GROUP_NODES) {
            for (link_type, of_type) in (0..).zip(links) {
                let parts = (0..of_type).step_by(GROUP_LINKS as usize);
                found.extend(parts.map(|first| Group::Links { id1, link_type, first }));
            }
        }
    }
    found
}

/// The rows of one table.
struct TableRows {
    kind: Kind,
    graph: Graph,
    seed: u64,
    groups: Arc<Vec<Group>>,
    payload: Payload,
    links: Arc<AtomicU64>,
}

impl TableRows {
    /// The seed of the times of the links of a node and type.
    fn seed_of_times(&self, id1: u64, link_type: u64) -> u64 {
        derive_seed(derive_seed(self.seed, 1), id1 * LINK_TYPES + link_type)
    }

    fn nodes(&self, group: u64) -> std::ops::RangeInclusive<u64> {
        let first = group * GROUP_NODES + 1;
        first..=(first + GROUP_NODES - 1).min(self.graph.nodes)
    }

    /// Appends links `first..last` of a node and type.
    fn append_links(
        &self,
        (id1, link_type): (u64, u64),
        links: std::ops::Range<u64>,
        (payload, stream): (&mut Payload, &mut Stream),
        out: &mut Vec<u8>,
    ) {
        let times = self.seed_of_times(id1, link_type);
        for link in links {
            copy::row(out, 7);
            copy::int8(out, id1 as i64);
            copy::int8(out, (id1 + link) as i64);
            copy::int8(out, FIRST_LINK_TYPE + link_type as i64);
            copy::int2(out, VISIBLE);
            payload.append(stream, out);
            copy::int8(out, link_time_ms(times, link));
            copy::int4(out, 0);
        }
    }

    fn append_link_group(&self, group: u64, out: &mut Vec<u8>) -> u64 {
        let mut stream = Stream::new(derive_seed(derive_seed(self.seed, 2), group));
        let mut payload = self.payload.clone();
        match self.groups[group as usize] {
            Group::Links { id1, link_type, first } => {
                let last = (first + GROUP_LINKS).min(self.graph.links(id1, link_type));
                self.append_links((id1, link_type), first..last, (&mut payload, &mut stream), out);
                last - first
            }
            Group::Nodes(first) => {
                let mut count = 0;
                for id1 in self.nodes((first - 1) / GROUP_NODES) {
                    let links = [0, 1].map(|link_type| self.graph.links(id1, link_type));
                    if links[0] > GROUP_LINKS {
                        continue;
                    }
                    for (link_type, of_type) in (0..).zip(links) {
                        let from = (&mut payload, &mut stream);
                        self.append_links((id1, link_type), 0..of_type, from, out);
                        count += of_type;
                    }
                }
                count
            }
        }
    }

    fn append_nodes(&self, group: u64, out: &mut Vec<u8>) -> u64 {
        let mut stream = Stream::new(derive_seed(derive_seed(self.seed, 3), group));
        let mut payload = self.payload.clone();
        for id in self.nodes(group) {
            copy::row(out, 5);
            copy::int8(out, id as i64);
            copy::int4(out, NODE_TYPE);
            copy::int8(out, 1);
            copy::int4(out, NODE_TIME_S);
            payload.append(&mut stream, out);
        }
        self.nodes(group).count() as u64
    }

    /// A count has the time of the newest link.
    fn append_counts(&self, group: u64, out: &mut Vec<u8>) -> u64 {
        let mut rows = 0;
        for id in self.nodes(group) {
            for link_type in 0..LINK_TYPES {
                let (links, times) = (self.graph.links(id, link_type), self.seed_of_times(id, link_type));
                let Some(newest) = (0..links).map(|link| link_time_ms(times, link)).max() else { continue };
                copy::row(out, 5);
                copy::int8(out, id as i64);
                copy::int8(out, FIRST_LINK_TYPE + link_type as i64);
                copy::int8(out, links as i64);
                copy::int8(out, newest);
                copy::int8(out, 0);
                rows += 1;
            }
        }
        rows
    }
}

impl Rows for TableRows {
    fn groups(&self) -> u64 {
        match self.kind {
            Kind::Link => self.groups.len() as u64,
            Kind::Node | Kind::Count => self.graph.nodes.div_ceil(GROUP_NODES),
        }
    }

    fn append(&self, group: u64, out: &mut Vec<u8>) -> u64 {
        match self.kind {
            Kind::Link => {
                let links = self.append_link_group(group, out);
                self.links.fetch_add(links, Relaxed);
                links
            }
            Kind::Node => self.append_nodes(group, out),
            Kind::Count => self.append_counts(group, out),
        }
    }
}

impl Dataset for LinkBenchDataset {
    fn tables(&self) -> &[Table] {
        &self.tables
    }

    async fn begin(&self, control: &mut Connection, existing: Replaceable) -> Result<(), LoadError> {
        replace::replace(control, existing, EXISTING, |_| true).await
    }

    async fn round(&self, done: usize, _: &mut Connection) -> Result<Option<Round>, LoadError> {
        let copy = |table: usize| {
            let kind = KINDS[table];
            Work::create_and_copy(kind.create(), kind.name(), kind.columns(), Box::new(self.rows(kind)))
        };
        let nodes = self.graph.nodes.to_string();
        let indexes =
            |table: usize| KINDS[table].indexes().iter().map(|sql| sql.replace("{nodes}", &nodes)).collect();
        let phase = Phase::OF_NEW_TABLES.get(done);
        Ok(phase.map(|&phase| Round::of_new_tables(phase, &self.tables, copy, indexes)))
    }

    async fn finish(&self, control: &mut Connection) -> Result<(), LoadError> {
        let comment = comment(self.graph.nodes, self.shape, self.links.load(Relaxed), self.seed);
        replace::mark_complete(control, "linktable", &comment).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specification::{Distributions, Edition};

    fn dataset(nodes: u64, distributions: Distributions) -> LinkBenchDataset {
        LinkBenchDataset::new(LinkBenchTables { nodes, edition: Edition::Facebook, distributions }, 7)
    }

    fn rows(dataset: &LinkBenchDataset, kind: Kind) -> (u64, Vec<u8>) {
        let (rows, mut out) = (dataset.rows(kind), Vec::new());
        ((0..rows.groups()).map(|group| rows.append(group, &mut out)).sum(), out)
    }

    #[test]
    fn groups_have_every_link_once_in_the_order_of_nodes() {
        // As executed, the first of 1000 nodes has half of a million links of each type.
        let dataset = dataset(1000, Distributions::Executed);
        let graph = dataset.graph;
        let expected = (1..=1000).flat_map(|id1| {
            let of_type = move |link_type: u64| {
                (0..graph.links(id1, link_type)).map(move |link| (id1, link_type, link))
            };
            (0..LINK_TYPES).flat_map(of_type)
        });
        let (count, out) = rows(&dataset, Kind::Link);
        let (mut at, mut found) = (0, Vec::new());
        let number = |at: usize| i64::from_be_bytes(out[at..at + 8].try_into().expect("8 bytes")) as u64;
        while at < out.len() {
            let (id1, id2) = (number(at + 6), number(at + 18));
            found.push((id1, number(at + 30) - FIRST_LINK_TYPE as u64, id2 - id1));
            let length = u32::from_be_bytes(out[at + 44..at + 48].try_into().expect("4 bytes")) as usize;
            at += 48 + length + 12 + 8;
        }
        found.sort_unstable();
        assert_eq!(count, found.len() as u64);
        assert_eq!((dataset.tables[0].rows, dataset.links.load(Relaxed)), (count, count));
        assert!(found.into_iter().eq(expected));
    }

    #[test]
    fn rows_depend_on_the_seed_only() {
        let dataset = dataset(2000, Distributions::Configured);
        for kind in KINDS {
            assert_eq!(rows(&dataset, kind), rows(&dataset, kind));
        }
        let other = LinkBenchDataset { seed: 8, ..self::dataset(2000, Distributions::Configured) };
        assert_ne!(rows(&dataset, Kind::Link).1, rows(&other, Kind::Link).1);
        assert_eq!(rows(&dataset, Kind::Count).0, dataset.tables[2].rows);
    }
}
