//! The graph: which node has how many links, and which ids operations choose.
//!
//! A rank orders the nodes of one distribution from 0, the first. A shuffle maps it to a node and back, so that the
//! number of links of a node is known without a look at the data.

use super::degree::Degrees;
use super::specification::{Distributions, Edition, Shape};
use super::zipf::Zipf;
use driver::{Stream, derive_seed};

/// Number of link types. A link has each with the same probability.
pub const LINK_TYPES: u64 = 2;
/// The first link type; the second one follows it.
pub const FIRST_LINK_TYPE: i64 = 123_456_789;
/// Interleaved groups of a shuffle, each of which is rotated.
const GROUPS: u64 = 1024;

/// A permutation of ranks: the same in each run, as in LinkBench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// That of the numbers of links: low ranks have many.
    Links = 1,
    /// That of most link reads and writes, which is independent of the numbers of links.
    Uncorrelated,
    /// That of operations on nodes.
    Nodes,
}

impl Shuffle {
    /// The place in 0..`nodes` of a rank.
    #[inline]
    pub fn permute(self, rank: u64, nodes: u64) -> u64 {
        self.rotate(rank, nodes, |size, turn| turn % size)
    }

    /// The rank of a place.
    #[inline]
    pub fn invert(self, place: u64, nodes: u64) -> u64 {
        self.rotate(place, nodes, |size, turn| (size - turn) % size)
    }

    /// Rotates within the group. The first groups have one element more if the groups do not divide the nodes.
    #[inline]
    fn rotate(self, place: u64, nodes: u64, turned: impl Fn(u64, u64) -> u64) -> u64 {
        let groups = GROUPS.min(nodes);
        let (group, index) = (place % groups, place / groups);
        let smallest = nodes / groups;
        let size = smallest + u64::from(group < nodes % groups);
        let turn = derive_seed(self as u64, group) % smallest;
        group + groups * ((index + turned(size, turn)) % size)
    }
}

/// A graph of so many nodes. Their ids begin at 1.
#[derive(Clone, Copy, Debug)]
pub struct Graph {
    /// Number of nodes after the load.
    pub nodes: u64,
    shape: Shape,
    degrees: &'static Degrees,
}

impl Graph {
    /// The graph of a shape.
    pub fn new(nodes: u64, shape: Shape) -> Self {
        Self { nodes, shape, degrees: Degrees::of(shape.edition) }
    }

    /// Its edition.
    pub fn edition(&self) -> Edition {
        self.shape.edition
    }

    /// Number of links of one type that the node of a rank has after the load.
    #[inline]
    pub fn links_at(&self, rank: u64, link_type: u64) -> u64 {
        let is_executed = self.shape.distributions == Distributions::Executed;
        // LinkBench takes the end of the rank's interval that the highest number of links belongs to.
        let offset = if is_executed { 0.0 } else { 0.5 };
        let total = self.degrees.at((rank as f64 + offset) / self.nodes as f64);
        match (is_executed, self.shape.edition) {
            // LinkBench takes the links of one type, not of all, from the total before it distributes the rest.
            (true, Edition::Facebook) => {
                let least = total / LINK_TYPES;
                least + u64::from(link_type < total - least)
            }
            (true, Edition::Fork) => total.max(LINK_TYPES) / LINK_TYPES,
            (false, _) => total / LINK_TYPES + u64::from(link_type < total % LINK_TYPES),
        }
    }

    /// Number of links of one type that a node has after the load.
    #[inline]
    pub fn links(&self, id1: u64, link_type: u64) -> u64 {
        self.links_at(Shuffle::Links.invert(id1 - 1, self.nodes), link_type)
    }

    /// The ids of the nodes with more than `limit` links of the first type, and their number of links of each type.
    pub fn with_more_than(&self, limit: u64) -> Vec<(u64, [u64; 2])> {
        let of_rank = |rank| [0, 1].map(|link_type| self.links_at(rank, link_type));
        let with_rank = (0..self.nodes).map(|rank| (rank, of_rank(rank)));
        let many = with_rank.take_while(|(_, links)| links[0] > limit);
        many.map(|(rank, links)| (Shuffle::Links.permute(rank, self.nodes) + 1, links)).collect()
    }

    /// Number of links and of rows of counttable, approximately in a large graph.
    pub fn totals(&self) -> (u64, u64) {
        const SAMPLES: u64 = 100_000;
        let (mut links, mut counts) = (0, 0);
        let mut add = |rank, weight| {
            for of_type in [0, 1].map(|link_type| self.links_at(rank, link_type)) {
                links += weight * of_type;
                counts += weight * u64::from(of_type > 0);
            }
        };
        // Few nodes have most links, so their numbers are exact.
        let exact = self.nodes.min(SAMPLES);
        (0..exact).for_each(|rank| add(rank, 1));
        let step = (self.nodes - exact) / SAMPLES + 1;
        (exact..self.nodes).step_by(step as usize).for_each(|rank| add(rank, step.min(self.nodes - rank)));
        (links, counts)
    }
}

/// The ids that operations choose.
#[derive(Clone, Debug)]
pub struct Access {
    nodes: u64,
    link_reads: Zipf,
    link_writes: Zipf,
    link_writes_uncorrelated: Zipf,
    node_reads: Zipf,
    node_updates: Zipf,
    /// Share of uncorrelated link writes.
    uncorrelated_writes: f64,
}

/// Share of uncorrelated link reads.
const UNCORRELATED_READS: f64 = 0.995;
/// Exponents of Zipf distributions.
const LINK_READS: f64 = 0.8;
const LINK_WRITES: f64 = 0.741;
const NODE_READS: f64 = 0.625;
const NODE_UPDATES: f64 = 0.606;

/// A distribution of ids. The discriminants are indexes of the tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Of link reads.
    LinkRead,
    /// Of link writes that are correlated with the number of links.
    LinkWrite,
    /// Of other link writes.
    LinkWriteUncorrelated,
    /// Of node reads.
    NodeRead,
    /// Of node updates.
    NodeUpdate,
    /// Of node deletions.
    NodeDelete,
}

/// A chosen node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Its id.
    pub id: u64,
    /// Its rank in the distribution.
    pub rank: u64,
    /// The distribution.
    pub choice: Choice,
    /// Whether it is correlated with the number of links.
    pub is_correlated: bool,
}

impl Access {
    /// The distributions over so many nodes.
    pub fn new(nodes: u64, distributions: Distributions) -> Self {
        // LinkBench looks the settings of uncorrelated writes up under the names of those of reads.
        let (uncorrelated_writes, exponent) = match distributions {
            Distributions::Executed => (UNCORRELATED_READS, LINK_READS),
            Distributions::Configured => (0.95, LINK_WRITES),
        };
        let zipf = |exponent| Zipf::new(nodes, exponent);
        Self {
            nodes,
            link_reads: zipf(LINK_READS),
            link_writes: zipf(LINK_WRITES),
            link_writes_uncorrelated: zipf(exponent),
            node_reads: zipf(NODE_READS),
            node_updates: zipf(NODE_UPDATES),
            uncorrelated_writes,
        }
    }

    /// The node of a link read.
    #[inline]
    pub fn link_read(&self, stream: &mut Stream) -> Chosen {
        let is_correlated = stream.unit() > UNCORRELATED_READS;
        self.choose(Choice::LinkRead, is_correlated, &self.link_reads, stream)
    }

    /// The node of a link write.
    #[inline]
    pub fn link_write(&self, stream: &mut Stream) -> Chosen {
        if stream.unit() > self.uncorrelated_writes {
            return self.choose(Choice::LinkWrite, true, &self.link_writes, stream);
        }
        self.choose(Choice::LinkWriteUncorrelated, false, &self.link_writes_uncorrelated, stream)
    }

    /// The node of a read of a node.
    #[inline]
    pub fn node_read(&self, stream: &mut Stream) -> Chosen {
        self.choose(Choice::NodeRead, false, &self.node_reads, stream)
    }

    /// The node of an update of a node.
    #[inline]
    pub fn node_update(&self, stream: &mut Stream) -> Chosen {
        self.choose(Choice::NodeUpdate, false, &self.node_updates, stream)
    }

    /// The node to delete.
    #[inline]
    pub fn node_delete(&self, stream: &mut Stream) -> Chosen {
        let rank = stream.below(self.nodes);
        self.chosen(Choice::NodeDelete, false, rank)
    }

    #[inline]
    fn choose(&self, choice: Choice, is_correlated: bool, zipf: &Zipf, stream: &mut Stream) -> Chosen {
        self.chosen(choice, is_correlated, zipf.rank(1.0 - stream.unit()))
    }

    #[inline]
    fn chosen(&self, choice: Choice, is_correlated: bool, rank: u64) -> Chosen {
        let shuffle = match choice {
            _ if is_correlated => Shuffle::Links,
            Choice::LinkRead | Choice::LinkWrite | Choice::LinkWriteUncorrelated => Shuffle::Uncorrelated,
            Choice::NodeRead | Choice::NodeUpdate | Choice::NodeDelete => Shuffle::Nodes,
        };
        Chosen { id: shuffle.permute(rank, self.nodes) + 1, rank, choice, is_correlated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: u64, edition: Edition, distributions: Distributions) -> Graph {
        Graph::new(nodes, Shape { edition, distributions })
    }

    #[test]
    fn a_shuffle_is_a_permutation_and_its_inverse_undoes_it() {
        for nodes in [100, 1023, 1024, 1025, 5000, 10_240] {
            for shuffle in [Shuffle::Links, Shuffle::Uncorrelated, Shuffle::Nodes] {
                let mut places: Vec<_> = (0..nodes).map(|rank| shuffle.permute(rank, nodes)).collect();
                assert!((0..nodes).all(|rank| shuffle.invert(places[rank as usize], nodes) == rank));
                places.sort_unstable();
                assert!(places.into_iter().eq(0..nodes), "{shuffle:?} of {nodes}");
            }
        }
        let first = |shuffle: Shuffle| (0..100).map(move |rank| shuffle.permute(rank, 50_000));
        assert!(!first(Shuffle::Links).eq(first(Shuffle::Uncorrelated)));
    }

    #[test]
    fn links_are_divided_between_the_types_as_the_programs_do_it() {
        // Ranks with 1, 2, 3 and 4 links in all, from the shares of nodes in the table of 2011.
        let facebook = graph(10_000_000, Edition::Facebook, Distributions::Executed);
        let found = [0.5, 0.2, 0.1, 0.06].map(|at| [0, 1].map(|of| facebook.links_at((at * 1e7) as u64, of)));
        assert_eq!(found, [[1, 0], [2, 1], [2, 2], [3, 3]]);
        let configured = graph(10_000_000, Edition::Facebook, Distributions::Configured);
        let found =
            [0.5, 0.2, 0.1, 0.06].map(|at| [0, 1].map(|of| configured.links_at((at * 1e7) as u64, of)));
        assert_eq!(found, [[1, 0], [1, 1], [2, 1], [2, 2]]);
        let fork = graph(10_000_000, Edition::Fork, Distributions::Executed);
        assert_eq!([0.5, 0.07].map(|at| fork.links_at((at * 1e7) as u64, 0)), [1, 1]);
    }

    #[test]
    fn the_first_node_has_the_highest_number_of_links_in_a_graph_of_any_size() {
        for (edition, links) in [(Edition::Facebook, 480_982), (Edition::Fork, 2_090_678)] {
            assert_eq!(graph(1000, edition, Distributions::Executed).links_at(0, 0), links);
            assert!(graph(1000, edition, Distributions::Configured).links_at(0, 0) < 2000);
        }
    }

    #[test]
    fn estimated_totals_are_near_the_sums() {
        let graph = graph(1_000_000, Edition::Fork, Distributions::Configured);
        let exact: u64 = (0..graph.nodes).map(|rank| graph.links_at(rank, 0) + graph.links_at(rank, 1)).sum();
        let (links, counts) = graph.totals();
        assert!((links as f64 / exact as f64 - 1.0).abs() < 0.001, "{links} {exact}");
        assert!((counts as f64) < 2e6 && counts as f64 > 1e6);
        let many = graph.with_more_than(500);
        assert!(many.iter().all(|&(id1, [first, _])| first > 500 && graph.links(id1, 0) == first));
        assert_eq!(many.len(), (1..=graph.nodes).filter(|&id1| graph.links(id1, 0) > 500).count());
    }
}
