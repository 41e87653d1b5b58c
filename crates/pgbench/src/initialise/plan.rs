//! Which step does what: the rounds of a load, from the steps that were asked for.

/// A round: what can be done side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The tables dropped.
    Drop,
    /// The tables created.
    Create,
    /// The tables emptied: all in one statement, which minds no foreign keys.
    Empty,
    /// The tables filled, those first that others do not wait for.
    Fill(Turn),
    /// The tables filled by the server.
    Generate,
    /// Visibility maps and statistics.
    Vacuum,
    /// Primary keys of the partitions, which that of the whole then takes over.
    PartitionKeys,
    /// Primary keys.
    Keys,
    /// Foreign keys.
    ForeignKeys,
}

/// A turn of filling. Branches come last, so that their number tells that all the rest is there; only foreign keys
/// would have them first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Accounts and tellers; of tables with foreign keys, branches.
    First,
    /// Branches; of tables with foreign keys, tellers.
    Second,
    /// Of tables with foreign keys, accounts.
    Third,
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
        'g' => &[Part::Empty, Part::Fill(Turn::First), Part::Fill(Turn::Second), Part::Fill(Turn::Third)],
        'G' => &[Part::Generate],
        'v' => &[Part::Vacuum],
        'p' => &[Part::PartitionKeys, Part::Keys],
        'f' => &[Part::ForeignKeys],
        _ => &[],
    }
}
