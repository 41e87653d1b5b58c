//! Start of a run with a checkpoint, new or resumed.

use std::path::Path;

use reactor::Nanos;

use super::{Before, Checkpoint, CheckpointError, CheckpointFiles, CheckpointOptions, History, LiveCounters};
use crate::bench::Bench;
use crate::run_config;

/// Files of a checkpoint, and its state if the run is resumed.
pub type Opened = Option<(CheckpointFiles, Option<Checkpoint>)>;

/// Opens the checkpoint files of the options.
pub fn open(options: &CheckpointOptions) -> Result<Opened, CheckpointError> {
    let checkpoint_files = |path: &Path| {
        let every = Nanos(u64::from(options.interval_s) * 1_000_000_000);
        Ok::<_, CheckpointError>(CheckpointFiles {
            path: path.to_owned(),
            every,
            live: LiveCounters::lock(path)?,
        })
    };
    match (&options.begin, &options.resume) {
        (None, None) => Ok(None),
        (Some(path), _) => {
            let path = Path::new(path);
            if path.exists() && !Checkpoint::read(path)?.is_finished {
                return Err(CheckpointError::NotEnded(path.to_owned()));
            }
            Ok(Some((checkpoint_files(path)?, None)))
        }
        (None, Some(path)) => {
            let path = Path::new(path);
            Checkpoint::read(path)?;
            let checkpoint_files = checkpoint_files(path)?;
            // Read it again: another run may have resumed it before the lock was acquired.
            let checkpoint = Checkpoint::read(path)?;
            if checkpoint.is_finished {
                return Err(CheckpointError::Ended(path.to_owned()));
            }
            Ok(Some((checkpoint_files, Some(checkpoint))))
        }
    }
}

impl Bench {
    /// The state of the run before its threads start.
    #[must_use]
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint::new(run_config::all(self), false, &self.before, self.states())
    }

    /// Resumes from a checkpoint, if there is one, and keeps the state of the run from now on.
    pub fn keep(
        &mut self,
        mut checkpoint_files: CheckpointFiles,
        resumed: Option<Checkpoint>,
    ) -> Result<(), CheckpointError> {
        let is_new = resumed.is_none();
        if let Some(checkpoint) = resumed {
            if let Some(difference) = checkpoint.difference(&run_config::all(self)) {
                return Err(CheckpointError::OtherRun { path: checkpoint_files.path, difference });
            }
            let history = self.history(&checkpoint, &checkpoint_files.live)?;
            self.before = Before { history, ..checkpoint.before() };
            self.set_states(checkpoint.threads);
        }
        let checkpoint = self.checkpoint();
        // The counters on disk always belong to the checkpoint on disk, which they identify.
        if is_new {
            checkpoint_files.live.begin(&checkpoint)?;
        }
        checkpoint.write(&checkpoint_files.path)?;
        if !is_new {
            checkpoint_files.live.begin(&checkpoint)?;
        }
        self.checkpoint_files = Some(checkpoint_files);
        Ok(())
    }

    fn history(&self, checkpoint: &Checkpoint, live: &LiveCounters) -> Result<History, CheckpointError> {
        let (since, is_certain) = live.since(checkpoint)?;
        let clients = checkpoint.threads.iter().flat_map(|thread| &thread.place.clients);
        let in_flight = clients.filter(|client| self.is_to_go_on(client.ended)).count();
        let earlier = checkpoint.history;
        Ok(History {
            resumed: earlier.resumed + 1,
            run_again: earlier.run_again + since,
            in_flight_max: earlier.in_flight_max + in_flight as u64,
            is_incomplete: earlier.is_incomplete || !is_certain,
        })
    }
}
