//! The options that pgbench does not have.

/// As asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DetailOptions {
    /// Percentiles behind pgbench's report.
    pub is_text: bool,
    /// JSON instead of pgbench's report.
    pub is_json: bool,
    /// The file for the histogram.
    pub hdr_file: Option<String>,
    /// The file for the histograms of scripts and commands as well.
    pub hdr_log: Option<String>,
}

impl DetailOptions {
    /// Takes one of the options.
    pub fn read(&mut self, name: &str, value: &str) {
        match name {
            "json" => self.is_json = true,
            "hdr-file" => self.hdr_file = Some(value.to_owned()),
            "hdr-log" => self.hdr_log = Some(value.to_owned()),
            _ => self.is_text = true,
        }
    }

    /// Whether there is need of histograms and the series.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.is_text || self.is_json || self.hdr_file.is_some() || self.hdr_log.is_some()
    }
}
