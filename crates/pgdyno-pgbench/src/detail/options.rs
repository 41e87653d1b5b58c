//! Options that pgbench does not have.

/// Options for additional output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DetailOptions {
    /// Percentiles after pgbench's report.
    pub is_text: bool,
    /// JSON instead of pgbench's report.
    pub is_json: bool,
    /// File for the histogram.
    pub hdr_file: Option<String>,
    /// File for the histograms including those of scripts and commands.
    pub hdr_log: Option<String>,
}

impl DetailOptions {
    /// Parses one of these options.
    pub fn read(&mut self, name: &str, value: &str) {
        match name {
            "json" => self.is_json = true,
            "hdr-file" => self.hdr_file = Some(value.to_owned()),
            "hdr-log" => self.hdr_log = Some(value.to_owned()),
            _ => self.is_text = true,
        }
    }

    /// Whether histograms and the time series are recorded.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.is_text || self.is_json || self.hdr_file.is_some() || self.hdr_log.is_some()
    }
}
