//! Rounds of a load, from the requested steps.

/// A round: jobs that can run in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Drop the tables.
    Drop,
    /// Create the tables.
    Create,
    /// Truncate the tables: all in one statement, regardless of foreign keys.
    Empty,
    /// Fill the tables of this turn, from 0.
    Fill(usize),
    /// Generate data in the server.
    Generate,
    /// Vacuum and analyze.
    Vacuum,
    /// Primary keys of the partitions, which the key of the partitioned table then attaches.
    PartitionKeys,
    /// Primary keys.
    Keys,
    /// Foreign keys.
    ForeignKeys,
}

/// The rounds of these steps.
pub fn rounds(steps: &[(usize, char)]) -> Vec<((usize, char), Part)> {
    let of_step = |&step: &(usize, char)| parts(step.1).iter().map(move |&part| (step, part));
    steps.iter().flat_map(of_step).collect()
}

fn parts(step: char) -> &'static [Part] {
    match step {
        'd' => &[Part::Drop],
        't' => &[Part::Create],
        'g' => &[Part::Empty, Part::Fill(0), Part::Fill(1), Part::Fill(2)],
        'G' => &[Part::Generate],
        'v' => &[Part::Vacuum],
        'p' => &[Part::PartitionKeys, Part::Keys],
        'f' => &[Part::ForeignKeys],
        _ => &[],
    }
}
