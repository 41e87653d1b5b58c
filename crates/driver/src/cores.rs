//! CPU partition in a slice: CPUs of the targets' servers and of the threads that drive them.

use super::control::{Control, Halt, failed};
use super::messages::Command;
use super::spec::Slice;
use reactor::{KeptServer, Nanos, core_set};

impl Control<'_, '_> {
    /// Finds the servers that slices pin to CPUs.
    pub fn find_servers(&mut self) -> Result<(), Halt> {
        if !self.spec.is_pinned() {
            return Ok(());
        }
        for (target, of) in self.spec.targets.iter().enumerate() {
            let server = KeptServer::new(of.postmaster_pid.unwrap_or(0));
            self.servers
                .push(server.map_err(|error| failed("prepare", Some(target), error.to_string(), None))?);
        }
        Ok(())
    }

    /// Pins servers and threads before a slice, while there is no load. Returns its duration.
    ///
    /// It is repeated for every slice, for new processes of a server.
    pub fn share_cores(&mut self, slice: &Slice) -> Result<Nanos, Halt> {
        let began = self.clock.now();
        let sets = slice.targets.iter().zip(&slice.cores).map(|(target, cores)| (*target, core_set(cores)));
        let sets: Vec<_> = sets.collect();
        if sets.is_empty() {
            return Ok(Nanos::ZERO);
        }
        // Each thread handles commands in order: it is pinned before it opens the slice.
        self.command(&Command::Keep(sets.clone()))?;
        for (target, cores) in sets {
            let kept = self.servers[target].keep_to(&cores);
            kept.map_err(|error| failed("drive", Some(target), error.to_string(), None))?;
        }
        Ok(self.clock.now() - began)
    }
}
