//! Who has which cores in a slice: the targets' servers, and the threads that drive them.

use super::control::{Control, Halt, failed};
use super::messages::Command;
use super::spec::Slice;
use reactor::{KeptServer, Nanos, core_set};

impl Control<'_, '_> {
    /// Finds the servers that slices keep to cores.
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

    /// Before a slice, while nothing is driven: gives each of its targets the cores that it has in it. How long that
    /// took. New processes of a server, and those that were started elsewhere, are caught at every slice anew.
    pub fn share_cores(&mut self, slice: &Slice) -> Result<Nanos, Halt> {
        let began = self.clock.now();
        let sets = slice.targets.iter().zip(&slice.cores).map(|(target, cores)| (*target, core_set(cores)));
        let sets: Vec<_> = sets.collect();
        if sets.is_empty() {
            return Ok(Nanos::ZERO);
        }
        // Each thread obeys in order: it is on its cores before it opens the slice.
        self.command(&Command::Keep(sets.clone()))?;
        for (target, cores) in sets {
            let kept = self.servers[target].keep_to(&cores);
            kept.map_err(|error| failed("drive", Some(target), error.to_string(), None))?;
        }
        Ok(self.clock.now() - began)
    }
}
