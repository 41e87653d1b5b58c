//! The process of a disk: a specification, then commands and events, in lines of JSON.

use std::fs::OpenOptions;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Config, MountOption};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cache::{Cache, PIECE_BYTES, Survivors};
use crate::disk::{Disk, Fault, Happened, Moment, Operation};
use crate::filesystem::{IMAGE_NAME, ImageFile};
use crate::store::Store;

/// The longest command that is read.
const LINE_BYTES_MAX: usize = 1 << 16;

/// A disk to serve.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Specification {
    /// The file with the durable contents. Its size is that of the disk.
    image: PathBuf,
    /// An empty directory. The disk appears in it as a file.
    mount: PathBuf,
    /// Bytes that the write cache holds.
    cache_bytes_max: usize,
    /// Whether flushes are acknowledged and not done.
    #[serde(default)]
    lies: bool,
}

/// A command to a disk.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
enum Command {
    /// Answered by `cut` {`at_ns`, `volatile`, `survived`, `torn`, `planned`}, counts of pieces. Later requests fail with EIO.
    Cut {
        survivors: Survivors,
        seed: u64,
        /// At once if absent.
        when: Option<When>,
    },
    /// Answered by `failing`. The n-th request of this kind from now on fails with EIO.
    Fail { operation: Operation, nth: u64 },
    /// Answered by `counts` {`counts`, `volatile`, `image_error`}.
    Counts,
    /// Answered by `result` {`counts`, `image_error`}, the last event. All writes are durable.
    Stop,
}

/// The moment of a cut, at the latest after a time.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct When {
    at: Moment,
    within_ms: u64,
}

/// The longest time that a cut waits for its moment.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Why a disk is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The specification is wrong.
    #[error("{0}")]
    Specification(#[from] serde_json::Error),
    /// The image cannot be used.
    #[error("cannot open the image {0}: {1}")]
    Image(PathBuf, io::Error),
    /// The size is not a multiple of a piece.
    #[error("the size of the image must be a multiple of {PIECE_BYTES} bytes and greater than 0 (got {0})")]
    Size(u64),
    /// FUSE refuses.
    #[error("cannot mount FUSE on {0}: {1}")]
    Mount(PathBuf, io::Error),
}

/// Serves the disk of `input`'s first line until a command to stop or the end of the input. Returns whether the specification was sound
/// and the disk could be mounted.
///
/// At the end of the input the parent has died: what is volatile is lost, as in a cut. The kernel ends the connection with the process.
pub fn run(input: &mut dyn BufRead, out: &mut dyn Write) -> bool {
    match start(input) {
        Ok((disk, _session)) => {
            tell(
                out,
                &json!({"event": "serving", "file": IMAGE_NAME, "size_bytes": disk.size_bytes(), "pid": std::process::id()}),
            );
            obey(&disk, input, out);
            true
        }
        Err(error) => {
            tell(out, &json!({"event": "failed", "message": error.to_string()}));
            false
        }
    }
}

fn start(
    input: &mut dyn BufRead,
) -> Result<(Arc<Disk<std::fs::File>>, fuser::BackgroundSession), ServeError> {
    let mut line = String::new();
    input.read_line(&mut line).map_err(serde_json::Error::io)?;
    let wanted: Specification = serde_json::from_str(&line)?;
    let unusable = |error| ServeError::Image(wanted.image.clone(), error);
    let image = OpenOptions::new().read(true).write(true).open(&wanted.image).map_err(unusable)?;
    let size_bytes = image.metadata().map_err(unusable)?.len();
    if size_bytes == 0 || size_bytes % PIECE_BYTES as u64 != 0 {
        return Err(ServeError::Size(size_bytes));
    }
    // Memory that this process needs must not wait for writes to the disk that it serves. Not all kernels and users may.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let cache = Cache::new(image, wanted.cache_bytes_max / PIECE_BYTES);
    let disk = Arc::new(Disk::new(cache, size_bytes, wanted.lies));
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("pgdyno".to_owned()),
        MountOption::Subtype("pgdyno".to_owned()),
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoExec,
    ];
    let session = fuser::spawn_mount(ImageFile(Arc::clone(&disk)), &wanted.mount, &config)
        .map_err(|error| ServeError::Mount(wanted.mount.clone(), error))?;
    Ok((disk, session))
}

/// Carries out commands. Each is answered by one event.
fn obey<S: Store>(disk: &Disk<S>, input: &mut dyn BufRead, out: &mut dyn Write) {
    let mut line = String::new();
    loop {
        line.clear();
        match io::Read::take(&mut *input, LINE_BYTES_MAX as u64).read_line(&mut line) {
            Ok(length) if length > 0 => {}
            _ => return,
        }
        let (event, is_last) = answer(disk, &line);
        tell(out, &event);
        if is_last {
            return;
        }
    }
}

/// Carries out one command. Returns its event, and whether it was the last one.
fn answer<S: Store>(disk: &Disk<S>, line: &str) -> (Value, bool) {
    let event = match serde_json::from_str(line) {
        Err(error) => json!({"event": "misunderstood", "message": error.to_string()}),
        Ok(Command::Cut { survivors, seed, when }) => match cut(disk, survivors, seed, when) {
            Ok(Some(Happened { at_ns, cut, is_planned })) => json!({
                "event": "cut", "at_ns": at_ns, "volatile": cut.volatile, "survived": cut.survived, "torn": cut.torn,
                "planned": is_planned,
            }),
            Ok(None) => json!({"event": "misunderstood", "message": "the power is off already"}),
            Err(fault) => json!({"event": "failed", "message": fault.to_string()}),
        },
        Ok(Command::Fail { operation, nth }) => {
            disk.fail(operation, nth);
            json!({"event": "failing"})
        }
        Ok(Command::Counts) => {
            let (counts, volatile) = disk.counts();
            json!({"event": "counts", "counts": counts, "volatile": volatile, "image_error": disk.image_error()})
        }
        Ok(Command::Stop) => {
            let event = match disk.settle() {
                Ok(()) => {
                    json!({"event": "result", "counts": disk.counts().0, "image_error": disk.image_error()})
                }
                Err(fault) => json!({"event": "failed", "message": fault.to_string()}),
            };
            return (event, true);
        }
    };
    (event, false)
}

fn cut<S: Store>(
    disk: &Disk<S>,
    survivors: Survivors,
    seed: u64,
    when: Option<When>,
) -> Result<Option<Happened>, Fault> {
    match when {
        None => disk.cut(survivors, seed),
        Some(When { at, within_ms }) => {
            disk.cut_when(at, Duration::from_millis(within_ms).min(WAIT_MAX), survivors, seed)
        }
    }
}

/// An error means that nobody reads; the end of the input follows.
fn tell(out: &mut dyn Write, event: &Value) {
    let _ = writeln!(out, "{event}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(commands: &str) -> Vec<Value> {
        let disk = Disk::new(Cache::new(vec![0; 8 * PIECE_BYTES], 8), 8 * PIECE_BYTES as u64, false);
        disk.write(0, &[1; 3 * PIECE_BYTES]).expect("sound");
        let mut out = Vec::new();
        obey(&disk, &mut commands.as_bytes(), &mut out);
        String::from_utf8(out)
            .expect("text")
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    #[test]
    fn each_command_has_one_answer_until_stop() {
        let events = answers(
            "{\"do\":\"counts\"}\n{\"do\":\"fail\",\"operation\":\"flush\",\"nth\":1}\n\
             {\"do\":\"cut\",\"survivors\":\"all\",\"seed\":1,\"when\":{\"at\":{\"volatile\":99},\"within_ms\":0}}\n{\"do\":\"cut\",\"survivors\":\"torn\",\"seed\":1}\n\
             {\"do\":\"dance\"}\n{\"do\":\"stop\"}\n{\"do\":\"counts\"}\n",
        );
        let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
        assert_eq!(names, ["counts", "failing", "cut", "misunderstood", "misunderstood", "result"]);
        assert_eq!(events[0]["volatile"], 3);
        assert_eq!((&events[2]["volatile"], &events[2]["survived"]), (&json!(3), &json!(3)));
        assert_eq!(events[5]["counts"]["written_bytes"], 3 * PIECE_BYTES);
    }

    #[test]
    fn a_wrong_specification_is_refused_with_the_reason() {
        let empty = std::env::temp_dir().join(format!("pgdyno-empty-image-{}", std::process::id()));
        std::fs::write(&empty, b"").expect("a file");
        let image = empty.to_str().expect("a path");
        let table = [
            ("{}".to_owned(), "missing field"),
            (json!({"image": "/nowhere/x", "mount": "/", "cache_bytes_max": 1}).to_string(), "/nowhere/x"),
            (json!({"image": image, "mount": "/", "cache_bytes_max": 1}).to_string(), "multiple of 4096"),
        ];
        for (line, why) in table {
            let mut out = Vec::new();
            assert!(!run(&mut format!("{line}\n").as_bytes(), &mut out));
            assert!(String::from_utf8_lossy(&out).contains(why), "{line}: {}", String::from_utf8_lossy(&out));
        }
        std::fs::remove_file(&empty).expect("it was there");
    }
}
