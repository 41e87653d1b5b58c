//! Operations: their mix, and the inputs of the next one.

use super::graph::{Access, Choice, Chosen, Graph, LINK_TYPES};
use super::specification::{Distributions, Edition, Shape};
use super::tally::Tally;
use super::values::Payload;
use driver::Stream;

macro_rules! operations {
    ($($(#[$meta:meta])* $kind:ident = $name:literal, $percent_2011:literal, $percent_of_fork:literal;)+) => {
        /// An operation.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum Kind { $($(#[$meta])* $kind),+ }

        const KINDS: [Kind; 10] = [$(Kind::$kind),+];

        /// Names of the operations, by index.
        pub const NAMES: [&str; 10] = [$($name),+];

        const MIX_2011: [f64; 10] = [$($percent_2011),+];
        const MIX_OF_FORK: [f64; 10] = [$($percent_of_fork),+];
    };
}

// Their names, and their percentages in the mix of 2011 and in that of the fork.
operations! {
    /// Reads a node.
    #[default]
    GetNode = "get_node", 12.932_668_3, 43.9869;
    /// Reads the visible links of a node and type, the newest first.
    GetLinksList = "get_links_list", 50.711_914_5, 22.570_39;
    /// Reads links by their keys.
    MultigetLink = "multiget_link", 0.526_114_2, 12.147_25;
    /// Reads the number of visible links of a node and type.
    CountLink = "count_link", 4.886_356_7, 4.278_98;
    /// Inserts a link, or updates it.
    AddLink = "add_link", 8.988_660_1, 5.350_38;
    /// Updates a link, or inserts it.
    UpdateLink = "update_link", 8.012_212_5, 4.755_89;
    /// Hides a link.
    DeleteLink = "delete_link", 2.990_766_4, 0.984_01;
    /// Inserts a node.
    AddNode = "add_node", 2.573_278_9, 2.611_98;
    /// Updates a node.
    UpdateNode = "update_node", 7.366_437, 3.062_56;
    /// Deletes a node.
    DeleteNode = "delete_node", 1.011_591_4, 0.251_66;
}

/// Share of lists that continue a list of the highest length.
const HISTORY: f64 = 0.003;
/// Parameter of the geometric distribution of the number of links of a multiget.
const MULTIGET: f64 = 0.382;
/// Most links of a multiget.
pub const MULTIGET_MAX: usize = 127;
/// Attempts to draw another link for a multiget of the edition of 2011.
const UNIQUE_ATTEMPTS: u32 = 101;

/// Intended probability that the link exists.
fn existing(kind: Kind) -> f64 {
    match kind {
        Kind::AddLink => 0.05,
        Kind::MultigetLink => 0.5,
        _ => 0.9,
    }
}

/// The next operation with its inputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operation {
    /// The kind.
    pub kind: Kind,
    /// The node of a link, or the node.
    pub id1: u64,
    /// 0 or 1.
    pub link_type: u64,
    /// The second nodes of links: one, but for a multiget.
    pub id2s: Vec<u64>,
    /// Data to write.
    pub data: Vec<u8>,
    /// Index of the list to continue.
    pub history: Option<usize>,
}

/// Draws operations.
#[derive(Clone, Debug)]
pub struct Draws {
    /// Upper ends of the shares of operations.
    ends: [f64; 10],
    distributions: Distributions,
    graph: Graph,
    access: Access,
    link_data: Payload,
    node_data: Payload,
}

impl Draws {
    /// The draws over a graph of so many nodes.
    pub fn new(nodes: u64, shape: Shape) -> Self {
        let mix = if shape.edition == Edition::Facebook { MIX_2011 } else { MIX_OF_FORK };
        let total: f64 = mix.iter().sum();
        let mut end = 0.0;
        let ends = mix.map(|share| {
            end += share / total;
            end
        });
        Self {
            ends,
            distributions: shape.distributions,
            graph: Graph::new(nodes, shape),
            access: Access::new(nodes, shape.distributions),
            link_data: Payload::of_links(shape),
            node_data: Payload::of_nodes(shape),
        }
    }

    /// Whether an update first tries to insert its link.
    pub fn updates_by_insert(&self) -> bool {
        self.graph.edition() == Edition::Facebook
    }

    /// Draws the next operation and counts it. `histories`: number of lists that can be continued.
    #[inline]
    pub fn draw(
        &mut self,
        operation: &mut Operation,
        histories: usize,
        stream: &mut Stream,
        tally: &mut Tally,
    ) {
        let at = stream.unit();
        operation.kind = KINDS[self.ends.partition_point(|&end| end < at).min(KINDS.len() - 1)];
        operation.history = None;
        tally.drawn[operation.kind as usize] += 1;
        match operation.kind {
            Kind::GetNode => node(operation, self.access.node_read(stream), tally),
            Kind::UpdateNode => {
                node(operation, self.access.node_update(stream), tally);
                self.node_data.fill(stream, &mut operation.data);
            }
            Kind::DeleteNode => node(operation, self.access.node_delete(stream), tally),
            Kind::AddNode => self.node_data.fill(stream, &mut operation.data),
            Kind::GetLinksList if stream.unit() <= HISTORY && histories > 0 => {
                operation.history = Some(stream.below(histories as u64) as usize);
                tally.histories += 1;
            }
            Kind::GetLinksList | Kind::CountLink => {
                link(operation, self.access.link_read(stream), stream, tally);
            }
            Kind::MultigetLink => {
                link(operation, self.access.link_read(stream), stream, tally);
                let size = self.multiget_size(stream);
                tally.multiget[size] += 1;
                self.multiget(operation, size, stream);
            }
            Kind::AddLink | Kind::UpdateLink | Kind::DeleteLink => {
                link(operation, self.access.link_write(stream), stream, tally);
                let links = self.graph.links(operation.id1, operation.link_type);
                let id2 = self.id2(operation, links, stream);
                operation.id2s.clear();
                operation.id2s.push(id2);
                if operation.kind != Kind::DeleteLink {
                    self.link_data.fill(stream, &mut operation.data);
                }
            }
        }
    }

    /// LinkBench adds the lower limit, 1, to a number that is at least 1: it never asks for one link.
    #[inline]
    fn multiget_size(&self, stream: &mut Stream) -> usize {
        let drawn = (stream.unit().ln() / (1.0 - MULTIGET).ln()).ceil().max(1.0) as usize;
        let added = usize::from(self.distributions == Distributions::Executed);
        (drawn + added).min(MULTIGET_MAX)
    }

    fn multiget(&self, operation: &mut Operation, size: usize, stream: &mut Stream) {
        let links = self.graph.links(operation.id1, operation.link_type);
        let mut id2s = std::mem::take(&mut operation.id2s);
        id2s.clear();
        let is_unique = self.graph.edition() == Edition::Facebook;
        if is_unique && range(links, existing(operation.kind)) <= size as u64 {
            id2s.extend((0..size as u64).map(|link| operation.id1 + link));
        }
        while id2s.len() < size {
            let mut id2 = self.id2(operation, links, stream);
            let mut attempts = 1;
            while is_unique && id2s.contains(&id2) && attempts < UNIQUE_ATTEMPTS {
                id2 = self.id2(operation, links, stream);
                attempts += 1;
            }
            id2s.push(id2);
        }
        operation.id2s = id2s;
    }

    /// The second node of a link that exists with about the intended probability.
    #[inline]
    fn id2(&self, operation: &Operation, links: u64, stream: &mut Stream) -> u64 {
        let intended = existing(operation.kind);
        match self.graph.edition() {
            Edition::Facebook => operation.id1 + stream.below(range(links, intended)),
            Edition::Fork if stream.unit() <= intended => operation.id1 + stream.below(links.max(1)),
            Edition::Fork => stream.below(self.graph.nodes + 1),
        }
    }
}

#[inline]
fn node(operation: &mut Operation, chosen: Chosen, tally: &mut Tally) {
    operation.id1 = chosen.id;
    tally.count(chosen);
}

#[inline]
fn link(operation: &mut Operation, chosen: Chosen, stream: &mut Stream, tally: &mut Tally) {
    node(operation, chosen, tally);
    operation.link_type = stream.below(LINK_TYPES);
    tally.link_types[operation.link_type as usize] += 1;
}

/// Number of links of which the intended share exists.
fn range(links: u64, intended: f64) -> u64 {
    ((1.0 / intended * links as f64).ceil() as u64).max(1)
}

/// Index of a distribution of ids in the tally.
pub const CHOICES: [(&str, Choice); 6] = [
    ("link_read", Choice::LinkRead),
    ("link_write", Choice::LinkWrite),
    ("link_write_uncorrelated", Choice::LinkWriteUncorrelated),
    ("node_read", Choice::NodeRead),
    ("node_update", Choice::NodeUpdate),
    ("node_delete", Choice::NodeDelete),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(edition: Edition, distributions: Distributions, count: usize) -> (Vec<Operation>, Tally, Draws) {
        let mut draws = Draws::new(100_000, Shape { edition, distributions });
        let (mut stream, mut tally, mut operation) = (Stream::new(3), Tally::default(), Operation::default());
        let mut next = || {
            draws.draw(&mut operation, 0, &mut stream, &mut tally);
            operation.clone()
        };
        let operations = (0..count).map(|_| next()).collect();
        (operations, tally, draws)
    }

    #[test]
    fn shares_are_those_of_the_mix() {
        for (edition, mix) in [(Edition::Facebook, MIX_2011), (Edition::Fork, MIX_OF_FORK)] {
            assert!((mix.iter().sum::<f64>() - 100.0).abs() < 1e-5);
            let (_, tally, _) = drawn(edition, Distributions::Executed, 200_000);
            for (count, percent) in tally.drawn.into_iter().zip(mix) {
                let (mean, share) = (2000.0 * percent, percent / 100.0);
                let deviation = (mean * (1.0 - share)).sqrt();
                assert!((count as f64 - mean).abs() < 5.0 * deviation, "{count} {mean}");
            }
        }
    }

    #[test]
    fn links_exist_as_often_as_each_program_makes_them() {
        // The fork draws the other links from all nodes, where hardly any exists.
        for (edition, kind, low, high) in [
            (Edition::Fork, Kind::UpdateLink, 0.88, 0.92),
            (Edition::Fork, Kind::AddLink, 0.03, 0.07),
            // Facebook's range is rounded up: of one link, half exist, and of none, none.
            (Edition::Facebook, Kind::UpdateLink, 0.2, 0.26),
        ] {
            let (operations, _, draws) = drawn(edition, Distributions::Executed, 300_000);
            let (mut all, mut exist) = (0.0, 0.0);
            for one in operations.iter().filter(|one| one.kind == kind) {
                all += 1.0;
                let links = draws.graph.links(one.id1, one.link_type);
                exist += f64::from((one.id1..one.id1 + links).contains(&one.id2s[0]));
            }
            assert!((low..high).contains(&(exist / all)), "{edition:?} {kind:?}: {}", exist / all);
        }
    }

    #[test]
    fn a_multiget_never_asks_for_one_link_but_as_configured_it_does() {
        for (distributions, first) in [(Distributions::Executed, 2), (Distributions::Configured, 1)] {
            let (operations, tally, _) = drawn(Edition::Fork, distributions, 300_000);
            let total: u64 = tally.multiget.iter().sum();
            let mean =
                tally.multiget.iter().zip(0..).map(|(n, size)| n * size).sum::<u64>() as f64 / total as f64;
            assert!((mean - 1.0 / MULTIGET - (first - 1) as f64).abs() < 0.05, "{mean}");
            assert_eq!(tally.multiget.iter().position(|&n| n > 0), Some(first));
            let multigets = operations.iter().filter(|one| one.kind == Kind::MultigetLink);
            assert_eq!(multigets.map(|one| one.id2s.len()).min(), Some(first));
        }
    }

    #[test]
    fn the_links_of_a_multiget_of_2011_are_different() {
        let (operations, ..) = drawn(Edition::Facebook, Distributions::Executed, 300_000);
        for one in operations.iter().filter(|one| one.kind == Kind::MultigetLink) {
            let mut id2s = one.id2s.clone();
            id2s.sort_unstable();
            id2s.dedup();
            assert_eq!(id2s.len(), one.id2s.len());
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_operations() {
        let of = |distributions| drawn(Edition::Fork, distributions, 1000).0;
        assert_eq!(of(Distributions::Executed), of(Distributions::Executed));
        assert_ne!(of(Distributions::Executed), of(Distributions::Configured));
    }

    #[test]
    fn writes_are_as_correlated_as_each_distribution_says() {
        for (distributions, share) in [(Distributions::Executed, 0.995), (Distributions::Configured, 0.95)] {
            let (_, tally, _) = drawn(Edition::Facebook, distributions, 300_000);
            let sum = |choice: Choice| tally.ranks[choice as usize].iter().sum::<u64>() as f64;
            let uncorrelated = sum(Choice::LinkWriteUncorrelated);
            let found = uncorrelated / (uncorrelated + sum(Choice::LinkWrite));
            assert!((found - share).abs() < 0.005, "{found}");
            let reads = sum(Choice::LinkRead);
            assert!((tally.correlated_reads as f64 / reads - 0.005).abs() < 0.001);
        }
    }
}
