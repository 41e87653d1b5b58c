//! Checkpoint file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::CheckpointError;
use super::{Before, History, ThreadState};
use reactor::{Nanos, Usage};

/// Identifier of the file format. Change it with the format.
const FORMAT: &str = "pgdyno-pgbench checkpoint 1";

/// State of a run at an instant.
#[derive(Clone, Serialize, Deserialize)]
pub struct Checkpoint {
    format: String,
    /// Configuration of the run: see [`super::super::run_config`].
    pub asked: Value,
    /// Whether the run is complete.
    pub is_finished: bool,
    /// Boot ID of the machine.
    pub boot: String,
    /// Duration of the run so far.
    pub run: Nanos,
    cpu_user: Nanos,
    cpu_system: Nanos,
    /// Statistics of earlier runs.
    pub history: History,
    /// By thread.
    pub threads: Vec<ThreadState>,
}

impl Checkpoint {
    /// Creates a checkpoint of the run so far.
    #[must_use]
    pub fn new(asked: Value, is_finished: bool, so_far: &Before, threads: Vec<ThreadState>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            asked,
            is_finished,
            boot: boot(),
            run: so_far.run,
            cpu_user: so_far.cpu.user,
            cpu_system: so_far.cpu.system,
            history: so_far.history,
            threads,
        }
    }

    /// Seed of the generators.
    #[must_use]
    pub fn seed(&self) -> Option<u64> {
        self.asked["random_seed"].as_u64()
    }

    /// Sets the CPU time used by the run.
    pub fn set_cpu(&mut self, cpu: Usage) {
        (self.cpu_user, self.cpu_system) = (cpu.user, cpu.system);
    }

    /// State for the run that resumes.
    #[must_use]
    pub fn before(&self) -> Before {
        let cpu = Usage { user: self.cpu_user, system: self.cpu_system };
        Before { run: self.run, cpu, history: self.history }
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        let text =
            fs::read(path).map_err(|source| CheckpointError::Read { path: path.to_owned(), source })?;
        let checkpoint = serde_json::from_slice::<Self>(&text).ok().filter(|read| read.format == FORMAT);
        checkpoint.ok_or_else(|| CheckpointError::OtherFormat(path.to_owned()))
    }

    /// Writes the file atomically: it is complete after a crash of the machine at any time.
    pub fn write(&self, path: &Path) -> Result<(), CheckpointError> {
        self.replace(path).map_err(|source| CheckpointError::Write { path: path.to_owned(), source })
    }

    fn replace(&self, path: &Path) -> io::Result<()> {
        let new = beside(path, "pgdyno-new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Describes the difference from the present configuration; `None` if the run can be resumed.
    #[must_use]
    pub fn difference(&self, asked: &Value) -> Option<String> {
        let (Some(then), Some(now)) = (self.asked.as_object(), asked.as_object()) else {
            return Some("it says nothing of its run".to_owned());
        };
        let name = then.keys().chain(now.keys()).find(|name| then.get(*name) != now.get(*name))?;
        let shown = |value: Option<&Value>| value.unwrap_or(&Value::Null).to_string();
        if name == "scripts" {
            return Some("the scripts or their weights are others".to_owned());
        }
        Some(format!("{name} is {} now and was {}", shown(now.get(name)), shown(then.get(name))))
    }
}

/// Appends a suffix to the file name.
#[must_use]
pub fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(more);
    name.into()
}

/// The boot ID from the kernel; empty if there is none.
#[must_use]
pub fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
